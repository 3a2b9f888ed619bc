// Documents with several values at their time, as ingest pipelines that append leave them. Each is a line at its least time,
// once, in both orders and in the range where that time lies. The expected lines come from the raw documents.
import { describe, expect, test } from "vitest";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { never } from "../../support/signals.ts";
import { onServers } from "../selected-servers.ts";
import { createSource, listIds, start, useLogCluster } from "./log-cluster.ts";

const one = { number_of_shards: 2, number_of_replicas: 0 };
const nanos = (millis: number, digits = "") =>
  new Date(start + millis).toISOString().replace("Z", `${digits}Z`);

/** Nearly every document has two or three times up to 20 minutes apart, in any order; some share a millisecond. */
const documents = Array.from({ length: 700 }, (_, n) => {
  const first = n % 5 === 0 ? 400_000 : (n * 7_919) % 1_000_000;
  const others = n % 7 === 0 ? [] : [first + ((n * 104_729) % 1_200_000), first + (n % 3) * 1_000];
  return {
    id: `d${String(n).padStart(4, "0")}`,
    times: n % 2 === 0 ? [first, ...others] : [...others, first],
  };
});
/** The ids in order. `indices` is how many indices hold the documents in turn: the order of ids begins with the index. */
function listExpected(indices: number, from = 0, to = Number.MAX_SAFE_INTEGER - start) {
  return documents
    .map(({ id, times }, n) => ({ id, place: `${n % indices}/${id}`, time: start + Math.min(...times) }))
    .filter(({ time }) => time >= start + from && time <= start + to)
    .sort((a, b) => a.time - b.time || (a.place < b.place ? -1 : 1));
}

interface Form {
  readonly name: string;
  readonly types: readonly string[];
  readonly print: (millis: number) => number | string;
}
const forms: readonly Form[] = [
  { name: "date", types: ["date"], print: (millis: number) => nanos(millis) },
  { name: "date_nanos", types: ["date_nanos"], print: (millis: number) => nanos(millis, "000000") },
  { name: "date and date_nanos", types: ["date", "date_nanos"], print: (millis: number) => nanos(millis) },
  { name: "number", types: ["long"], print: (millis: number) => start + millis },
];

onServers((server) => {
  const servers = useLogCluster(server.url, "several-*");
  const { read } = servers;

  describe.each(forms)("times of $name", ({ name, types, print }) => {
    const index = `several-${name.replaceAll(" ", "-").replaceAll("_", "")}`;
    const isNumber = name === "number";
    const field = isNumber ? "time" : "@timestamp";
    const source = createSource(`${index}-*`, { layout: isNumber ? "pino" : "ecs" });
    const expected = listExpected(types.length);
    const idsBetween = (from: number, to: number) => listExpected(types.length, from, to).map(({ id }) => id);
    const range = (from: number, to: number) => ({
      range: { from: fromMillis(start + from), to: (fromMillis(start + to) + 999_999n) as Instant },
    });

    test("are written", async () => {
      for (const [at, type] of types.entries()) {
        await servers.cluster.createIndex(`${index}-${at}`, {
          settings: one,
          mappings: { properties: { [field]: { type } } },
        });
        const own = documents.filter((_, n) => n % types.length === at);
        await servers.cluster.write(
          `${index}-${at}`,
          own.map(({ id, times }) => [
            id,
            JSON.stringify({ [field]: times.map((millis) => print(millis)), msg: id }),
          ]),
        );
      }
    });

    test.each([20, 300, 5_000, 100_000])(
      "are one line each at the least time, in both orders, for %i expected lines",
      async (expectedLines) => {
        const ascending = await read(source, "", { expectedLines });
        expect(listIds(ascending)).toEqual(expected.map(({ id }) => id));
        expect(ascending.map(({ time }) => time)).toEqual(expected.map(({ time }) => fromMillis(time)));
        const descending = await read(source, "", { expectedLines, order: "desc" });
        expect(descending).toEqual(ascending.toReversed());
      },
    );

    test("are in the one range where the least time lies", async () => {
      const edges = [0, 100_000, 399_999, 400_000, 400_001, 700_000, 999_999, 2_500_000];
      for (const order of ["asc", "desc"] as const) {
        for (const [at, from] of edges.slice(0, -1).entries()) {
          const to = (edges[at + 1] ?? from) - 1;
          const found = listIds(await read(source, "", { order, expectedLines: 50, ...range(from, to) }));
          const wanted = idsBetween(from, to);
          expect(found).toEqual(order === "asc" ? wanted : wanted.toReversed());
        }
      }
    });

    test("are counted once against the limit of documents, and found by a filter", async () => {
      const within = range(600_000, 2_500_000);
      const wanted = idsBetween(600_000, 2_500_000);
      expect(await read(source, "", { ...within, documentLimit: wanted.length })).toHaveLength(wanted.length);
      const [last] = wanted.slice(-1);
      expect(listIds(await read(source, `msg=${last}`, within))).toEqual([last]);
      const query = servers.buildQuery(source, "", { ...within, expectedLines: 1_000, tieLimit: 100_000 });
      const fits = await servers.cluster.store.isWithinLimits?.(query, never);
      expect(fits).toBe(true);
    });
  });

  test("below the millisecond are compared by nanoseconds", async () => {
    await servers.cluster.createIndex("several-fine", {
      settings: one,
      mappings: { properties: { "@timestamp": { type: "date_nanos" } } },
    });
    await servers.cluster.write("several-fine", [
      ["a", JSON.stringify({ "@timestamp": [nanos(5, "000900"), nanos(5, "000300")], message: "a" })],
      ["b", JSON.stringify({ "@timestamp": nanos(5, "000500"), message: "b" })],
      ["c", JSON.stringify({ "@timestamp": [nanos(9), nanos(4, "999999")], message: "c" })],
    ]);
    const source = createSource("several-fine");
    const milli = fromMillis(start + 5);
    const ids = async (from: bigint, to: bigint) =>
      listIds(await read(source, "", { range: { from: from as Instant, to: to as Instant } }));
    expect(await ids(milli - 1n, milli + 999_999n)).toEqual(["c", "a", "b"]);
    expect(await ids(milli, milli + 999_999n)).toEqual(["a", "b"]);
    // The least time of `a` is before this range, within its millisecond.
    expect(await ids(milli + 400n, milli + 999_999n)).toEqual(["b"]);
  });
});
