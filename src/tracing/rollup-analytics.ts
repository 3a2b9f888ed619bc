// The analytics that rollups answer, and everything else by its definition.
import type { SpanAnalytics } from "../store/span-analytics.ts";
import type { SpanReader } from "../store/spans.ts";
import { createSpanAnalytics } from "./analytics.ts";
import { actionEdgeRollups, siteEdgeRollups } from "./edge-rollups.ts";
import { slowEventActionRollups, slowEventRollups } from "./event-rollups.ts";
import { recordChoice } from "./rollups/choice.ts";
import type { RollupCache } from "./rollups/rollup-cache.ts";
import { answerFromRollups } from "./rollups/rollups.ts";

/** The analytics over a reader, with figures of its segments kept in `cache`. */
export function createRollupAnalytics(reader: SpanReader, cache: RollupCache): SpanAnalytics {
  const definition = createSpanAnalytics(reader);
  return {
    ...definition,
    actions: (query, signal) => {
      recordChoice({ backend: cache.backend, of: "actions" }, "read", "figures of actions are not kept");
      return definition.actions(query, signal);
    },
    siteEdges: async (query, signal) =>
      (await answerFromRollups(cache, siteEdgeRollups, reader, query, signal)) ??
      definition.siteEdges(query, signal),
    actionEdges: async (query, signal) =>
      (await answerFromRollups(cache, actionEdgeRollups, reader, query, signal)) ??
      definition.actionEdges(query, signal),
    slowEventActions: async (query, signal) =>
      (await answerFromRollups(cache, slowEventActionRollups, reader, query, signal)) ??
      definition.slowEventActions(query, signal),
    slowEvents: async (query, signal) => {
      const hasAttributeFilter = query.requiredAttributes.length > 0 || query.excludedAttributes.length > 0;
      const answer = hasAttributeFilter
        ? recordChoice(
            { backend: cache.backend, of: slowEventRollups.name },
            "read",
            "attributes are asked of each span",
          )
        : await answerFromRollups(cache, slowEventRollups, reader, query, signal);
      return answer ?? definition.slowEvents(query, signal);
    },
  };
}
