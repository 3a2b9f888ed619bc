// What figures are: of which spans, how they are read, added up and kept.
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

/** Figures that can be added up over time. */
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

/** An analysis that is answered from figures. */
export interface RollupKind<Query extends RollupQuery, Figures, Answer> extends FiguresKind<Query, Figures> {
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

/** Where the figures of a query are kept outside of this process. */
interface StoredForm<Query, Figures> {
  /** What is kept may answer other queries too. */
  readonly nameGroup: (query: Query) => GroupName;
  /** Takes the query's figures from a value that the group's codec returns; undefined for any other. */
  readonly decode: (value: unknown, query: Query) => MaybePromise<Figures | undefined>;
}

/** Figures that can be kept outside of this process. */
export interface StorableKind<Query extends RollupQuery, Figures> extends FiguresKind<Query, Figures> {
  readonly codec: FiguresCodec<Figures>;
}

/** Which figures answer a query: the text is of all that they depend on, besides the range. */
export function nameGroup<Query extends RollupQuery, Figures>(
  kind: FiguresKind<Query, Figures>,
  query: Query,
): GroupName {
  const sources = kind.listSources(query);
  return { site: requireFirst(sources).site, key: JSON.stringify([kind.name, sources, kind.key(query)]) };
}

/** What a request asks of figures. */
export interface RollupTask<Query extends RollupQuery, Figures, Answer> {
  readonly kind: RollupKind<Query, Figures, Answer>;
  readonly sources: SpanSources;
  readonly reader: SpanReader;
  readonly query: Query;
  /** About how many spans the range has. */
  readonly estimatedSpans: number;
  /** Figures of fewer spans are not kept. */
  readonly minSpans: number;
}
