// Queries whose answers belong together are sent one after the other, so that the later ones know what the earlier ones show.
import { expect, test } from "vitest";
import { type Expression, number } from "#resolvers/prometheus/client/promql.ts";
import { nodeQueryOrder, podQueryOrder } from "#resolvers/prometheus/kubernetes/queries.ts";
import { type QueryOrder, queryAll } from "#resolvers/prometheus/kubernetes/snapshot-reader.ts";

const names = [
  "infos",
  "infoTimes",
  "endedContainers",
  "flags",
  "reasons",
  "waitingTimes",
  "terminatedTimes",
  "numbers",
  "owners",
  "labels",
  "labelTimes",
  "podInterfaces",
  "restarts",
  "roots",
  "exporters",
  "windows",
  "otel",
];

test.each<[string, QueryOrder]>([
  ["pods", podQueryOrder],
  ["nodes", nodeQueryOrder],
])("of %s", async (_, order) => {
  const events: string[] = [];
  const queries = Object.fromEntries(names.map((name, at) => [name, number(at)]));
  const client = {
    query: async (expression: Expression) => {
      const name = names[Number("value" in expression ? expression.value : Number.NaN)];
      events.push(`${name} sent`);
      await new Promise((resolve) => setTimeout(resolve, 1));
      events.push(`${name} answered`);
      return [];
    },
  };
  const snapshots = { start: 0, step: 60_000, count: 1 };
  const signal = new AbortController().signal;
  const found = await queryAll(client as never, queries, snapshots, signal, order);
  expect(Object.keys(found).sort()).toEqual(names.toSorted());
  for (const [name, earlier] of Object.entries(order))
    for (const one of earlier)
      expect(events.indexOf(`${name} sent`), `${name} after ${one}`).toBeGreaterThan(
        events.indexOf(`${one} answered`),
      );
});
