// What stands around the log lines: a histogram of exactly the counts, fields as queries spell them, and saved searches.
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { browserStorage, keepChoice } from "#src/console/base/storage.js";
import { printLines } from "#src/console/logs/export-menu.js";
import { chooseListedFields, collectBodyFields, listFieldTexts } from "#src/console/logs/field-paths.js";
import { buildColumns, type Counts, convertToTimes, severityOrder } from "#src/console/logs/histogram.js";
import { computePause } from "#src/console/logs/live-tail.js";
import { readSaved, writeSaved } from "#src/console/logs/saved-queries.js";
import { printPath, printTerm, readPath } from "#src/console/search/query.js";
import { severities } from "#src/core/rows.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { sampleRuns } from "../support/law-runs.ts";

const base = Date.UTC(2026, 0, 31, 12);
const print = (at: number) => new Date(at).toISOString();

describe("the histogram", () => {
  const lines = fc.array(fc.record({ minute: fc.nat(9), severity: fc.constantFrom(...severities) }), {
    maxLength: 60,
  });
  type Line = { readonly minute: number; readonly severity: string };
  const bucketsOf = (some: readonly Line[]) =>
    [...Map.groupBy(some, ({ minute }) => minute)]
      .sort(([a], [b]) => a - b)
      .map(([minute, { length }]) => ({ timestamp: print(base + minute * 60_000), count: length }));
  const countsOf = (all: readonly Line[]): Counts => ({
    total: all.length,
    resolution: "MINUTELY",
    buckets: bucketsOf(all),
    groups: [...Map.groupBy(all, ({ severity }) => severity)].map(([value, own]) => ({
      value,
      count: own.length,
      buckets: bucketsOf(own),
    })),
  });

  test("adds up to the total, in each column and over all", () => {
    fc.assert(
      fc.property(lines, (all) => {
        const bounds = { from: print(base + 20_000), to: print(base + 9 * 60_000 + 30_000) };
        const columns = buildColumns(countsOf(all), bounds);
        expect(columns.reduce((sum, { count }) => sum + count, 0)).toBe(all.length);
        for (const { start, end, count, parts } of columns) {
          expect(parts.reduce((sum, part) => sum + part.count, 0)).toBe(count);
          expect(start).toBeGreaterThanOrEqual(Date.parse(bounds.from));
          expect(end).toBeLessThanOrEqual(Date.parse(bounds.to));
          const places = parts.map(({ severity }) => severityOrder.indexOf(severity));
          expect(places).toEqual(places.toSorted((a, b) => a - b));
        }
      }),
    );
  });

  test("knows every severity", () => {
    expect(severityOrder.toSorted()).toEqual([...severities].sort());
  });

  test("a stretch of it is that part of the range", () => {
    const bounds = { from: "2026-01-31T12:00:00Z", to: "2026-01-31T13:00:00Z" };
    expect(convertToTimes(bounds, 0.25, 0.5)).toEqual({
      from: "2026-01-31T12:15:00.000Z",
      to: "2026-01-31T12:30:00.000Z",
    });
    expect(convertToTimes(bounds, 0, 1)).toEqual({ from: print(base), to: print(base + 3_600_000) });
  });
});

describe("a live tail that has broken", () => {
  test.each([
    { failures: 0, asked: 0, least: 3_000 },
    { failures: 1, asked: 0, least: 6_000 },
    { failures: 4, asked: 0, least: 48_000 },
    { failures: 900, asked: 0, least: 60_000 },
    { failures: 0, asked: 60_000, least: 60_000 },
    { failures: 1, asked: 1_000, least: 6_000 },
    { failures: 0, asked: 1e15, least: 3_600_000 },
  ])(
    "waits $least ms or up to a quarter more, after $failures failures and asked for $asked",
    ({ failures, asked, least }) => {
      const pause = computePause(failures, asked);
      expect(pause).toBeGreaterThanOrEqual(least);
      expect(pause).toBeLessThanOrEqual(1.25 * least);
    },
  );
});

const key = fc.oneof(
  fc.string({ unit: fc.constantFrom(...'ab.\\ =:!_"()'.split("")), minLength: 1, maxLength: 5 }),
  fc.constantFrom("message", "attributes", "source", "user_string", "severity"),
);

