// The exactness law on fixed seeds; `SEED=7 ROUNDS=50` runs others.
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { findDifference, listSubjects, query, read } from "../../exactness/law.ts";
import { type Cluster, openCluster } from "../../support/elastic/test-index.ts";
import { onServers } from "../selected-servers.ts";

const rounds = Number(process.env.ROUNDS ?? 4);
const each = 150;

onServers((server) => {
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = openCluster(server.url);
    await cluster.remove("exact-*");
  });
  afterAll(async () => {
    await cluster.remove("exact-*");
    await cluster.close();
  });

  // The layouts beside `ecs` differ little, so one round of each is enough here. `test:exact` is the long run.
  const subjects = listSubjects(server).map((subject) => ({
    ...subject,
    own: subject.name === "ecs" ? rounds : Math.ceil(rounds / 4),
  }));
  test.each(subjects)(
    "finds exactly the lines that `matches` keeps of a full scan: $name",
    { timeout: 900_000 },
    async ({ name, layout, documents, own }) => {
      const seed = Number(process.env.SEED ?? 20_240_115);
      const corpora = fc.sample(documents, { seed, numRuns: own });
      const queries = fc.sample(query, { seed, numRuns: own * each });
      for (const [round, load] of corpora.entries()) {
        // New names: the store may remember a mapping by the old ones.
        const prefix = `exact-${name}-${round}`;
        const written = await load(cluster, prefix);
        const everything = await read(cluster, layout, prefix, "");
        expect(everything).toHaveLength(written);
        const own = queries.slice(round * each, (round + 1) * each);
        // A law of queries that find nothing would hold as well.
        const finding = own.filter((text) => everything.some((line) => matches(parse(text), line)));
        expect(finding).not.toEqual([]);
        for (const text of own) {
          // Compact, since a whole corpus in the text of a failure would hide the difference.
          expect(await findDifference(cluster, layout, prefix, everything, text)).toBeUndefined();
        }
        await cluster.remove(`${prefix}-*`);
      }
    },
  );
});
