import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import type { Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, type Instant, printNanos } from "#src/core/time.ts";
import { lines } from "#src/operations/logs/lines.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import { sampleRuns } from "../support/law-runs.ts";

const base = Date.UTC(2026, 0, 15, 10);
const { limits } = defaults;

interface Row {
  readonly id: string;
  readonly timestamp: string;
}

/** Nanoseconds after `base`, one for each line. */
function serve(offsets: readonly number[], cap: number) {
  const store = createMemoryLogs();
  const written = offsets.map((offset, n) => ({
    id: `l${n}`,
    time: (fromMillis(base) + BigInt(offset)) as Instant,
    severity: "info" as const,
    json: "{}",
  }));
  store.add("app", written);
  const site: Site = {
    id: "shop",
    retention: 86_400_000,
    counterDefault: "cumulative",
    logs: {
      backend: "memory",
      store,
      sources: new Map([["app", { id: "app", index: "app", layout: "auto", tenantFilter: undefined }]]),
    },
  };
  const context: Context = {
    user: "ana",
    sites: new Map([["shop", site]]),
    limits: { ...limits, linesPerMillisecond: cap },
    now: () => fromMillis(base + 3_600_000),
    signal: new AbortController().signal,
  };
  async function page(per_page: number, order: string, time: string | null, more = {}): Promise<Row[]> {
    const pagination = { per_page, order, cursor: { time } };
    const request = lines.request.parse({
      site_id: "shop",
      source_ids: ["app"],
      query: "",
      pagination,
      ...more,
    });
    const rows: Row[] = [];
    const answer = lines.run(request, context);
    if (!(Symbol.asyncIterator in answer)) throw new Error("rows expected");
    for await (const { count, text } of answer) {
      const parsed = JSON.parse(`[${text}]`);
      expect(parsed).toHaveLength(count);
      rows.push(...parsed);
    }
    return rows;
  }
  async function pages(
    per_page: number,
    order: string,
    rewrite = (cursor: string) => cursor,
  ): Promise<Row[][]> {
    const all: Row[][] = [];
    let cursor: string | null = null;
    for (;;) {
      const rows = await page(per_page, order, cursor);
      if (rows.length > 0) all.push(rows);
      if (all.length > offsets.length) throw new Error("more pages than lines");
      const last = rows.at(-1);
      // Clients stop at the first short page.
      if (rows.length < per_page || last === undefined) return all;
      cursor = rewrite(last.timestamp);
    }
  }
  const scan = (order: string): string[] => {
    const sign = order === "ASC" ? 1 : -1;
    const sorted = written.toSorted((a, b) =>
      a.time === b.time ? sign * (a.id < b.id ? -1 : 1) : sign * (a.time < b.time ? -1 : 1),
    );
    return sorted.map(({ id }) => id);
  };
  return { page, pages, scan };
}

const ids = (rows: readonly Row[]): string[] => rows.map(({ id }) => id);
/** `count` lines in millisecond `at`, spread over its nanoseconds. */
const burst = (at: number, count: number): number[] =>
  Array.from({ length: count }, (_, n) => at * 1_000_000 + ((n * 7_919) % 1_000_000));

const bursts = fc
  .array(fc.tuple(fc.nat(12), fc.integer({ min: 1, max: 12 })), { maxLength: 8 })
  .map((all) => all.flatMap(([at, count]) => burst(at, count)));
const orders = fc.constantFrom("ASC", "DESC", "desc");