describe("a field of the body", () => {
  test("is spelt so that its path is read back", () => {
    fc.assert(
      fc.property(fc.array(key, { minLength: 1, maxLength: 4 }), (path) => {
        expect(readPath(printPath(path))).toEqual(path);
      }),
    );
  });

  test("has the values that a query finds its line by", () => {
    const value = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { depthSize: "small", withCrossShrink: true },
        fc.constantFrom<unknown>("a", "b c", 1, 2.5, true, null),
        fc.array(tie("value"), { maxLength: 3 }),
        fc.dictionary(key, tie("value"), { maxKeys: 3, noNullPrototype: true }),
      ),
    })).value;
    fc.assert(
      fc.property(fc.dictionary(key, value, { maxKeys: 4, noNullPrototype: true }), (body) => {
        const line = { json: JSON.stringify(body), message: "", severity: "info" as const };
        // Browsers read a line with JSON.parse, and V8 misreads some keys (see src/core/json/parse-json.ts).
        fc.pre(JSON.stringify(JSON.parse(line.json)) === line.json);
        for (const { path } of collectBodyFields([line])) {
          const texts = listFieldTexts(line, path);
          expect(texts.length, JSON.stringify(path)).toBeGreaterThan(0);
          for (const text of texts) {
            const term = printTerm(path, "=", text) ?? "";
            expect(matches(parse(term), line as unknown as Parameters<typeof matches>[1]), term).toBe(true);
          }
        }
      }),
      { numRuns: sampleRuns(300) },
    );
  });

  test("that a list has no room for is counted", () => {
    const lineOf = (count: number) => ({
      json: JSON.stringify(Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, at]))),
    });
    const countListed = (count: number) => {
      const { fields, left } = chooseListedFields([lineOf(count), lineOf(1)]);
      expect(fields[0]?.spelling).toBe("f0");
      return [fields.length, left];
    };
    expect(countListed(200)).toEqual([200, 0]);
    expect(countListed(201)).toEqual([200, 1]);
    expect(countListed(1_234)).toEqual([200, 1_034]);
  });

  test("that most lines have comes first, and a line counts once", () => {
    const lines = [{ json: '{"a":[1,1],"b":{"c":1}}' }, { json: '{"b":{"c":2}}' }, { json: "no json" }];
    expect(collectBodyFields(lines).map(({ spelling, lines: count }) => [spelling, count])).toEqual([
      ["b.c", 2],
      ["a", 1],
    ]);
    expect(collectBodyFields([{ json: '{"source":"x"}' }])[0]?.spelling).toBe("\\source");
  });
});

describe("saved searches", () => {
  const createStorage = (kept?: string) => {
    const items = new Map(kept === undefined ? [] : [["readout.queries", kept]]);
    return {
      getItem: (name: string) => items.get(name) ?? null,
      setItem: (name: string, value: string) => void items.set(name, value),
      removeItem: (name: string) => void items.delete(name),
    };
  };

  test("are kept by name until they are taken away", () => {
    const storage = createStorage();
    writeSaved(storage, { name: "b", address: "#/logs?query=b" });
    writeSaved(storage, { name: "a", address: "#/logs?query=a" });
    writeSaved(storage, { name: "b", address: "#/logs?query=c" });
    expect(readSaved(storage)).toEqual([
      { name: "a", address: "#/logs?query=a" },
      { name: "b", address: "#/logs?query=c" },
    ]);
    writeSaved(storage, { name: "a", address: "" });
    writeSaved(storage, { name: "b", address: "" });
    expect(storage.getItem("readout.queries")).toBeNull();
  });

  test("say so where the browser keeps nothing", () => {
    const full = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
    const storage = { ...createStorage(), setItem: full };
    expect(writeSaved(storage, { name: "a", address: "#/logs" })).toMatch(/does not keep it/);
    // Node has no storage of a page, as a browser that blocks it.
    vi.stubGlobal("localStorage", undefined);
    expect(browserStorage.getItem("readout.queries")).toBeNull();
    expect(() => keepChoice("readout.zone", "local")).not.toThrow();
    vi.unstubAllGlobals();
  });

  test("are as many as are kept, and none is lost for another one", () => {
    const storage = createStorage();
    for (let at = 0; at < 100; at += 1)
      expect(writeSaved(storage, { name: `n${at}`, address: "#/logs" })).toBe("");
    const all = readSaved(storage);
    expect(writeSaved(storage, { name: "a", address: "#/logs?query=a" })).toMatch(/^No more than 100/);
    expect(writeSaved(storage, { name: "", address: "#/logs?query=a" })).toMatch(/needs a name/);
    expect(readSaved(storage)).toEqual(all);
    expect(writeSaved(storage, { name: "n5", address: "#/logs?query=b" })).toBe("");
    expect(readSaved(storage)).toHaveLength(100);
  });

  test.each(["nonsense", "{}", '[1,null,{"name":"x"}]', '[{"name":"x","address":"javascript:alert(1)"}]'])(
    "are none in %s",
    (kept) => {
      expect(readSaved(createStorage(kept))).toEqual([]);
    },
  );
});

test("copied lines are one row each", () => {
  const line = { timestamp: "t", severity: "info", source_id: "app", message: "a\nb\tc" };
  const rows = printLines([line, line] as unknown as Parameters<typeof printLines>[0]).split("\n");
  expect(rows).toEqual(["t\tinfo\tapp\ta\\nb\\tc", "t\tinfo\tapp\ta\\nb\\tc"]);
});
