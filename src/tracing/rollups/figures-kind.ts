// What figures are: of which spans, how they are read, added up and kept. An analysis answers requests from figures, which this
// process keeps in memory (`AnalysisKind`). Rollers make figures that an index keeps for all instances (`StoredKind`). Several
// analyses may take theirs from one stored kind: it holds all actions of a site, of which a request asks for one. Where both
// have the same figures, one object is both kinds.
import type { MaybePromise } from "../../core/async/turns.ts";
import { requireFirst } from "../../core/collections.ts";
import type { TimeRange } from "../../core/time.ts";
import type { Budget, SpanReader, SpanSelection, SpanSources } from "../../store/spans.ts";
import type { FiguresCodec, GroupName } from "./stored-cover.ts";

export interface RollupQuery {
  readonly sources: SpanSources;
  readonly range: TimeRange;
  readonly budget: Budget;
}

/** What both kinds have: figures of pieces of time, which can be added up. */
interface FiguresKind<Query extends RollupQuery, Figures> {
  readonly name: string;
  /** What the figures depend on besides the sources and the range. */
  readonly key: (query: Query) => readonly unknown[];
  /** All sources that are read. */
  readonly listSources: (query: Query) => SpanSources;
  /** The spans to which figures belong by their end. */
  readonly select: SpanSelection;
  /** Whether a span affects its own segment only; otherwise its whole trace and the traces that it links to. */
  readonly isLocal: boolean;
  /** The figures of each range; the ranges are the query's range in pieces. */
  readonly read: (
    reader: SpanReader,
    query: Query,
    ranges: readonly TimeRange[],
    signal: AbortSignal,
  ) => Promise<readonly Figures[]>;
}

/** The figures from which an analysis is answered. */
export interface AnalysisKind<Query extends RollupQuery, Figures, Answer>
  extends FiguresKind<Query, Figures> {
  /** Yields to other work where it takes long. */
  readonly combine: (figures: readonly Figures[], query: Query) => MaybePromise<Answer>;
  /** About how many bytes of memory the figures take. */
  readonly measure: (figures: Figures) => number;
  /** Whether a source that can tally adds up most of it itself. Figures then pay off only where little is read. */
  readonly canBeTallied?: boolean;
  /** Spans of all time that the source also searches to add up. */
  readonly extraSearch?: SpanSelection;
  readonly stored: StoredForm<Query, Figures>;
}

/** How an analysis finds its figures among those of a stored kind. */
interface StoredForm<Query, Figures> {
  /** Returns the group of the stored kind that has the query's figures. It may have those of other queries too. */
  readonly chooseGroup: (query: Query) => GroupName;
  /** Takes the query's figures from a value that the group's codec returns; undefined for any other. */
  readonly decode: (value: unknown, query: Query) => MaybePromise<Figures | undefined>;
}

/** Figures that an index can keep. */
export interface StoredKind<Query extends RollupQuery, Figures> extends FiguresKind<Query, Figures> {
  readonly codec: FiguresCodec<Figures>;
}

/** The group of a kind's figures for a query: its key is the text of all that they depend on, besides the range. */
export function nameGroup<Query extends RollupQuery, Figures>(
  kind: FiguresKind<Query, Figures>,
  query: Query,
): GroupName {
  const sources = kind.listSources(query);
  return { site: requireFirst(sources).site, key: JSON.stringify([kind.name, sources, kind.key(query)]) };
}

/** What a request asks of figures. */
export interface RollupTask<Query extends RollupQuery, Figures, Answer> {
  readonly kind: AnalysisKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly reader: SpanReader;
  readonly query: Query;
  /** About how many spans the range has. */
  readonly estimatedSpans: number;
  /** Figures of fewer spans are not kept. */
  readonly minSpans: number;
}
