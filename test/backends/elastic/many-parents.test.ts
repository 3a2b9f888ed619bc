// More parents with an N+1 than a server lists at once, on real servers: they are listed in parts, none is left out, and none
// that has too few queries is added.
import { expect, test } from "vitest";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { onServers } from "../selected-servers.ts";
import { at, chooseShipper, id, make, never, useSpanCluster } from "./span-cluster.ts";

/** A list has 60,000 of them at most. */
const parents = 61_000;

onServers((server) => {
  const { shipper } = chooseShipper(server);
  const store = useSpanCluster(server.url, "parents");

  /** Query `n` of a parent; no two parents run the same statement. */
  const query = (parent: number, n: number) =>
    make({
      id: id(0x1000000 + 8 * parent + n),
      parent: id(parent),
      name: "query",
      kind: "client",
      start: at(parent % 1_000),
      end: at((parent % 1_000) + 1),
      attributes: { "db.system": "postgresql", "db.statement": `SELECT * FROM t${parent} WHERE id = ${n}` },
    });

  test("lists all parents, however many they are", async () => {
    await store.empty(shipper);
    const all = Array.from({ length: parents }, (_, n) => n + 1);
    for (let first = 0; first < parents; first += 10_000) {
      const part = all.slice(first, first + 10_000);
      // Every thousandth has one query too few.
      const models = part.flatMap((parent) =>
        Array.from({ length: parent % 1_000 === 0 ? 4 : 5 }, (_, n) => query(parent, n)),
      );
      await store.write(shipper, models);
    }
    const sources = [store.source(shipper)] as const;
    const budget = createBudget(1_000_000);
    const found = await store.cluster.traces.findNPlusOneParents?.({ sources, least: 5, budget }, never);
    const wanted = all.filter((parent) => parent % 1_000 !== 0).map(id);
    expect([...(found ?? [])].sort()).toEqual(wanted);
  }, 240_000);
});
