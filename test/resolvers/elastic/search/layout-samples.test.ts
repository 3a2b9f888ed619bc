// How many searches `auto` sends for its samples, and that a layout which no document has shown yet is not believed for longer
// than there is none.
import { afterEach, describe, expect, test, vi } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import type { LogSource } from "#src/store/logs.ts";
import type { FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import {
  buildMapping,
  createFakeIndex,
  type JsonObject,
  openIndices,
} from "../../../support/elastic/layout-harness.ts";

afterEach(() => vi.restoreAllMocks());

const within = { tenantFilter: "tenant=b" };
const ecs = { message: "m", log: { level: "error" } };
const fluentBit = { kubernetes: { pod_name: "p", host: "n" }, severity: "error", msg: "boom" };
const logstash = { "@version": "1", message: "x", loglevel: "ERROR" };

/** Indices with a mapping each, so that none shares its group; `list` makes the documents of each. */
function createIndices(
  count: number,
  list: (at: number) => readonly JsonObject[],
): Record<string, FakeIndex> {
  const marked = (at: number) => ({ tenant: "x", [`own${at}`]: "x", ...ecs, ...fluentBit, ...logstash });
  return Object.fromEntries(
    Array.from({ length: count }, (_, at) => [
      `logs-${at}`,
      createFakeIndex(list(at), buildMapping([marked(at)])),
    ]),
  );
}

const repeat = (count: number, document: JsonObject) => Array.from({ length: count }, () => document);

async function open(indices: Readonly<Record<string, FakeIndex>>) {
  const opened = await openIndices(indices);
  const { fake, read } = opened;
  return {
    ...opened,
    /** The searches that a read takes, and its lines. */
    async readCounted(text = "", over: Partial<LogSource> = within) {
      const before = fake.requests.length;
      const lines = await read(text, over);
      const searches = fake.requests.slice(before).filter(({ path }) => path.includes("/_search"));
      return { lines, searches: searches.length };
    },
  };
}

describe("samples of layouts", () => {
  test("takes one search more for a page while indices have no documents of the tenant", async () => {
    const { readCounted, report } = await open(
      createIndices(30, (at) => [
        { tenant: "a", ...logstash },
        ...(at === 29 ? [{ tenant: "b", ...ecs }] : []),
      ]),
    );
    expect((await report(within)).layout).toBe("ecs");
    for (let page = 0; page < 3; page++) {
      const { lines, searches } = await readCounted();
      expect({ lines: lines.length, searches }).toEqual({ lines: 1, searches: 2 });
    }
  });

  test("takes one search more for a page while an index is empty", async () => {
    const indices = { ...createIndices(2, () => [fluentBit]), "logs-9": createFakeIndex([], {}) };
    const { readCounted } = await open(indices);
    await readCounted("", {});
    expect(await readCounted("", {})).toMatchObject({ searches: 2, lines: { length: 2 } });
  });

  test("takes no search more where each index has a few documents", async () => {
    const { readCounted } = await open(createIndices(30, () => repeat(3, { tenant: "b", ...fluentBit })));
    expect(await readCounted()).toMatchObject({ searches: 2, lines: { length: 90 } });
    expect(await readCounted()).toMatchObject({ searches: 1, lines: { length: 90 } });
  });

  test("samples twenty documents of each index, wherever they lie", async () => {
    const shapes = [ecs, fluentBit, logstash];
    // The first documents of the tenant come later with each index, and show less than those after them.
    const { readCounted } = await open(
      createIndices(20, (at) => [
        ...repeat(10 * at, { tenant: "a", ...ecs }),
        ...repeat(9, { tenant: "b" }),
        ...repeat(at < 10 ? 11 : 2, { tenant: "b", ...shapes[at % 3] }),
      ]),
    );
    const { lines, searches } = await readCounted("severity=error");
    expect(searches).toBeLessThan(10);
    expect(lines).toHaveLength(10 * 11 + 10 * 2);
    expect(new Set(lines.map(({ message }) => message))).toEqual(new Set(["m", "boom", "x"]));
  });

  test("reads the first documents of the tenant in an index by the layout that they show", async () => {
    const theirs = { tenant: "a", ...logstash };
    const hold = (own: readonly JsonObject[]) =>
      createIndices(3, (at) => [theirs, ...(at === 0 ? [{ tenant: "b", ...ecs }] : own)]);
    const opened = await open(hold([]));
    expect(await opened.readCounted("severity=error")).toMatchObject({ lines: [{ message: "m" }] });
    opened.hold(hold([{ tenant: "b", ...fluentBit }]));
    const { lines } = await opened.readCounted("severity=error");
    expect(lines.map(({ message, hostname }) => ({ message, hostname }))).toEqual([
      { message: "m", hostname: undefined },
      { message: "boom", hostname: "n" },
      { message: "boom", hostname: "n" },
    ]);
    expect(await opened.readCounted("severity=error")).toMatchObject({ searches: 2, lines: { length: 3 } });
  });

  test("forgets a guess after minutes, also one that reads need meanwhile", async () => {
    const start = performance.now();
    const later = (minutes: number) => vi.spyOn(performance, "now").mockReturnValue(start + minutes * 60_000);
    const mappings = buildMapping([{ message: "m", log: "m", level: "error" }]);
    const guessed = createFakeIndex(repeat(20, { log: "boom" }), mappings);
    const { hold, report } = await open({ "logs-1": guessed });
    expect((await report()).layout).toBe("fluent-bit");
    hold({ "logs-1": createFakeIndex(repeat(20, { message: "boom", level: "error" }), mappings) });
    later(4);
    expect((await report()).layout).toBe("fluent-bit");
    later(8);
    expect((await report()).layout).toBe("ecs");
  });
});

describe("the first documents of an index, after it was sampled", () => {
  const settled = { message: "m", log: { level: "info" } };
  // Read as ecs, like the other index, it has no severity.
  const first = { message: "x", loglevel: "ERROR" };
  const hold = (documents: readonly JsonObject[], settledCount = 1) => ({
    "logs-1": createFakeIndex(repeat(settledCount, settled)),
    "logs-2": createFakeIndex(documents, buildMapping([first])),
  });
  const countErrors = (lines: readonly LogLine[]) =>
    lines.filter(({ severity }) => severity === "error").length;

  test("are read by the layout that they show", async () => {
    const { read, holdBefore } = await open(hold([]));
    await read();
    holdBefore('"range"', hold([first]));
    const lines = await read();
    expect([lines.length, countErrors(lines)]).toEqual([2, 1]);
  });

  test("are read so in a millisecond that overflows a search", async () => {
    const { read, holdBefore } = await open(hold([], 300));
    await read();
    holdBefore("scroll=", hold([first], 300));
    const lines = await read();
    expect([lines.length, countErrors(lines)]).toEqual([301, 1]);
  });

  test("are counted so", async () => {
    const { count, holdBefore } = await open(hold([]));
    const grouping = { kind: "line", name: "severity" } as const;
    expect((await count({ grouping }))?.groups).toEqual(new Map([["info", 1]]));
    holdBefore('"aggs"', hold([first]));
    const counted = new Map([
      ["info", 1],
      ["error", 1],
    ]);
    expect((await count({ grouping }))?.groups).toEqual(counted);
  });

  test("are no reason to repeat a count that searches nothing", async () => {
    const { fake, count } = await open(hold([]));
    await count();
    const before = fake.requests.length;
    expect(await count({ grouping: { kind: "json", path: ["host", "name"] } })).toBeUndefined();
    expect(fake.requests.length - before).toBe(1);
  });
});