describe("log pages: concatenated pages equal the full scan", () => {
  test("for any page size, order, burst and cap", async () => {
    const law = fc.asyncProperty(
      bursts,
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 9 }),
      orders,
      async (offsets, perPage, cap, order) => {
        const served = serve(offsets, cap);
        const pages = await served.pages(perPage, order);
        expect(ids(pages.flat())).toEqual(served.scan(order.toUpperCase()));
        const stamps = pages.flat().map(({ timestamp }) => timestamp.padEnd(27, "0").replace("Z", "0"));
        const sorted = stamps.toSorted();
        expect(stamps).toEqual(order === "ASC" ? sorted : sorted.reverse());
        for (const rows of pages.slice(0, -1)) expect(rows.length).toBeGreaterThanOrEqual(perPage);
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(500) });
  });

  test.each([
    ["milliseconds", (cursor: string) => cursor.replace(/(\.\d{3})\d*Z/, "$1Z")],
    ["seconds' decimals without zeros", (cursor: string) => cursor.replace(/\.?0+Z/, "Z")],
    [
      "another zone",
      (cursor: string) => new Date(Date.parse(cursor) + 7_200_000).toISOString().replace("Z", "+02:00"),
    ],
    ["microseconds", (cursor: string) => cursor.replace(/\.(\d{3})Z/, ".$1000Z")],
    ["nanoseconds", (cursor: string) => cursor.replace(/\.(\d{3})Z/, ".$1000000Z")],
    ["nanoseconds, counted up", (cursor: string) => cursor.replace(/\.(\d{3})Z/, ".$1000001Z")],
    ["nanoseconds of the millisecond's end", (cursor: string) => cursor.replace(/\.(\d{3})Z/, ".$1999999Z")],
    ["microseconds of a part", (cursor: string) => cursor.replace(/\.(\d{3})Z/, ".$1001Z")],
  ])("for clients that write the cursor in %s", async (_, rewrite) => {
    const law = fc.asyncProperty(
      bursts,
      fc.integer({ min: 1, max: 9 }),
      orders,
      async (offsets, perPage, order) => {
        const served = serve(offsets, 10_000);
        expect(ids((await served.pages(perPage, order, rewrite)).flat())).toEqual(
          served.scan(order.toUpperCase()),
        );
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(100) });
  });

  test("for cursors of a split millisecond written in microseconds or nanoseconds", async () => {
    const served = serve([...burst(1, 25), ...burst(2, 3)], 4);
    for (const order of ["ASC", "DESC"]) {
      for (const digits of ["$1Z", "$1000Z"]) {
        const pages = await served.pages(3, order, (cursor) => cursor.replace(/(\.\d{6})Z/, digits));
        expect(ids(pages.flat())).toEqual(served.scan(order));
      }
    }
  });
});

describe("log pages: timestamps", () => {
  test("have three fraction digits when no millisecond exceeds the cap", async () => {
    const served = serve([1, 1_500_000, 2_000_000], 10);
    expect((await served.page(10, "ASC", null)).map(({ timestamp }) => timestamp)).toEqual([
      "2026-01-15T10:00:00.000Z",
      "2026-01-15T10:00:00.001Z",
      "2026-01-15T10:00:00.002Z",
    ]);
  });

  test("number the parts of a split millisecond in digits 4 to 6", async () => {
    const served = serve(burst(1, 10), 4);
    const stamps = async (order: string) =>
      (await served.pages(1, order)).map((rows) => `${rows.length} ${rows[0]?.timestamp.slice(20)}`);
    expect(await stamps("ASC")).toEqual(["4 001001Z", "4 001002Z", "2 001999Z"]);
    expect(await stamps("DESC")).toEqual(["4 001998Z", "4 001997Z", "2 001000Z"]);
  });

  test("fill the page after a part that completes its millisecond", async () => {
    const served = serve([...burst(1, 5), ...burst(2, 1), ...burst(3, 1), ...burst(4, 1)], 4);
    const [, second] = await served.pages(3, "ASC");
    expect(second?.map(({ timestamp }) => timestamp.slice(20))).toEqual(["001999Z", "002Z", "003Z"]);
  });
});

