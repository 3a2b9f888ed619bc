import { describe, expect, test } from "vitest";
import { kinds as realKinds } from "#resolvers/index.ts";
import { parseConfig } from "#src/config/config.ts";
import { listIssues, parse } from "./fixture.ts";

describe("layout files", () => {
  const site = (logs: string, traces: string) => `backends:
  elk: { kind: elastic, url: "http://elk" }
  prom: { kind: prometheus, url: "http://prom" }
sites:
  shop:
    logs:
      backend: elk
      sources:
        app: { index: a, layout: ${logs} }
    traces: { backend: elk, index: a, layout: ${traces} }
    frontend: { keys: [k], backend: elk, index: r, layout: ${traces} }
`;

  test("are found beside the configuration", () => {
    expect(listIssues(site("mine.yaml", "mine.yaml"))).toEqual([]);
    expect(listIssues(site("ecs", "otel"))).toEqual([]);
    expect(listIssues(site("auto", "auto"))).toEqual([]);
  });

  test("are parsed with the file, for their backend", () => {
    const { elk, prom } = parse(site("mine.yaml", "auto")).backends;
    const mine = { name: "mine", at: "here" };
    expect(elk?.layouts).toEqual({ logs: new Map([["mine.yaml", mine]]), traces: new Map() });
    expect(prom?.layouts).toBeUndefined();
  });

  test("are looked for in the kinds that the file names, and in no others", () => {
    const asked = new Set<string>();
    const get = (name: string) => {
      asked.add(name);
      return realKinds.get(name);
    };
    parseConfig(`${site("ecs", "otel")}  bare: {}\n  numbers: { metrics: { backend: prom } }\n`, "f.yaml", {
      env: {},
      readText: () => "",
      kinds: { get, keys: () => realKinds.keys() },
    });
    // A name that is no kind would be loaded as a module.
    expect([...asked].toSorted()).toEqual(["elastic", "prometheus"]);
  });

  test("report a missing or wrong layout file", () => {
    const app = "9 sites.shop.logs.sources.app.layout:";
    expect(listIssues(site("other.yaml", "auto"))).toEqual([
      `${app} is no layout: name: is missing`,
      `${app} is no layout: at: Invalid input: expected "here"`,
    ]);
    const unreadable = "is no built-in layout, and no file that can be read (ENOENT)";
    expect(listIssues(site("otel", "ecs"))).toEqual([
      `${app} ${unreadable}; known here: auto, ecs, fluent-bit`,
      `10 sites.shop.traces.layout: ${unreadable}; known here: auto, otel`,
      `11 sites.shop.frontend.layout: ${unreadable}; known here: auto, otel`,
    ]);
    expect(
      listIssues(site("fluentbit", "OTel").replace("layout: OTel }", "layout: layouts/otl.yaml }")),
    ).toEqual([
      `${app} ${unreadable}; did you mean "fluent-bit"?`,
      `10 sites.shop.traces.layout: ${unreadable}`,
      `11 sites.shop.frontend.layout: ${unreadable}; did you mean "otel"?`,
    ]);
    expect(listIssues(site("cut.yaml", "auto"))).toEqual([
      expect.stringMatching(/^9 \S+ is no layout: Flow sequence .* at line 1, column 8$/),
    ]);
  });

  test.each([
    ["  mesage: text", 'logs.mesage: unknown key; did you mean "message"?'],
    ["  severity: [{ field: lvl, value: { stderr: error } }]", 'value: unknown key; did you mean "values"?'],
    [
      "  severity: [{ field: n, at_least: { 10: debugg } }]",
      /at_least.10: expected .*; did you mean "debug"\?/,
    ],
    ["  time: { field: at, unit: NS }", 'unit: expected s, ms, us or ns; did you mean "ns"?'],
  ])("suggest a word for one that is misspelt: %s", (line, message) => {
    const [key = ""] = line.split(":");
    const lines = ["  time: at", "  message: text", "  severity: [lvl]", "  hostname: host", "  group: app"];
    const others = [...lines, "  json: source", "  detect: [lvl]"].filter(
      (one) => !one.startsWith(`${key}:`),
    );
    const layout = ["name: mine", "logs:", line, ...others].join("\n");
    const context = { kinds: realKinds, env: {}, readText: () => layout };
    const parseSite = () => parseConfig(site("mine.yaml", "auto"), "r.yaml", context);
    expect(parseSite).toThrow(message);
  });

  test.each([
    ["{ holds: span, name: [n], kind: bad }", /documents\.0\.kind: expected a list/],
    ["{ holds: spn, name: [n] }", /documents\.0\.holds: expected span or event$/],
    ["7", /documents\.0: expected keys with values$/],
  ])("are judged as the form that a document says to be: %s", (form, message) => {
    const readText = () => `name: mine\ntraces: { documents: [${form}] }`;
    const issues = listIssues(site("ecs", "mine.yaml"), { kinds: realKinds, readText });
    expect(issues).toContainEqual(expect.stringMatching(message));
    expect(issues.join("\n")).not.toMatch(/holds: expected event|name\.0:/);
  });
});
