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
  /** Adds what the change makes of the document at this place, which stays. */
  readonly addAgain: (place: number, change: (span: Span) => Span) => void;
  /** Until the next change, all is read from a copy that has not seen the last one: copies of shards refresh by themselves. */
  readonly fallBehind: () => void;
  /** As they are read. */
  readonly listSpans: () => readonly Span[];
}

/** Each read of a snapshot waits for `wait`, with the range of a scan. */
export function createStoredSpans(
  wait: (range?: TimeRange) => Promise<void> = async () => undefined,
): StoredSpans {
  let documents: readonly StoredDocument[] = [];
  /** Before the last change. */
  let previous: readonly StoredDocument[] = [];
  let isBehind = false;
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
    const held = listVisible();
    const { client, point } = createFakeShards(
      held.map((document) => ({ index: "spans", number: document.sequence, term: 1 })),
    );
    const earlier = since && versions.get(since);
    const compareWith = async (before: ShardStates | undefined, of: readonly SpanSource[] = sources) => {
      const { states, added: documents } = await compareShards("stored", client, point, before, signal);
      const newest = before?.get("spans")?.newest ?? 0;
      const spans = held.filter((document) => document.sequence > newest).flatMap(({ copies }) => copies);
      const read = async function* () {
        const own = spans.filter(({ site_id }) => of.some(({ site }) => site === site_id));
        if (own.length > 0) yield own;
      };
      return { states, added: before && documents !== undefined ? { documents, read } : undefined };
    };
    const { states, added } = await compareWith(earlier);
    return {
      // Shards give their documents in other orders than a whole index.
      ...{ reader: open(held.toReversed()), version: createVersion(states), added },
      select: async (of, other) => {
        const found = await compareWith(other && versions.get(other), of);
        return { version: createVersion(found.states), added: found.added };
      },
      close: () => undefined,
    };
  }
  function createVersion(states: ShardStates): SnapshotVersion {
    const version: SnapshotVersion = { bytes: 100, print: () => JSON.stringify([...states]) };
    versions.set(version, states);
    return version;
  }
  const listVisible = (): readonly StoredDocument[] => (isBehind ? previous : documents);
  const change = (changed: readonly StoredDocument[]): void => {
    [previous, documents, isBehind] = [documents, changed, false];
  };
  const findPlace = (place: number): number => place % Math.max(documents.length, 1);
  return {
    reader: {
      scan: (query, signal) => open(listVisible()).scan(query, signal),
      find: (query, signal) => open(listVisible()).find(query, signal),
      count: async () => listVisible().length,
      openSnapshot: openSnapshot,
      parseVersion: (text) => createVersion(new Map(JSON.parse(text))),
    },
    countRead: () => read,
    add: (copies) => {
      sequence += 1;
      change([...documents, { sequence, copies }]);
    },
    addLate: (copies) => {
      sequence += 1;
      late = [...late, { sequence, copies }];
    },
    reveal: () => {
      change([...documents, ...late]);
      late = [];
    },
    remove: (place) => {
      change(documents.toSpliced(findPlace(place), documents.length === 0 ? 0 : 1));
    },
    replace: (place, alter) => {
      const document = documents[findPlace(place)];
      if (document === undefined) return;
      sequence += 1;
      const [first, ...others] = document.copies;
      const copies: DocumentCopies = [alter(first), ...others.map(alter)];
      change(documents.toSpliced(findPlace(place), 1, { sequence, copies }));
    },
    addAgain: (place, alter) => {
      const document = documents[findPlace(place)];
      if (document === undefined) return;
      sequence += 1;
      const [first, ...others] = document.copies;
      change([...documents, { sequence, copies: [alter(first), ...others.map(alter)] }]);
    },
    fallBehind: () => {
      isBehind = true;
    },
    listSpans: () => listVisible().flatMap(({ copies }) => copies),
  };
}
