// The clock of a cluster.
import { z } from "zod";
import { fromMillis, type Instant } from "../../src/core/time.ts";
import type { ElasticClient } from "./client/client.ts";
import { requestUnlessRefused } from "./search/index-listing.ts";

const statsSchema = z.object({ nodes: z.record(z.string(), z.object({ timestamp: z.int() })) });

/** The time of the node that answers; undefined where the user may not read it. @throws {BackendError} */
export async function readClock(client: ElasticClient, signal: AbortSignal): Promise<Instant | undefined> {
  const query = { filter_path: "nodes.*.timestamp" };
  const stats = await requestUnlessRefused(client, "/_nodes/_local/stats/os", query, signal);
  const [node] = Object.values(statsSchema.safeParse(stats).data?.nodes ?? {});
  return node && fromMillis(node.timestamp);
}
