// The analytics that rollups answer, and everything else by its definition.
import { Refused } from "../../core/errors.ts";
import type { SpanAnalytics } from "../../store/span-analytics.ts";
import type { SpanReader } from "../../store/spans.ts";
import { createSpanAnalytics } from "../analytics.ts";
import { recordChoice } from "../rollups/choice.ts";
import type { AnalysisKind, RollupQuery } from "../rollups/figures-kind.ts";
import type { RollupCache } from "../rollups/rollup-cache.ts";
import { answerFromRollups } from "../rollups/rollups.ts";
import { actionRollups, revisionRollups, revisionsRollups } from "./action-rollups.ts";
import { actionEdgeRollups, siteEdgeRollups } from "./edge-rollups.ts";
import { slowEventActionRollups, slowEventRollups } from "./event-rollups.ts";

/** The analytics over a reader, with figures of its segments kept in `cache`. */
export function createRollupAnalytics(reader: SpanReader, cache: RollupCache): SpanAnalytics {
  const definition = createSpanAnalytics(reader);
  return {
    ...definition,
    actions: (query, signal) =>
      answer({ reader, cache, kind: actionRollups, define: definition.actions }, query, signal),
    revisionStats: (query, signal) =>
      answer({ reader, cache, kind: revisionRollups, define: definition.revisionStats }, query, signal),
    statsOfRevisions: (query, signal) =>
      answer({ reader, cache, kind: revisionsRollups, define: definition.statsOfRevisions }, query, signal),
    siteEdges: (query, signal) =>
      answer({ reader, cache, kind: siteEdgeRollups, define: definition.siteEdges }, query, signal),
    actionEdges: (query, signal) =>
      answer({ reader, cache, kind: actionEdgeRollups, define: definition.actionEdges }, query, signal),
    slowEventActions: (query, signal) =>
      answer(
        { reader, cache, kind: slowEventActionRollups, define: definition.slowEventActions },
        query,
        signal,
      ),
    slowEvents: async (query, signal) => {
      if (query.requiredAttributes.length > 0 || query.excludedAttributes.length > 0) {
        const named = { backend: cache.backend, of: slowEventRollups.name };
        recordChoice(named, "read", "attributes are asked of each span");
        return definition.slowEvents(query, signal);
      }
      return answer({ reader, cache, kind: slowEventRollups, define: definition.slowEvents }, query, signal);
    },
  };
}

interface Ways<Query extends RollupQuery, Figures, Answer> {
  readonly reader: SpanReader;
  readonly cache: RollupCache;
  readonly kind: AnalysisKind<Query, Figures, Answer>;
  /** The definition, which reads the whole range. */
  readonly define: (query: Query, signal: AbortSignal) => Promise<Answer>;
}

async function answer<Query extends RollupQuery, Figures, Answer>(
  { reader, cache, kind, define }: Ways<Query, Figures, Answer>,
  query: Query,
  signal: AbortSignal,
): Promise<Answer> {
  const found = await answerFromRollups(cache, kind, reader, query, signal);
  if ("answer" in found) return found.answer;
  try {
    return await define(query, signal);
  } catch (error) {
    const isTooLarge = error instanceof Refused && error.slug === "result_too_large";
    if (!isTooLarge || cache.stored === undefined) throw error;
    const group = kind.stored.chooseGroup(query);
    const explain = () => cache.stored?.explainMissing(group, query.range, signal);
    throw found.refusal ?? (await explain()) ?? error;
  }
}
