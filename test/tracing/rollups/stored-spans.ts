// A store of spans whose documents come, change and go, with snapshots: the smallest that the rollups can be held against.
import type { Span } from "#src/core/rows.ts";
import type { SnapshotVersion, SpanReader, SpanSnapshot, SpanSource } from "#src/store/spans.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";

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
  /** Removes the document at this place, counted around the end. */
  readonly remove: (place: number) => void;
  readonly replace: (place: number, change: (span: Span) => Span) => void;
  readonly listSpans: () => readonly Span[];
}

/** What a version stands for, as in a search server: the newest sequence number, and how many documents there were. */
interface Held {
  readonly newest: number;
  readonly documents: number;
}

export function createStoredSpans(): StoredSpans {
  let documents: readonly StoredDocument[] = [];
  let sequence = 0;
  let read = 0;
  const versions = new WeakMap<SnapshotVersion, Held>();
  const open = (held: readonly StoredDocument[]): SpanReader => {
    const reader = createArrayReader(held.flatMap(({ copies }) => copies));
    return {
      scan: (query, signal) => countBatches(reader.scan(query, signal)),
      find: (query, signal) => countBatches(reader.find(query, signal)),
      count: async () => held.length,
    };
  };
  async function* countBatches(batches: AsyncIterable<readonly Span[]>) {
    for await (const batch of batches) {
      read += batch.length;
      yield batch;
    }
  }
  function openSnapshot(sources: readonly SpanSource[], since: SnapshotVersion | undefined): SpanSnapshot {
    const held = documents;
    const version: SnapshotVersion = {};
    versions.set(version, { newest: sequence, documents: held.length });
    const earlier = since && versions.get(since);
    const added = held.filter((document) => document.sequence > (earlier?.newest ?? 0));
    const isWhole = earlier !== undefined && held.length - added.length === earlier.documents;
    const isOfSources = ({ site_id }: Span): boolean => sources.some(({ site }) => site === site_id);
    return {
      reader: open(held),
      version,
      added: isWhole
        ? {
            documents: added.length,
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
      openSnapshot: async (sources, since) => openSnapshot(sources, since),
    },
    countRead: () => read,
    add: (copies) => {
      sequence += 1;
      documents = [...documents, { sequence, copies }];
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
