import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import { kinds as realKinds } from "../../resolvers/index.ts";
import { parseConfig } from "../../src/config/config.ts";
import { defaults } from "../../src/config/schema.ts";
import { parseDuration } from "../../src/core/time.ts";
import { readUserPages } from "../support/docs/pages.ts";
import { env, listIssues, readText } from "./fixture.ts";

describe("the page of the configuration", () => {
  const rows = readFileSync("docs/reference/configuration.md", "utf8")
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) => line.split(" | "));
  /** The keys of a row: of `a.b`, `.c` the second is `a.c`. Some rows have whole keys only. */
  const documented = rows.flatMap(([first = ""]) => {
    const [key = "", ...siblings] = [...first.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name);
    return [key, ...siblings.map((name) => (name.startsWith(".") ? key.replace(/\.[^.]+$/, name) : name))];
  });
  const top = "backends: {}\nsites: {}\n";
  const inSite = (part: string) => `backends: {}\nsites: { s: ${part} }\n`;

  test.each([
    ["", `${top}zzzzzzzz: 1`],
    ["tokens[].", `${top}tokens: [{ zzzzzzzz: 1 }]`],
    ["tokens[].limits.", `${top}tokens: [{ limits: { zzzzzzzz: 1 } }]`],
    ["listen.", `${top}listen: { zzzzzzzz: 1 }`],
    ["admin.", `${top}admin: { zzzzzzzz: 1 }`],
    ["auth.", `${top}auth: { zzzzzzzz: 1 }`],
    ["auth.jwt[].", `${top}auth: { jwt: [{ zzzzzzzz: 1 }] }`],
    ["auth.jwt[].console.", `${top}auth: { jwt: [{ console: { zzzzzzzz: 1 } }] }`],
    ["auth.certificates[].", `${top}auth: { certificates: [{ zzzzzzzz: 1 }] }`],
    ["audit.", `${top}audit: { zzzzzzzz: 1 }`],
    ["audit.otlp.", `${top}audit: { otlp: { zzzzzzzz: 1 } }`],
    ["audit.rotate.", `${top}audit: { rotate: { zzzzzzzz: 1 } }`],
    ["mcp.", `${top}mcp: { zzzzzzzz: 1 }`],
    ["intake.", `${top}intake: { zzzzzzzz: 1 }`],
    ["limits.", `${top}limits: { zzzzzzzz: 1 }`],
    ["compression.", `${top}compression: { zzzzzzzz: 1 }`],
    ["tail.", `${top}tail: { zzzzzzzz: 1 }`],
    ["rollups.", `${top}rollups: { zzzzzzzz: 1 }`],
    ["graphql.", `${top}graphql: { zzzzzzzz: 1 }`],
    ["otlp.", `${top}otlp: { url: "http://c:4318", zzzzzzzz: 1 }`],
    ["sites.<id>.", inSite("{ zzzzzzzz: 1 }")],
    ["sites.<id>.logs.", inSite("{ logs: { zzzzzzzz: 1 } }")],
    ["sites.<id>.logs.sources.<source_id>.", inSite("{ logs: { sources: { a: { zzzzzzzz: 1 } } } }")],
    ["sites.<id>.traces.", inSite("{ traces: { zzzzzzzz: 1 } }")],
    ["sites.<id>.metrics.", inSite("{ metrics: { zzzzzzzz: 1 } }")],
    ["sites.<id>.kubernetes.", inSite("{ kubernetes: { zzzzzzzz: 1 } }")],
    ["sites.<id>.frontend.", inSite("{ frontend: { zzzzzzzz: 1 } }")],
  ])("documents every key of %s and no other", (level, text) => {
    const known = /unknown key; known here: (.*)/.exec(listIssues(text).join("\n"))?.[1]?.split(", ");
    const below = documented
      .filter((key) => key.startsWith(level))
      .map((key) => key.slice(level.length).split(/[.[]/)[0]);
    expect([...new Set(below)].sort()).toEqual(known?.toSorted());
  });

  test("documents every key of backends.<name>. and no other", () => {
    const known = [...realKinds.keys()].flatMap((kind) => {
      const issues = collectIssues(`backends: { b: { kind: ${kind}, zzzzzzzz: 1 } }\nsites: {}`);
      return /unknown key; known here: (.*)/.exec(issues)?.[1]?.split(", ") ?? [];
    });
    const below = documented
      .filter((key) => key.startsWith("backends.<name>."))
      .map((key) => key.slice("backends.<name>.".length));
    expect(below.toSorted()).toEqual([...new Set(["kind", "label", ...known])].sort());
  });

  const examples = readUserPages()
    .filter(({ path }) => path.startsWith("docs/reference/"))
    .flatMap(({ blocks }) => blocks.filter(({ kind }) => kind === "yaml readout"))
    .map(({ text }): unknown => parseYaml(text));

  test.each([
    ["tls", "tls: { zzzzzzzz: 1 }", ["ca", "cert", "key"]],
    [
      "auth.oauth2",
      "auth: { oauth2: { zzzzzzzz: 1 } }",
      ["token_url", "client_id", "client_secret", "scopes"],
    ],
    ["auth.aws", "auth: { aws: { zzzzzzzz: 1 } }", ["region", "service", "role"]],
  ])("has an example of every key of backends.<name>.%s", (level, text, keys) => {
    const issues = collectIssues(
      `backends: { b: { kind: prometheus, url: "http://p", ${text} } }\nsites: {}`,
    );
    expect(/unknown key; known here: (.*)/.exec(issues)?.[1]?.split(", ").toSorted()).toEqual(
      keys.toSorted(),
    );
    const path = ["backends", "<name>", ...level.split(".")];
    const without = keys.filter((key) => !examples.some((example) => hasKey(example, [...path, key])));
    expect(without).toEqual([]);
  });

  function collectIssues(text: string): string {
    try {
      parseConfig(text, "r.yaml", { kinds: realKinds, env, readText });
      return "";
    } catch (error) {
      return String(error);
    }
  }

  test("the reference has an example of every key", () => {
    const without = documented.filter((key) => !examples.some((example) => hasKey(example, key.split("."))));
    expect(without).toEqual([]);
  });

  test.each([
    ["listen", `${defaults.listen.host}:${defaults.listen.port}`],
    ["intake.spool", defaults.spool],
    ["intake.spool_bytes", defaults.spoolBytes],
    ["intake.key_rate", defaults.keyRate],
    ["intake.address_rate", defaults.addressRate],
    ["intake.proxies", defaults.proxies],
    ["sites.<id>.retention", defaults.retention],
    ["sites.<id>.counter_default", defaults.counterDefault],
    ["sites.<id>.logs.sources.<source_id>.layout", defaults.layout],
    ["limits.rows", defaults.limits.rows],
    ["limits.lines_per_millisecond", defaults.limits.linesPerMillisecond],
    ["limits.points", defaults.limits.points],
    ["limits.look_back", defaults.limits.lookBack],
    ["limits.documents", defaults.limits.documents],
    ["limits.spans", defaults.limits.spans],
    ["limits.rate", defaults.limits.rate],
    ["limits.deadline", defaults.limits.deadline],
    ["limits.requests", defaults.limits.requests],
    ["limits.streams", defaults.limits.streams],
    ["limits.connections", defaults.limits.connections],
    ["limits.export", defaults.limits.export],
    ["limits.metric_cache_bytes", defaults.limits.metricCacheBytes],
    ["limits.held_bytes", defaults.limits.heldBytes],
    ["tail.lateness", defaults.limits.tail.lateness],
    ["tail.max_open", defaults.limits.tail.maxOpen],
    ["tail.per_token", defaults.limits.tail.perToken],
    ["compression.codings", "[zstd, gzip]"],
    ["compression.level", defaults.compression.level],
    ["compression.min_bytes", defaults.compression.minBytes],
    ["compression.loopback", defaults.compression.loopback],
    ["rollups.index", defaults.rollups.index],
    ["rollups.rate", defaults.rollups.rate],
    ["otlp.ratio", defaults.otlp.ratio],
    ["otlp.service", defaults.otlp.service],
  ])("documents the default of %s", (key, value) => {
    const told = rows.find(([first]) => first === `| \`${key}\``)?.[1]?.replaceAll("`", "") ?? "";
    expect([told, String(parseDuration(told))]).toContain(String(value));
  });
});

/** Whether a key is there: `<name>` stands for any, and of a list any entry will do. */
function hasKey(value: unknown, [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return true;
  if (Array.isArray(value)) return value.some((one) => hasKey(one, [first, ...rest]));
  if (typeof value !== "object" || value === null) return false;
  const name = first.replace("[]", "");
  return Object.entries(value).some(
    ([key, child]) => (/^<.*>$/.test(name) || key === name) && hasKey(child, rest),
  );
}
