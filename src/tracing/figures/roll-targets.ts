// The groups of figures that a roller makes for a site: its requests, its slow events with their actions, and its edges and those
// of its actions for each set of partners that somebody may see.
import type { Millis, TimeRange } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSource } from "../../store/spans.ts";
import { createRollTarget, type RollTarget } from "../rollup-store/roll-target.ts";
import { requestRollups } from "./action-rollups.ts";
import { edgesByActionRollups, siteEdgeRollups } from "./edge-rollups.ts";
import { actionsByEventRollups, slowEventRollups } from "./event-rollups.ts";

export interface RolledSite {
  readonly source: SpanSource;
  /** As long as figures are kept. */
  readonly retention: Millis;
  /** Each set of partners, in the order in which requests name them. */
  readonly views: readonly (readonly SpanSource[])[];
}

export function createRollTargets(
  reader: SpanReader,
  { source, retention, views }: RolledSite,
): readonly RollTarget[] {
  const sources = [source] as const;
  const events = createRollTarget(slowEventRollups, reader, retention, (range, budget) => ({
    ...{ sources, range, budget },
    ...{ kind: undefined, requiredAttributes: [], excludedAttributes: [], limit: 1 },
  }));
  const buildOwnQuery = (range: TimeRange, budget: Budget) => ({ sources, range, budget });
  const eventActions = actionsByEventRollups.map((kind) =>
    createRollTarget(kind, reader, retention, buildOwnQuery),
  );
  const requests = createRollTarget(requestRollups, reader, retention, buildOwnQuery);
  const edges = views.flatMap((partners) => {
    const buildQuery = (range: TimeRange, budget: Budget) => ({ sources, partners, range, budget });
    return [
      createRollTarget(siteEdgeRollups, reader, retention, buildQuery),
      createRollTarget(edgesByActionRollups, reader, retention, buildQuery),
    ];
  });
  const groups = new Map(
    [requests, events, ...eventActions, ...edges].map((target) => [target.group, target]),
  );
  return [...groups.values()];
}
