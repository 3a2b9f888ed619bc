import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { proposeSites } from "#src/cli/init/propose.ts";
import { printDraft } from "#src/cli/init/render.ts";
import { parseConfig } from "#src/config/config.ts";
import { toPlaces } from "#src/core/collections.ts";
import type { FoundSource, Survey } from "#src/store/inspection.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { minutesAgo, now, ref, world } from "./init-harness.ts";

const nothing: Survey = { logs: [], traces: [], labels: new Map(), kubernetes: [], notes: [] };
const lines = (index: string, over: Partial<FoundSource> = {}): FoundSource => ({
  holds: "lines",
  index,
  layout: "ecs",
  indices: 3,
  newest: minutesAgo(4),
  limitations: [],
  ...over,
});
const fine = (...found: string[]) => ({ found, limitations: [], problems: [] });

/** The text for what was found, and the configuration that it is. */
function buildDraft(
  documents: Partial<Survey>,
  metrics?: Partial<Survey>,
  notes: readonly string[] = [],
  second?: Partial<Survey>,
  secondMetrics?: Partial<Survey>,
) {
  const found = [
    { backend: "elk", survey: { ...nothing, ...documents } },
    ...(second === undefined ? [] : [{ backend: "elk-2", survey: { ...nothing, ...second } }]),
    ...(metrics === undefined ? [] : [{ backend: "prom", survey: { ...nothing, ...metrics } }]),
    ...(secondMetrics === undefined ? [] : [{ backend: "prom-2", survey: { ...nothing, ...secondMetrics } }]),
  ];
  const url = "http://127.0.0.1:9200";
  const proposal = proposeSites(found, "main", now);
  const text = printDraft({
    preface: ["Written by a test."],
    listen: "127.0.0.1:8080",
    token: { user: "admin", sha256: "ab".repeat(32) },
    backends: [
      {
        name: "elk",
        kind: "elastic",
        url,
        auth: { api_key: ref("KEY") },
        tls: {},
        reasons: ["Elasticsearch 9"],
      },
      ...(second === undefined
        ? []
        : [{ name: "elk-2", kind: "elastic", url, auth: {}, tls: {}, reasons: [] }]),
      ...(metrics === undefined
        ? []
        : [{ name: "prom", kind: "prometheus", url, auth: {}, tls: { ca: "ca.pem" }, reasons: [] }]),
      ...(secondMetrics === undefined
        ? []
        : [{ name: "prom-2", kind: "prometheus", url, auth: {}, tls: {}, reasons: [] }]),
    ],
    sites: proposal.sites,
    notes: [...notes, ...proposal.notes],
  });
  return { text, config: parseConfig(text, "readout.yaml", { ...world, env: { KEY: "k" } }) };
}

