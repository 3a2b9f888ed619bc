// Logs of several backends: pages, parts of milliseconds, exports, explanations and refusals are those of one store that
// holds all lines; and what happens where one of the backends fails.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { BackendError } from "#src/core/errors.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { createFederatedLogs } from "#src/federation/federated-logs.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery, LogStore } from "#src/store/logs.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { createContext, readExport, readPages } from "./paging.ts";
import { base, buildSource, type SplitLine, splitLogs } from "./split-logs.ts";

const at = (nanos: number) => (fromMillis(base) + BigInt(nanos)) as Instant;

/** Bursts within milliseconds of one or two sources, each line in a random store. */
const corpora = (count: number) =>
  fc
    .array(
      fc.record({
        milli: fc.nat(10),
        nanos: fc.constantFrom(0, 0, 1, 999_999),
        source: fc.constantFrom("app", "app", "nginx"),
        store: fc.nat(count - 1),
        red: fc.boolean(),
      }),
      { maxLength: 60 },
    )
    .map((all) =>
      all.map(
        ({ milli, nanos, source, store, red }, n): SplitLine => ({
          source,
          stores: [store],
          line: {
            id: `l${(n * 7) % 60}`,
            time: at(milli * 1_000_000 + nanos),
            severity: "info",
            message: red ? "red" : "blue",
            json: `{"n":${n}}`,
          },
        }),
      ),
    );

const queries = fc.record({
  perPage: fc.integer({ min: 1, max: 30 }),
  order: fc.constantFrom("ASC", "DESC"),
  query: fc.constantFrom("", "message=red"),
});

describe("a corpus split over several stores", () => {
  test.each([2, 3])("over %i: every paging history and export is that of one store", async (count) => {
    const law = fc.asyncProperty(
      corpora(count),
      queries,
      fc.integer({ min: 1, max: 9 }),
      async (corpus, asked, cap) => {
        const { whole, split } = splitLogs(corpus, count);
        const [one, several] = [createContext(whole, cap), createContext(split, cap)];
        expect(await readPages(several, asked)).toEqual(await readPages(one, asked));
        expect(await readExport(several, asked)).toEqual(await readExport(one, asked));
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(300) });
  });

  test("with copies and `dedupe: id`: the same, and each line once", async () => {
    const law = fc.asyncProperty(
      corpora(3),
      fc.array(fc.subarray([0, 1, 2], { minLength: 1 }), { minLength: 60, maxLength: 60 }),
      queries,
      fc.integer({ min: 1, max: 9 }),
      async (corpus, holders, asked, cap) => {
        const copied = corpus.map((one, n): SplitLine => {
          const [first = 0, ...rest] = holders[n] ?? [0];
          // Two lines of one id would be copies of each other.
          return { ...one, stores: [first, ...rest], line: { ...one.line, id: `l${n}` } };
        });
        const { whole, split } = splitLogs(copied, 3, { dedupe: "id" });
        expect(await readPages(createContext(split, cap), asked)).toEqual(
          await readPages(createContext(whole, cap), asked),
        );
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(300) });
  });

  test("without `dedupe` a copy is a line of its own, with its backend in its id", async () => {
    const line = { id: "x", time: at(0), severity: "info", json: "{}" } as const;
    const { split } = splitLogs([{ source: "app", stores: [0, 1, 2], line }], 3);
    expect(await listIds(split, {})).toEqual(["eu|x", "new|x", "x"]);
  });

  test("of copies the one of the first backend is kept, whatever their times within a millisecond", async () => {
    const sources = new Map([
      ["app", { dedupe: "id" as const, places: [placeOf("old", 5), placeOf("new", 2)] }],
    ]);
    for (const order of ["asc", "desc"] as const) {
      const found = [];
      for await (const batch of createFederatedLogs(sources).lines(buildQuery({ order }), never()))
        found.push(...batch);
      expect(found.map(({ message }) => message)).toEqual(["old"]);
    }
    function placeOf(backend: string, nanos: number) {
      const store = createMemoryLogs();
      store.add("app", [{ id: "x", time: at(nanos), severity: "info", message: backend, json: "{}" }]);
      return { backend, store, source: buildSource("app") };
    }
  });
});

test.each([
  [undefined, 0.25],
  ["id", 0.5],
] as const)("with `dedupe: %s` each place is told its probable part of a page", async (dedupe, share) => {
  const shares: unknown[] = [];
  const placeOf = (backend: string, id: string) => {
    const store = createMemoryLogs();
    const lines: LogStore["lines"] = (query, signal) => {
      shares.push(query.expectedShare);
      return store.lines(query, signal);
    };
    return { backend, store: { ...store, lines }, source: buildSource(id) };
  };
  const sources = new Map(
    ["app", "nginx"].map((id) => [id, { dedupe, places: [placeOf("old", id), placeOf("new", id)] }]),
  );
  const query = buildQuery({ sources: [buildSource("app"), buildSource("nginx")] });
  for await (const batch of createFederatedLogs(sources).lines(query, never())) expect(batch).toEqual([]);
  expect(shares).toEqual([share, share, share, share]);
});

