// The alerts and the dashboard of the program's own metrics: each metric exists, each alert has its runbook and its cases.
// `.ci/run` runs the cases with promtool.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { parser } from "@prometheus-io/lezer-promql";
import { beforeAll, describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { listCode, readPage, readTable } from "../support/docs/pages.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string; readonly runbook_url?: string };
}
interface Case {
  readonly input_series: readonly { readonly series: string; readonly values: string }[];
  readonly alert_rule_test: readonly { readonly alertname: string; readonly exp_alerts: readonly object[] }[];
}
interface Panel {
  readonly title: string;
  readonly description: string;
  readonly targets: readonly { readonly expr: string }[];
}

const read = (path: string): string => readFileSync(path, "utf8");
const rules: readonly Rule[] = parseYaml(read("deploy/mixin/alerts.yaml")).groups[0].rules;
const cases: readonly Case[] = parseYaml(read("deploy/mixin/tests.yaml")).tests;
const dashboard: { readonly panels: readonly Panel[] } = JSON.parse(read("deploy/mixin/dashboard.json"));
const withoutVariables = (expr: string) => expr.replaceAll("$__rate_interval", "5m").replaceAll("$job", ".*");
const expressions = [
  ...rules.map(({ alert, expr }) => [alert, expr] as const),
  ...dashboard.panels.flatMap(({ title, targets }) =>
    targets.map(({ expr }) => [title, withoutVariables(expr)] as const),
  ),
];

let names: ReadonlySet<string>;
/** What is scraped of a program that has just started. */
let text: string;
/** Of the buckets of its histograms, which are all alike. */
let bounds: ReadonlySet<string>;
beforeAll(async () => {
  const telemetry = createTelemetry({ write: () => {}, level: "silent", process: { memoryLimit: 1 } });
  telemetry.intake.watch(async () => ({ reports: 0, bytes: 0, deadLetters: 0 }));
  telemetry.intake.announce(["shop"]);
  ({ text } = await telemetry.metrics());
  telemetry.recordRequest("elk", "ok", 1);
  const { text: later } = await telemetry.metrics();
  bounds = new Set([...later.matchAll(/_bucket\{le="([^"]+)"/g)].map(([, bound = ""]) => bound));
  const listed = [...text.matchAll(/^# TYPE (\w+) (\w+)/gm)].flatMap(([, name = "", type]) =>
    type === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name],
  );
  names = new Set(listed);
});

describe.each(expressions)("%s", (_, expr) => {
  test("is an expression over metrics that the program has", () => {
    parser.configure({ strict: true }).parse(expr);
    const used = expr.replaceAll(/"[^"]*"/g, "").match(/\b(?:readout|process|nodejs)_\w+/g) ?? [];
    expect(used.length).toBeGreaterThan(0);
    expect(used.filter((name) => !names.has(name))).toEqual([]);
  });
});

test("each alert says how severe it is, and has a section of the runbooks", () => {
  const headings = [...read("docs/how-to/runbooks.md").matchAll(/^## (.+)$/gm)].map(
    ([, heading = ""]) => heading,
  );
  expect(rules.map(({ alert }) => alert)).toEqual(headings);
  for (const { alert, labels, annotations } of rules) {
    expect(labels.severity).toMatch(/^(?:critical|warning|info)$/);
    expect(annotations.runbook).toBe(`docs/how-to/runbooks.md#${alert.toLowerCase()}`);
    expect(annotations.summary).toMatch(/\.$/);
  }
});

test("each alert has a case in which it fires, and one in which it does not", () => {
  const tried = cases.flatMap(({ alert_rule_test }) => alert_rule_test);
  for (const { alert } of rules) {
    const firing = tried
      .filter(({ alertname }) => alertname === alert)
      .map(({ exp_alerts }) => exp_alerts.length);
    expect([alert, ...firing]).toEqual([alert, 1, 0]);
  }
});

test("the limits that raise an alert are those of the whole program", () => {
  const table = readTable(readPage("docs/reference/limits.md"), "What is counted");
  const ofAll = table
    .filter(([, , answer]) => answer === "500 with `Retry-After`")
    .flatMap(([limits = ""]) => listCode(limits));
  expect(ofAll.length).toBeGreaterThan(5);
  const listLimits = (text: string) =>
    [...text.matchAll(/readout_limited_total\{limit=~"([^"]+)"/g)].map(([, names = ""]) =>
      names.split("|").toSorted(),
    );
  const ofConnections = ["address_connections", "connections"];
  expect(listLimits(read("deploy/mixin/alerts.yaml"))).toEqual([ofAll.toSorted(), ofConnections]);
  expect(listLimits(read("docs/how-to/operate.md"))).toEqual([[...ofAll, "connections"].toSorted()]);
});

test("the guide says how the runbooks get an address, in the site of a version", () => {
  const [, script = ""] =
    /`sed -E '(.+)' deploy\/mixin\/alerts\.yaml`/.exec(read("docs/how-to/operate.md")) ?? [];
  const made: { readonly groups: readonly { readonly rules: readonly Rule[] }[] } = parseYaml(
    execFileSync("sed", ["-E", script, "deploy/mixin/alerts.yaml"], { encoding: "utf8" }),
  );
  const urls = made.groups[0]?.rules.map(({ annotations }) => annotations.runbook_url);
  expect(urls).toEqual(
    rules.map(({ alert }) => `https://docs.example.com/VERSION/how-to/runbooks.html#${alert.toLowerCase()}`),
  );
});

test("counters that begin at 0 do so in the program", () => {
  const begun = cases.flatMap(({ input_series }) =>
    input_series.filter(({ series, values }) => series.includes("_total{") && values.startsWith("0x")),
  );
  expect(begun.length).toBeGreaterThan(0);
  for (const { series } of begun) {
    expect(text).toContain(`${series.replaceAll(/(?:job|instance)="\w+", /g, "")} 0\n`);
  }
});

test("the buckets of the cases are those of the program, and so is each length that an alert asks for", () => {
  const used = cases.flatMap(({ input_series }) =>
    input_series.flatMap(({ series }) => /le="([^"]+)"/.exec(series)?.[1] ?? []),
  );
  const asked = rules.flatMap(({ expr }) => /^histogram_quantile.* > (\d+)$/.exec(expr)?.[1] ?? []);
  expect(asked).toEqual(["5", "5"]);
  expect([...used, ...asked].filter((bound) => !bounds.has(bound))).toEqual([]);
});

test("each panel of the dashboard says what it shows", () => {
  expect(dashboard.panels.length).toBeGreaterThan(10);
  for (const { title, description } of dashboard.panels) expect([title, description]).not.toContain("");
});
