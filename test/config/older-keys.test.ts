import { describe, expect, test } from "vitest";
import { listIssues, minimal, parse } from "./fixture.ts";

describe("older names of keys", () => {
  const site = (key: string) => `backends: { elk: { kind: elastic, url: "http://elk" } }
sites:
  shop:
    logs: { backend: elk, sources: { app: { index: a, ${key}: ecs } } }
    traces: { backend: elk, index: a, ${key}: otel }
    frontend: { keys: [k], backend: elk, index: r, ${key}: otel }
`;

  test("a file with the older names means the same as one with today's", () => {
    const older = `${site("profile")}limits: { millisecond: 20000 }\ntail: { open: 8 }\n`;
    const today = `${site("layout")}limits: { lines_per_millisecond: 20000 }\ntail: { max_open: 8 }\n`;
    expect(parse(older)).toEqual(parse(today));
    expect(parse(older).limits).toMatchObject({ linesPerMillisecond: 20_000, tail: { maxOpen: 8 } });
  });

  test("a layout file may be named under the older key", () => {
    const text = site("profile").replace("profile: ecs", "profile: mine.yaml");
    expect(parse(text).backends.elk?.layouts?.logs.has("mine.yaml")).toBe(true);
  });

  test("messages name a key as the file spells it", () => {
    expect(listIssues(`${minimal}limits: { millisecond: 5 }\ntail: { open: 0 }\n`)).toEqual([
      "3 limits.millisecond: can only be raised: expected 10000 or more",
      "4 tail.open: expected a whole number from 1 up",
    ]);
    const text = site("profile").replace("profile: ecs", "profile: none.yaml");
    expect(listIssues(text)).toEqual([
      "4 sites.shop.logs.sources.app.profile: is no built-in layout, and no file that can be read (ENOENT)",
    ]);
  });

  test("both names of one key are an error", () => {
    const both = (older: string, key: string) =>
      `${older}: is the older name of ${key}, which is given too: remove one of them`;
    const text = site("layout: auto, profile");
    expect(
      listIssues(
        `${text}limits: { millisecond: 1, lines_per_millisecond: 20000 }\ntail: { max_open: 1, open: 0 }\n`,
      ),
    ).toEqual([
      both("4 sites.shop.logs.sources.app.profile", "layout"),
      both("5 sites.shop.traces.profile", "layout"),
      both("6 sites.shop.frontend.profile", "layout"),
      both("7 limits.millisecond", "lines_per_millisecond"),
      both("8 tail.open", "max_open"),
    ]);
  });
});