describe("limits are on what all backends read together", () => {
  const corpus = Array.from(
    { length: 100 },
    (_, n): SplitLine => ({
      source: "app",
      stores: [n % 2],
      line: { id: `l${n}`, time: at(n * 1_000_000), severity: "info", json: "{}" },
    }),
  );
  const { split } = splitLogs(corpus, 2);

  test("documents", async () => {
    expect(await listIds(split, { documentLimit: 100 })).toHaveLength(100);
    await expect(listIds(split, { documentLimit: 99 })).rejects.toThrow("More than 99 documents");
    expect(await split.isWithinLimits?.(buildQuery({ documentLimit: 100 }), never())).toBe(true);
    expect(await split.isWithinLimits?.(buildQuery({ documentLimit: 99 }), never())).toBe(false);
    const counted = { documents: 0 };
    await split.isWithinLimits?.(buildQuery({ documentLimit: 99, budget: counted }), never());
    expect(counted.documents).toBe(100);
  });

  test("lines of one millisecond", async () => {
    const crowd = corpus.map((one) => ({ ...one, line: { ...one.line, time: at(0) } }));
    const { split } = splitLogs(crowd, 2);
    expect(await listIds(split, { tieLimit: 100 })).toHaveLength(100);
    await expect(listIds(split, { tieLimit: 99 })).rejects.toThrow("One millisecond holds more lines");
  });
});

describe("a backend that fails", () => {
  const corpus = Array.from(
    { length: 3_000 },
    (_, n): SplitLine => ({
      source: "app",
      stores: [n % 2],
      line: { id: `l${n}`, time: at((n >> 1) * 1_000_000), severity: "info", json: "{}" },
    }),
  );
  const down = new BackendError("new", "unreachable", "down");

  test.each([0, 1, 2])(
    "after %i batches fails the answer; the others are given up at once",
    async (after) => {
      let stopped: unknown;
      const change = (store: LogStore, at: number): LogStore => ({
        async *lines(query, signal) {
          let batches = 0;
          // It may be given up while it waits for its turn to read.
          const left = new Promise<void>((resolve) =>
            signal.addEventListener("abort", () => resolve(), { once: true }),
          );
          if (at === 0) void left.then(() => (stopped = signal.reason));
          for await (const batch of store.lines(query, signal)) {
            if (at === 1 && batches === after) throw down;
            if (at === 0 && batches === after) {
              await left;
              throw signal.reason;
            }
            yield batch;
            batches += 1;
          }
        },
      });
      const { split } = splitLogs(corpus, 2, { change });
      await expect(listIds(split, {})).rejects.toBe(down);
      expect(stopped).toBe(down);
    },
  );

  test("fails a count, and the others are given up", async () => {
    let stopped: unknown;
    const change = (store: LogStore, at: number): LogStore => ({
      ...store,
      count: (_, signal) =>
        at === 1
          ? Promise.reject(down)
          : new Promise(() =>
              signal.addEventListener("abort", () => (stopped = signal.reason), { once: true }),
            ),
    });
    const { split } = splitLogs(corpus, 2, { change });
    const range = { from: at(0), to: at(1) };
    const query = { source: buildSource("app"), range, filter: parse(""), step: 1_000 };
    await expect(split.count?.(query, new AbortController().signal)).rejects.toBe(down);
    expect(stopped).toBe(down);
  });

  test("fails nothing that does not read from it", async () => {
    const app = createMemoryLogs();
    app.add("app", [{ id: "x", time: at(0), severity: "info", json: "{}" }]);
    const broken: LogStore = {
      // biome-ignore lint/correctness/useYield: it fails before its first batch
      async *lines() {
        throw down;
      },
    };
    const store = createFederatedLogs(
      new Map([
        ["app", { places: [{ backend: "old", store: app, source: buildSource("app") }] }],
        ["nginx", { places: [{ backend: "new", store: broken, source: buildSource("nginx") }] }],
      ]),
    );
    expect(await listIds(store, {})).toEqual(["x"]);
    await expect(listIds(store, { sources: [buildSource("app"), buildSource("nginx")] })).rejects.toBe(down);
  });

  test("fails the check of the limits as well", async () => {
    const change = (store: LogStore, at: number): LogStore => ({
      lines: store.lines,
      isWithinLimits: async () => {
        if (at === 1) throw down;
        return true;
      },
    });
    const { split } = splitLogs(corpus, 2, { change });
    await expect(split.isWithinLimits?.(buildQuery({}), never())).rejects.toBe(down);
  });
});

test("an explanation has a plan for each backend of a source", async () => {
  const { split } = splitLogs([{ source: "app", stores: [0], line: { ...lineOf("x") } }], 2, {
    dedupe: "id",
  });
  const plans = await split.explain?.(buildQuery({}), never());
  expect(plans?.map(({ backend, source, notes }) => [backend, source.id, notes.length])).toEqual([
    ["old", "app", 1],
    ["new", "app", 2],
  ]);
});

function lineOf(id: string) {
  return { id, time: at(0), severity: "info", json: "{}" } as const;
}

function never(): AbortSignal {
  return new AbortController().signal;
}

function buildQuery(over: Partial<LogQuery>): LogQuery {
  return {
    sources: [buildSource("app")],
    range: { from: at(0), to: at(1e12) },
    filter: parse(""),
    order: "asc",
    expectedLines: 10_000,
    documentLimit: 100_000,
    tieLimit: 100_000,
    ...over,
  };
}

async function listIds(store: LogStore, over: Partial<LogQuery>): Promise<string[]> {
  const ids: string[] = [];
  for await (const batch of store.lines(buildQuery(over), never())) ids.push(...batch.map(({ id }) => id));
  return ids;
}
