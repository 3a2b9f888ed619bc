// A store of spans whose documents come, change and go, with snapshots: the smallest that the rollups can be held against. The
// proof of what has changed is the one for search servers.
import type { Span } from "#src/core/rows.ts";
import type { TimeRange } from "#src/core/time.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSource } from "#src/store/spans.ts";
import { compareShards, type ShardStates } from "../../../resolvers/elastic/snapshot/shard-states.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { createFakeShards } from "../../support/elastic/fake-shards.ts";

/** One document, as each site that holds it reads it. */
export type DocumentCopies = readonly [Span, ...Span[]];

interface StoredDocument {
  readonly sequence: number;
  readonly copies: DocumentCopies;
}

export interface StoredSpans {
  readonly reader: SpanReader;
  /** How many spans were read since the start. */
  readonly countRead: () => number;
  readonly add: (copies: DocumentCopies) => void;
  /** Gives the document its number now; it is not seen before `reveal`. */
  readonly addLate: (copies: DocumentCopies) => void;
  readonly reveal: () => void;
  /** Removes the document at this place, counted around the end. */
  readonly remove: (place: number) => void;
  readonly replace: (place: number, change: (span: Span) => Span) => void;
  readonly listSpans: () => readonly Span[];
}

/** Each read of a snapshot waits for `wait`, with the range of a scan. */
export function createStoredSpans(
  wait: (range?: TimeRange) => Promise<void> = async () => undefined,
): StoredSpans {
  let documents: readonly StoredDocument[] = [];
  let late: readonly StoredDocument[] = [];
  let sequence = 0;
  let read = 0;
  const versions = new WeakMap<SnapshotVersion, ShardStates>();
  const open = (held: readonly StoredDocument[]): SpanReader => {
    const reader = createArrayReader(held.flatMap(({ copies }) => copies));
    return {
      scan: (query, signal) => countBatches(reader.scan(query, signal), signal, query.range),
      find: (query, signal) => countBatches(reader.find(query, signal), signal),
      count: async () => held.length,
    };
  };
  async function* countBatches(
    batches: AsyncIterable<readonly Span[]>,
    signal: AbortSignal,
    range?: TimeRange,
  ) {
    await wait(range);
    signal.throwIfAborted();
    for await (const batch of batches) {
      read += batch.length;
      yield batch;
    }
  }
  async function openSnapshot(
    sources: readonly SpanSource[],
    since: SnapshotVersion | undefined,
    signal: AbortSignal,
  ): Promise<SpanSnapshot> {
    const held = documents;
    const { client, point } = createFakeShards(
      held.map((document) => ({ index: "spans", number: document.sequence, term: 1 })),
    );
    const earlier = since && versions.get(since);
    const { states, added: count } = await compareShards("stored", client, point, earlier, signal);
    const version: SnapshotVersion = { bytes: 100 };
    versions.set(version, states);
    const newest = earlier?.get("spans")?.newest ?? 0;
    const added = held.filter((document) => document.sequence > newest);
    const isOfSources = ({ site_id }: Span): boolean => sources.some(({ site }) => site === site_id);
    return {
      reader: open(held),
      version,
      added:
        earlier !== undefined && count !== undefined
          ? {
              documents: count,
              read: async function* () {
                const spans = added.flatMap(({ copies }) => copies).filter(isOfSources);
                if (spans.length > 0) yield spans;
              },
            }
          : undefined,
      close: () => undefined,
    };
  }
  const findPlace = (place: number): number => place % Math.max(documents.length, 1);
  return {
    reader: {
      scan: (query, signal) => open(documents).scan(query, signal),
      find: (query, signal) => open(documents).find(query, signal),
      count: async () => documents.length,
      openSnapshot: openSnapshot,
    },
    countRead: () => read,
    add: (copies) => {
      sequence += 1;
      documents = [...documents, { sequence, copies }];
    },
    addLate: (copies) => {
      sequence += 1;
      late = [...late, { sequence, copies }];
    },
    reveal: () => {
      documents = [...documents, ...late];
      late = [];
    },
    remove: (place) => {
      documents = documents.toSpliced(findPlace(place), documents.length === 0 ? 0 : 1);
    },
    replace: (place, change) => {
      const document = documents[findPlace(place)];
      if (document === undefined) return;
      sequence += 1;
      const [first, ...others] = document.copies;
      const copies: DocumentCopies = [change(first), ...others.map(change)];
      documents = documents.toSpliced(findPlace(place), 1, { sequence, copies });
    },
    listSpans: () => documents.flatMap(({ copies }) => copies),
  };
}