describe("log pages: cursors", () => {
  test("exclude their whole millisecond", async () => {
    const served = serve([...burst(1, 3), ...burst(2, 3)], 10);
    expect(await served.page(10, "ASC", "2026-01-15T10:00:00.001Z")).toHaveLength(3);
    expect(await served.page(10, "DESC", "2026-01-15T10:00:00.002Z")).toHaveLength(3);
    expect(await served.page(10, "ASC", "2026-01-15T10:00:00.002Z")).toEqual([]);
    expect(await served.page(10, "DESC", "2026-01-15T10:00:00.001Z")).toEqual([]);
  });

  const fine = (millis: number, nanos: number) =>
    printNanos((fromMillis(base + millis) + BigInt(nanos)) as Instant);

  test("with more than three digits exclude their whole millisecond where it is not split", async () => {
    const served = serve([500_000, 1_000_000, 1_500_000, 1_999_999, 2_000_000], 3);
    for (const nanos of [1, 999, 1_000, 99_999, 500_000, 998_000, 999_000, 999_999]) {
      expect([nanos, ids(await served.page(10, "ASC", fine(1, nanos)))]).toEqual([nanos, ["l4"]]);
      expect([nanos, ids(await served.page(10, "DESC", fine(1, nanos)))]).toEqual([nanos, ["l0"]]);
      const zoned = fine(1, nanos).replace("T10:", "T08:").replace("Z", "-02:00");
      expect(ids(await served.page(10, "DESC", zoned))).toEqual(["l0"]);
    }
  });

  test("with more than three digits name a part only where the lines under the range pass the cap", async () => {
    const served = serve([500_000, ...burst(1, 5), 2_000_000], 4);
    const narrow = { from: fine(1, 0), to: fine(1, 999_998) };
    // Five lines are two parts; digits below the microsecond change nothing.
    for (const rest of [0, 1, 999]) {
      expect((await served.page(9, "ASC", fine(1, 1_000 + rest))).map(({ timestamp }) => timestamp)).toEqual([
        "2026-01-15T10:00:00.001999Z",
        "2026-01-15T10:00:00.002Z",
      ]);
      expect(
        (await served.page(9, "DESC", fine(1, 998_000 + rest))).map(({ timestamp }) => timestamp),
      ).toEqual(["2026-01-15T10:00:00.001000Z", "2026-01-15T10:00:00.000Z"]);
    }
    const four = serve([500_000, ...burst(1, 4), 2_000_000], 4);
    expect(await four.page(9, "ASC", fine(1, 1_000), narrow)).toEqual([]);
    expect(ids(await four.page(9, "ASC", fine(1, 1_000)))).toEqual(["l5"]);
    expect(ids(await four.page(9, "DESC", fine(1, 998_000)))).toEqual(["l0"]);
  });

  test("outside the range keep all of it or nothing", async () => {
    const served = serve([...burst(1, 2), ...burst(5, 2)], 10);
    expect(await served.page(10, "ASC", "2020-01-01T00:00:00Z")).toHaveLength(4);
    expect(await served.page(10, "DESC", "2020-01-01T00:00:00Z")).toEqual([]);
    expect(await served.page(10, "ASC", "2030-01-01T00:00:00.0005Z")).toEqual([]);
  });
});

describe("log pages: ranges", () => {
  const served = serve([0, 999_999, 1_000_000, 1_500_000, 2_000_000], 10);
  const between = async (from: string, to: string) => ids(await served.page(10, "ASC", null, { from, to }));

  test("include the whole millisecond of a bound written to the millisecond; finer bounds are exact", async () => {
    expect(await between("2026-01-15T10:00:00Z", "2026-01-15T10:00:00.001Z")).toEqual([
      "l0",
      "l1",
      "l2",
      "l3",
    ]);
    expect(await between("2026-01-15T10:00:00.0000001Z", "2026-01-15T10:00:00.0010001Z")).toEqual([
      "l1",
      "l2",
    ]);
    expect(await between("2026-01-15T10:00:00Z", "2026-01-15T10:00:00Z")).toEqual(["l0", "l1"]);
  });

  test("default to the retention and now; an earlier explicit `from` is honoured", async () => {
    const day = -86_400_000 * 1_000_000;
    const old = serve([day, 0, 7_200_000 * 1_000_000], 10);
    expect(ids(await old.page(10, "ASC", null))).toEqual(["l1"]);
    expect(ids(await old.page(10, "ASC", null, { from: "2020-01-01T00:00:00Z" }))).toEqual(["l0", "l1"]);
    expect(await old.page(10, "ASC", null, { from: "2030-01-01T00:00:00Z" })).toEqual([]);
  });
});

test("a page refuses a millisecond of more than 100 parts", async () => {
  await expect(serve(burst(1, 200), 2).page(1, "ASC", null)).resolves.toHaveLength(2);
  await expect(serve(burst(1, 201), 2).page(1, "ASC", null)).rejects.toMatchObject({
    slug: "result_too_large",
  });
});

test("a row has the keys of the specification in its order and absent fields as empty strings", async () => {
  const [row] = await serve([0], 10).page(1, "ASC", null);
  expect(JSON.stringify(row)).toBe(
    '{"id":"l0","timestamp":"2026-01-15T10:00:00.000Z","source_id":"app","severity":"info","message":"","hostname":"","group":"","json":"{}","attributes":{}}',
  );
});