describe("a proposal of init", () => {
  test("prints the complete file for several environments", async () => {
    const { text, config } = buildDraft(
      {
        logs: [
          lines("app-*,-app-errors-*"),
          lines("app-errors-*", { indices: 1, newest: undefined }),
          lines("logs-nginx.access-prod", {
            namespaces: ["prod"],
            services: { field: "service.name", names: ["web", 'o"dd'] },
          }),
          lines("logs-nginx.access-test", { namespaces: ["test"] }),
        ],
        traces: [
          { ...lines("traces-generic.otel-prod", { layout: "otel", namespaces: ["prod"] }), holds: "spans" },
          { ...lines("logs-generic.otel-prod", { layout: "otel", namespaces: ["prod"] }), holds: "events" },
        ],
      },
      {
        metrics: fine("214 metrics: 120 gauges, 94 counters"),
        labels: new Map([
          ["environment", ["prod", "test"]],
          ["job", ["api", "node"]],
        ]),
        kubernetes: [{ match: { cluster: "eu-1" }, report: fine("kube-state-metrics: 12 pods") }],
      },
      ["strange: no known layout\nof lines # or spans"],
    );
    await expect(text).toMatchFileSnapshot("golden/init.yaml");
    expect(config.sites).toMatchObject({
      prod: {
        logs: { sources: { app: {}, "app-errors": {}, "nginx.access": { index: "logs-nginx.access-prod" } } },
        traces: { index: "logs-generic.otel-prod,traces-generic.otel-prod", layout: "otel" },
        metrics: { match: { environment: "prod" } },
        kubernetes: { match: { cluster: "eu-1" } },
      },
      test: { logs: { sources: { "nginx.access": {} } }, metrics: { match: { environment: "test" } } },
    });
  });

  test("proposes one site with all metrics where nothing separates several", () => {
    const { config, text } = buildDraft(
      { logs: [lines("filebeat-*"), lines("filebeat-7-*"), lines("logs-x-prod", { namespaces: ["prod"] })] },
      { metrics: fine("3 metrics"), labels: new Map([["job", ["a", "b", "c", "d", "e", "f", "g", "h"]]]) },
    );
    expect(Object.keys(config.sites)).toEqual(["main"]);
    expect(Object.keys(config.sites.main?.logs?.sources ?? {})).toEqual(["filebeat", "filebeat-7", "x"]);
    expect(toPlaces(config.sites.main?.metrics)[0]?.match).toEqual({});
    expect(text).toContain("#   job: a, b, c, d, e, f, and 2 more\n");
  });

  test("proposes the series of several Prometheus servers as those of one site", () => {
    const watch = (...clusters: string[]): Partial<Survey> => ({
      metrics: fine("3 metrics"),
      labels: new Map([["cluster", clusters]]),
      kubernetes: clusters.map((cluster) => ({ match: { cluster }, report: fine(`the pods of ${cluster}`) })),
    });
    const { config, text } = buildDraft({}, watch("eu"), [], undefined, watch("eu", "us"));
    expect(config.sites).toMatchObject({
      main: {
        metrics: [
          { backend: "prom", match: {} },
          { backend: "prom-2", match: {} },
        ],
        kubernetes: [
          { backend: "prom", match: { cluster: "eu" } },
          { backend: "prom-2", match: { cluster: "eu" } },
        ],
      },
      us: {
        metrics: { backend: "prom-2", match: { cluster: "us" } },
        kubernetes: { backend: "prom-2", match: { cluster: "us" } },
      },
    });
    expect(text).toContain("# where two servers have the same series, give both the key replica\n");
  });

  test("lets no site read the series that a label gives to another one", () => {
    const logs = ["prod", "staging"].map((namespace) =>
      lines(`logs-app-${namespace}`, { namespaces: [namespace] }),
    );
    const watch = (environment: string): Partial<Survey> => ({
      metrics: fine("3 metrics"),
      labels: new Map([["env", [environment]]]),
      kubernetes: [{ match: {}, report: fine("pods") }],
    });
    const { config, text } = buildDraft({ logs }, watch("prod"), [], undefined, watch("staging"));
    expect(config.sites).toMatchObject({
      prod: { metrics: { backend: "prom", match: { env: "prod" } }, kubernetes: { backend: "prom" } },
      staging: { metrics: { backend: "prom-2", match: { env: "staging" } } },
      // Nothing says that clusters without a name are one.
      "prod-2": { kubernetes: { backend: "prom-2" } },
    });
    expect(text).toContain("prom-2: series of no site, as no label of their targets names prod\n");
  });

  test("proposes one site with the reason, where namespaces are more than environments", () => {
    const tenants = Array.from({ length: 13 }, (_, at) => `t${at}x`);
    const { config, text } = buildDraft({
      logs: [lines("logs-web-*", { namespaces: tenants }), lines("logs-db-t1x", { namespaces: ["t1x"] })],
    });
    expect(Object.keys(config.sites)).toEqual(["main"]);
    expect(text).toContain("# the data streams have 13 namespaces, too many for environments; each ");
  });

  test("gives a site to each environment whose name has no valid character", () => {
    const { config } = buildDraft({
      logs: ["прод", "тест"].map((namespace) => lines(`logs-x-${namespace}`, { namespaces: [namespace] })),
    });
    expect(Object.values(config.sites).map(({ logs }) => Object.values(logs?.sources ?? {}))).toEqual([
      [{ index: "logs-x-прод", layout: "ecs" }],
      [{ index: "logs-x-тест", layout: "ecs" }],
    ]);
  });

  test("names the spans of two clusters together, each with its events, and events without spans nowhere", () => {
    const spans = (index: string): FoundSource => ({ ...lines(index, { layout: "jaeger" }), holds: "spans" });
    const events: FoundSource = { ...lines("e-*", { layout: "apm" }), holds: "events" };
    const { config, text } = buildDraft({ traces: [spans("a-*"), events] }, undefined, [], {
      traces: [spans("b-*")],
      logs: [lines("app-*")],
    });
    expect(config.sites.main?.traces).toEqual([
      expect.objectContaining({ backend: "elk", index: "a-*", layout: "jaeger" }),
      expect.objectContaining({ backend: "elk-2", index: "b-*", layout: "jaeger" }),
    ]);
    expect(config.sites.main?.logs).toMatchObject({ backend: "elk-2", sources: { app: { index: "app-*" } } });
    expect(text).toContain("#   e-*: events of spans of apm, of which none were found");
  });

  test("reads spans of several layouts by auto and leaves out events without spans", () => {
    const traces: FoundSource[] = [
      { ...lines("b-*", { layout: "jaeger" }), holds: "spans" },
      { ...lines("a-*,-a-x-*", { layout: "otel" }), holds: "spans" },
      { ...lines("e-*", { layout: "apm" }), holds: "events" },
    ];
    const { config, text } = buildDraft({ traces });
    expect(config.sites.main?.traces).toMatchObject({ index: "a-*,-a-x-*,b-*", layout: "auto" });
    expect(text).toContain("#   e-*: events of spans of apm, of which none were found");
    const alone = buildDraft({ traces: traces.slice(2) });
    expect(alone.config.sites.main?.traces).toBeUndefined();
    expect(alone.text).toContain("#   e-*: events of spans of apm, of which none were found");
    const areLines = buildDraft({ traces: traces.slice(2).map((source) => ({ ...source, areLines: true })) });
    expect(areLines.text).not.toContain("Found and left out");
    const [mixed, , events] = traces;
    if (mixed === undefined || events === undefined) throw new Error("three sources");
    const joined = buildDraft({ traces: [{ ...mixed, layout: "apm, jaeger" }, events] });
    expect(joined.config.sites.main?.traces).toMatchObject({ index: "b-*,e-*", layout: "auto" });
  });

  test.each([
    ["otel", ["traces-generic.otel-prod"], "logs-generic.otel-prod,traces-generic.otel-prod"],
    ["otel", ["traces-*.otel-*"], "logs-*.otel-*,traces-*.otel-*"],
    [
      "apm",
      ["traces-apm-default", "traces-apm.rum-default"],
      "logs-apm.error-default,traces-apm-default,traces-apm.rum-default",
    ],
    ["otel", ["spans"], "spans"],
    ["jaeger", ["traces-x-prod"], "traces-x-prod"],
  ])(
    "where nothing has failed yet, %s spans of %s are proposed with the place of their events",
    (layout, indices, index) => {
      const traces = indices.map(
        (name): FoundSource => ({ ...lines(name, { layout: layout }), holds: "spans" }),
      );
      const { config, text } = buildDraft({ traces });
      expect(config.sites.main?.traces).toMatchObject({ index, layout });
      expect(text.includes("none was found yet")).toBe(index !== indices.join());
    },
  );

  test.each([
    ["logs-apm.*", ["traces-apm-default"], "logs-apm.*,traces-apm-default"],
    ["logs-apm.*", ["traces-apm-*"], "logs-apm.*,traces-apm-*"],
    [
      "logs-apm.*,-logs-apm.error-*",
      ["traces-apm-*"],
      "logs-apm.*,-logs-apm.error-*,logs-apm.error-*,traces-apm-*",
    ],
    ["logs-apm*error-*", ["traces-apm-*"], "logs-apm*error-*,traces-apm-*"],
    ["logs-apm.error-prod", ["traces-apm-*"], "logs-apm.error-*,logs-apm.error-prod,traces-apm-*"],
  ])("does not await events that %s has", (found, indices, index) => {
    const own = (name: string) => lines(name, { layout: "apm" });
    const traces: FoundSource[] = [
      { ...own(found), holds: "events" },
      ...indices.map((name): FoundSource => ({ ...own(name), holds: "spans" })),
    ];
    const { config, text } = buildDraft({ traces });
    expect(config.sites.main?.traces).toMatchObject({ index });
    expect(text.includes("none was found yet")).toBe(index.includes("logs-apm.error-*,"));
  });

  test("gives a site to each cluster where valid names would be equal", () => {
    const kubernetes = ["main", "eu 1", "eu/1"].map((cluster) => {
      return { match: { cluster }, report: fine("pods") };
    });
    const { config } = buildDraft({}, { metrics: fine("3 metrics"), kubernetes });
    const found = Object.entries(config.sites).map(([id, site]) => [
      id,
      toPlaces(site.kubernetes)[0]?.match.cluster,
    ]);
    expect(found).toEqual([
      ["main", "main"],
      ["eu-1", "eu 1"],
      ["eu-1-2", "eu/1"],
    ]);
  });

  test("gives a site to each cluster that no site is named after", () => {
    const cluster = (name: string) => ({ match: { cluster: name }, report: fine("pods") });
    const labels = new Map([["cluster", ["a", "b", "main"]]]);
    const metrics = fine("3 metrics");
    const { config } = buildDraft(
      {},
      { metrics, labels, kubernetes: [cluster("a"), cluster("b"), cluster("main")] },
    );
    expect(config.sites).toMatchObject({
      main: { kubernetes: { match: { cluster: "main" } } },
      a: { kubernetes: { match: { cluster: "a" } }, metrics: { match: { cluster: "a" } } },
      b: { kubernetes: { match: { cluster: "b" } } },
    });
  });

  test("prints a valid file where nothing was found", () => {
    const { text, config } = buildDraft({});
    expect(config.sites).toMatchObject({ main: { retention: 30 * 86_400_000 } });
    expect(text).toContain("# nothing was found for it yet");
  });

  test("quotes names that YAML would read as something else", () => {
    const evil = fc.oneof(
      fc.string({ unit: "binary", minLength: 1 }),
      fc.constantFrom(
        ref("HOME"),
        "null",
        "x: y",
        "a\nb: c",
        "# x",
        "{a}",
        "\u2028",
        "'",
        '"',
        "on",
        "~",
        "*a",
        "&a",
      ),
    );
    fc.assert(
      fc.property(evil, evil, evil, (name, label, value) => {
        const survey = { logs: [lines(name, { services: { field: label, names: [value] } })] };
        const { config } = buildDraft(
          survey,
          {
            metrics: fine(label),
            labels: new Map([[label, [value]]]),
            kubernetes: [{ match: { cluster: value }, report: fine(name) }],
          },
          [name, value],
        );
        const [site] = Object.values(config.sites);
        expect(Object.values(site?.logs?.sources ?? {})).toEqual([{ index: name, layout: "ecs" }]);
        expect(toPlaces(site?.kubernetes)[0]?.match).toEqual({ cluster: value });
      }),
      { seed: 20_260_104, numRuns: sampleRuns(80) },
    );
  });
});
