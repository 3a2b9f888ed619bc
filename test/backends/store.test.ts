// The conformance suite of log stores on real servers: one subject for each server and type of time field.
import { printNanos } from "#src/time.ts";
import { type Excuse, logStoreSuite } from "../conformance/logs.ts";
import { openCluster } from "../support/cluster.ts";
import { documentOf, templateOf } from "../support/filebeat.ts";
import { named } from "./named.ts";

const unindexable: Excuse = {
  reason:
    "servers refuse empty keys, dots at the ends of keys, mixed types and numbers beyond long and double",
  failure: /a document was refused/,
};
const milliseconds: Excuse = {
  reason: "a date field holds milliseconds, so lines of one are ordered by their ids",
  failure: /\[ 'a', 'b', 'c' \] to deeply equal \[ 'c', 'b', 'a' \]/,
};

for (const server of named()) {
  for (const time of ["date", "date_nanos"] as const) {
    logStoreSuite({
      name: `${server.name}, ecs with ${time}`,
      excuses: {
        "script unindexable": unindexable,
        ...(time === "date" && { "nanoseconds order lines and bound ranges": milliseconds }),
      },
      start: async () => {
        const cluster = openCluster(server.url);
        const prefix = `store-${time.replace("_", "-")}`;
        await cluster.remove(`${prefix}-*`);
        const source = (id: string, index = id) => ({ id, index: `${prefix}-${index}-*`, profile: "ecs" });
        let seeds = 0;
        return {
          store: {
            ...cluster.store,
            // Ids carry the index, which is another one after each seed.
            async *lines(query, signal) {
              for await (const batch of cluster.store.lines(query, signal)) {
                yield batch.map((line) => ({ ...line, id: line.id.slice(line.id.indexOf("/") + 1) }));
              }
            },
          },
          sources: { app: source("app"), nginx: source("nginx"), twin: source("twin", "app") },
          async seed(name, lines) {
            await cluster.remove(`${prefix}-${name}-*`);
            const index = `${prefix}-${name}-${seeds++}`;
            // One shard takes documents one after another, so that the first decides how a name is mapped.
            await cluster.createIndex(index, templateOf(time, 1));
            const documents = lines.map(({ id, ...line }): [string, string] => [
              id,
              documentOf({
                ...line,
                time: printNanos(line.time),
                severity: line.severity === "unknown" ? undefined : line.severity,
              }),
            ]);
            await cluster.write(index, documents);
          },
          async stop() {
            await cluster.remove(`${prefix}-*`);
            await cluster.close();
          },
        };
      },
    });
  }
}
