// POST /api/v2/deploys/stats: the requests of one revision.

import * as z from "zod";
import { NotFound } from "../../core/errors.ts";
import type { RevisionStats } from "../../core/rows.ts";
import { printInstantToMilli } from "../../core/time.ts";
import type { Context, Operation } from "../runtime/operation.ts";
import { checkRange, from, optional, siteId, to } from "../runtime/request-body.ts";
import { computeErrorRate, findTracesPart } from "./analytics.ts";
import { createRequestBudget, resolveRange } from "./read-traces.ts";
import { revisionStats } from "./schema.ts";

const body = z
  .object({
    site_id: siteId,
    revision: z.string().meta({ description: "The deploy, as spans tell it.", examples: ["4f1c2a9"] }),
    from: optional(from).meta({ description: "Range start, inclusive. The default is the retention bound." }),
    to: optional(to).meta({ description: "Range end, inclusive. The default is now." }),
  })
  .check(checkRange)
  .meta({ examples: [{ site_id: "demo-shop", revision: "4f1c2a9" }] });

interface DeployStats {
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
export const deployStats: Operation<z.output<typeof body>, DeployStats> = {
  name: "deploys.stats",
  method: "POST",
  path: "/api/v2/deploys/stats",
  access: "token",
  scope: "deploys",
  summary: "The requests of one revision",
  description: "404 when the revision has no request in the range.",
  request: body,
  answer: revisionStats,
  sites: (request) => [request.site_id],
  run: async (request, context) => {
    const { revision } = request;
    const { site, traces } = findTracesPart(request.site_id, context);
    const range = resolveRange(site, context.now(), request.from?.instant, request.to?.instant);
    if (range.from > range.to) throw new NotFound();
    const query = {
      sources: [traces.source],
      range,
      revision,
      budget: createRequestBudget(context),
    } as const;
    const stats = await traces.store.revisionStats(query, context.signal);
    if (stats === undefined) throw new NotFound();
    return toDeployStats(revision, stats);
  },
};

/** The figures of several revisions over the retention, read together; undefined for one without a request. */
export async function readDeployStats(
  site_id: string,
  revisions: readonly string[],
  context: Context,
): Promise<readonly (DeployStats | undefined)[]> {
  const { site, traces } = findTracesPart(site_id, context);
  const query = {
    sources: [traces.source],
    range: resolveRange(site, context.now()),
    revisions,
    budget: createRequestBudget(context),
  } as const;
  const found = await traces.store.statsOfRevisions(query, context.signal);
  return revisions.map((revision) => {
    const stats = found.get(revision);
    return stats && toDeployStats(revision, stats);
  });
}

function toDeployStats(revision: string, stats: RevisionStats): DeployStats {
  const { first_seen, last_seen, count, mean, p_90, p_95, namespaces } = stats;
  return {
    revision,
    first_seen: printInstantToMilli(first_seen),
    last_seen: printInstantToMilli(last_seen),
    throughput: count,
    mean,
    error_rate: computeErrorRate(stats),
    p_90,
    p_95,
    namespaces,
  };
}
