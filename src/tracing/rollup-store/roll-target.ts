// What a roller makes: the figures of one group, whatever their kind.
import { isNonEmpty, type NonEmpty } from "../../core/collections.ts";
import type { Instant, Millis, TimeRange } from "../../core/time.ts";
import type { RollupStore } from "../../store/rollups.ts";
import type { Budget, SpanReader, SpanSelection, SpanSource, SpanSources } from "../../store/spans.ts";
import { nameGroup, type RollupQuery, type StoredKind } from "../rollups/figures-kind.ts";
import type { GroupName, StoredSegment } from "../rollups/stored-cover.ts";
import { loadSegments } from "./catalogue.ts";
import { hashGroup } from "./manifest.ts";

export interface RollTarget {
  /** For people: where the spans lie. */
  readonly backend: string;
  readonly kind: string;
  readonly name: GroupName;
  /** Of the group in the ids of documents. */
  readonly group: string;
  readonly reader: SpanReader;
  readonly sources: SpanSources;
  readonly select: SpanSelection;
  readonly isLocal: boolean;
  readonly retention: Millis;
  /** The figures of a segment, as a value of JSON. Errors as `SpanReader.scan`. */
  readonly make: (
    reader: SpanReader,
    range: TimeRange,
    budget: Budget,
    signal: AbortSignal,
  ) => Promise<unknown>;
  /** The same of segments that are there already; those that are not there any more are named instead. */
  readonly merge: (
    store: RollupStore,
    segments: readonly StoredSegment[],
    signal: AbortSignal,
  ) => Promise<MergedFigures>;
}

interface MergedFigures {
  /** A value of JSON; without a meaning where segments are missing. */
  readonly figures: unknown;
  readonly missing: readonly StoredSegment[];
}

/** The target of a kind. `buildQuery` returns the query whose figures are made, of a range. */
export function createRollTarget<Query extends RollupQuery, Figures>(
  kind: StoredKind<Query, Figures>,
  { backend, reader, retention }: Pick<RollTarget, "backend" | "reader" | "retention">,
  buildQuery: (range: TimeRange, budget: Budget) => Query,
): RollTarget {
  const { codec, select, isLocal } = kind;
  const anyQuery = buildQuery(emptyRange, noBudget);
  const name = nameGroup(kind, anyQuery);
  const group = hashGroup(name);
  async function* loadInParts(store: RollupStore, segments: readonly StoredSegment[], signal: AbortSignal) {
    for (let first = 0; first < segments.length; first += segmentsPerMerge) {
      const part = segments.slice(first, first + segmentsPerMerge);
      const loaded = await loadSegments(store, group, part, codec.decode, signal);
      yield { figures: [...loaded.values()], missing: part.filter((segment) => !loaded.has(segment)) };
    }
  }
  return {
    backend,
    kind: kind.name,
    name,
    group,
    reader,
    sources: kind.listSources(anyQuery),
    select,
    isLocal,
    retention,
    make: async (own, range, budget, signal) => {
      const all = await kind.read(own, buildQuery(range, budget), [range], signal);
      return codec.encode(await codec.merge(all));
    },
    merge: async (store, segments, signal) => {
      const missing: StoredSegment[] = [];
      let sum = await codec.merge([]);
      // Not all at once: their figures take many times the memory of their sum.
      for await (const part of loadInParts(store, segments, signal)) {
        missing.push(...part.missing);
        sum = await codec.merge([sum, ...part.figures]);
      }
      return { figures: await codec.encode(sum), missing };
    },
  };
}

/** Groups targets so that one reading is enough for each group: its first one has all sources that the others have. */
export function groupTargets(targets: readonly RollTarget[]): readonly NonEmpty<RollTarget>[] {
  const groups: [RollTarget, ...RollTarget[]][] = [];
  for (const target of targets.toSorted((a, b) => b.sources.length - a.sources.length)) {
    const group = groups.find(([widest]) => widest.reader === target.reader && hasSources(widest, target));
    if (group === undefined) groups.push([target]);
    else group.push(target);
  }
  return groups;
}

/** The same with groups of equal sources only. */
export function splitTargets(targets: readonly RollTarget[]): readonly NonEmpty<RollTarget>[] {
  const groups = Map.groupBy(targets, ({ sources }) => JSON.stringify(sources.map(formatSource).sort()));
  return [...groups.values()].filter((own) => isNonEmpty(own));
}

function hasSources(widest: RollTarget, { sources }: RollTarget): boolean {
  const held = new Set(widest.sources.map(formatSource));
  return sources.every((source) => held.has(formatSource(source)));
}

function formatSource(source: SpanSource): string {
  return JSON.stringify(source);
}

/** Few enough to hold all of their figures in memory. */
const segmentsPerMerge = 6;

/** What a group's figures depend on besides the range is the same for every range. */
const emptyRange: TimeRange = { from: 0n as Instant, to: 0n as Instant };
const noBudget: Budget = { limit: 0, spend: () => undefined };
