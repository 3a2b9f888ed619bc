// What a roller makes figures of for a site: requests, slow events with their actions, and edges of the site and of its
// actions. Edges are made for each set of partners that somebody may see.
import type { Millis, TimeRange } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSource } from "../../store/spans.ts";
import { createRollTarget, type RollTarget } from "../rollup-store/roll-target.ts";
import { requestRollups } from "./action-rollups.ts";
import { edgesByActionRollups, siteEdgeRollups } from "./edge-rollups.ts";
import { actionsByEventRollups, slowEventRollups } from "./event-rollups.ts";

/** What the figures of a site are made of. */
export interface RolledSource {
  /** For people: where the spans lie. */
  readonly backend: string;
  readonly reader: SpanReader;
  readonly source: SpanSource;
  /** As long as figures are kept. */
  readonly retention: Millis;
}

/** Targets of the site alone. */
export function createSiteTargets(rolled: RolledSource): readonly RollTarget[] {
  const sources = [rolled.source] as const;
  const buildOwnQuery = (range: TimeRange, budget: Budget) => ({ sources, range, budget });
  return [
    createRollTarget(requestRollups, rolled, buildOwnQuery),
    createRollTarget(slowEventRollups, rolled, (range, budget) => ({
      sources,
      range,
      budget,
      kind: undefined,
      requiredAttributes: [],
      excludedAttributes: [],
      limit: 1,
    })),
    ...actionsByEventRollups.map((kind) => createRollTarget(kind, rolled, buildOwnQuery)),
  ];
}

/** Targets of calls between the site and `partners`, which are in the order that requests use. */
export function createPartnerTargets(
  rolled: RolledSource,
  partners: readonly SpanSource[],
): readonly RollTarget[] {
  const sources = [rolled.source] as const;
  const buildQuery = (range: TimeRange, budget: Budget) => ({ sources, partners, range, budget });
  return [
    createRollTarget(siteEdgeRollups, rolled, buildQuery),
    createRollTarget(edgesByActionRollups, rolled, buildQuery),
  ];
}
