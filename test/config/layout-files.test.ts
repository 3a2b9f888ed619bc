import { describe, expect, test } from "vitest";
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

  test("report a missing or wrong layout file", () => {
    const app = "9 sites.shop.logs.sources.app.layout:";
    expect(listIssues(site("other.yaml", "auto"))).toEqual([
      `${app} is no layout: name: is missing`,
      `${app} is no layout: at: Invalid input: expected "here"`,
    ]);
    expect(listIssues(site("otel", "ecs"))).toEqual([
      `${app} is no built-in layout, and no file that can be read (ENOENT)`,
      "10 sites.shop.traces.layout: is no built-in layout, and no file that can be read (ENOENT)",
      "11 sites.shop.frontend.layout: is no built-in layout, and no file that can be read (ENOENT)",
    ]);
    expect(listIssues(site("cut.yaml", "auto"))).toEqual([
      expect.stringMatching(/^9 \S+ is no layout: Flow sequence .* at line 1, column 8$/),
    ]);
  });
});
