// POST /api/v2/deploys/stats: the requests of one revision.
import * as z from "zod";
import { NotFound } from "../errors.ts";
import { printMillis, toMillis } from "../time.ts";
import { errorRate, tracesOf } from "./analytics.ts";
import type { Operation } from "./operation.ts";
import { optional, parseRequest, time } from "./request.ts";
import { budgetOf, checkRange, rangeOf } from "./traces.ts";

const body = z
  .object({ site_id: z.string(), revision: z.string(), from: optional(time), to: optional(time) })
  .check(checkRange);

interface Stats {
  readonly revision: string;
  readonly first_seen: string;
  readonly last_seen: string;
  readonly throughput: number;
  readonly mean: number;
  readonly error_rate: number;
  readonly p_90: number;
  readonly p_95: number;
  readonly namespaces: readonly string[];
}

/** A revision without a request in the range is a 404. */
export const deployStats: Operation<z.output<typeof body>, Stats> = {
  name: "deploys.stats",
  method: "POST",
  path: "/api/v2/deploys/stats",
  access: "token",
  parse: (raw) => parseRequest(body, raw),
  sites: (request) => [request.site_id],
  run: async (request, context) => {
    const { revision } = request;
    const { site, traces } = tracesOf(request.site_id, context);
    const range = rangeOf(request, site, context.now());
    if (range.from > range.to) throw new NotFound();
    const query = { sources: [traces.source], range, revision, budget: budgetOf(context) } as const;
    const stats = await traces.store.revisionStats(query, context.signal);
    if (stats === undefined) throw new NotFound();
    const { first_seen, last_seen, count, mean, p_90, p_95, namespaces } = stats;
    return {
      revision,
      first_seen: printMillis(toMillis(first_seen)),
      last_seen: printMillis(toMillis(last_seen)),
      throughput: count,
      mean,
      error_rate: errorRate(stats),
      p_90,
      p_95,
      namespaces,
    };
  },
};
