// A store of spans whose documents come, change and go, with snapshots: the smallest that the rollups can be held against. The
// proof of what has changed is the one for search servers.
import { requireAt } from "#src/core/collections.ts";
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
  /** Which numbers its documents by itself, here those of all together. */
  readonly index: StoredIndex;
  readonly copies: DocumentCopies;
}

/** One that is made again under its name is another one. */
interface StoredIndex {
  readonly name: string;
  /** As a server's uuid. */
  readonly uuid: number;
}

/** What a version stands for: the indices by name with their uuids, and their states. */
interface StoredVersion {
  readonly indices: ReadonlyMap<string, number>;
  readonly states: ShardStates;
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
  /** Begins an index, to which all is added from now on. */
  readonly rollOver: () => void;
  /**
   * Removes the index at this place, counted around the end, with all its documents, which it returns. The one to which all is
   * added is made again under its name.
   */
  readonly removeIndex: (place: number) => readonly DocumentCopies[];
  readonly replace: (place: number, change: (span: Span) => Span) => void;
  /** Adds what the change makes of the document at this place, which stays. */
  readonly addAgain: (place: number, change: (span: Span) => Span) => void;
  /** Until the next change, all is read from a copy that has not seen the last one: copies of shards refresh by themselves. */
  readonly fallBehind: () => void;
  readonly catchUp: () => void;
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
  let uuids = 0;
  let index: StoredIndex = { name: "spans-0", uuid: 0 };
  /** All that are there, by name; empty ones too. */
  const uuidsByName = new Map([[index.name, index.uuid]]);
  const addIndex = (name: string): void => {
    uuids += 1;
    index = { name, uuid: uuids };
    uuidsByName.set(name, uuids);
  };
  let read = 0;
  const versions = new WeakMap<SnapshotVersion, StoredVersion>();
  const open = (held: readonly StoredDocument[], report?: (origin: string) => void): SpanReader => {
    const indices = new Map(held.flatMap(({ copies, index }) => copies.map((span) => [span, index.name])));
    // A reader over arrays returns the spans that it was given.
    const reader = createArrayReader([...indices.keys()]);
    const count = (batches: AsyncIterable<readonly Span[]>, signal: AbortSignal, range?: TimeRange) =>
      countBatches(batches, (span) => report?.(indices.get(span) ?? "none"), signal, range);
    return {
      scan: (query, signal) => count(reader.scan(query, signal), signal, query.range),
      find: (query, signal) => count(reader.find(query, signal), signal),
      count: async () => held.length,
    };
  };
  async function* countBatches(
    batches: AsyncIterable<readonly Span[]>,
    report: (span: Span) => void,
    signal: AbortSignal,
    range?: TimeRange,
  ) {
    await wait(range);
    signal.throwIfAborted();
    for await (const batch of batches) {
      read += batch.length;
      batch.forEach(report);
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
      held.map((document) => ({ index: document.index.name, number: document.sequence, term: 1 })),
    );
    const indices = new Map(uuidsByName);
    const compareWith = async (
      since: SnapshotVersion | undefined,
      of: readonly SpanSource[] = sources,
    ): Promise<Pick<SpanSnapshot, "version" | "added" | "behindOrigins">> => {
      const earlier = since && versions.get(since);
      const [kept, gone] = partitionStates(earlier, indices);
      const compared = await compareShards("stored", client, point, earlier && kept, signal);
      const spans = held
        .filter(({ sequence, index }) => {
          const { newest = 0, missing = [] } = compared.known.get(index.name) ?? {};
          return sequence > newest || missing.includes(sequence);
        })
        .flatMap(({ copies }) => copies);
      const read = async function* ({ range }: { readonly range: TimeRange }) {
        const own = spans.filter(
          ({ site_id, end }) =>
            of.some(({ site }) => site === site_id) && end >= range.from && end <= range.to,
        );
        if (own.length > 0) yield own;
      };
      const documents = earlier && compared.added;
      return {
        version: createVersion({ indices, states: compared.states }),
        added:
          documents === undefined
            ? undefined
            : { documents, changedOrigins: new Set([...gone, ...compared.changed]), read },
        behindOrigins: compared.behind,
      };
    };
    // Shards give their documents in other orders than a whole index.
    const reversed = held.toReversed();
    return {
      ...(await compareWith(since)),
      reader: open(reversed),
      trackOrigins: (report) => open(reversed, report),
      select: (of, other) => compareWith(other, of),
      close: () => undefined,
    };
  }
  function createVersion(stored: StoredVersion): SnapshotVersion {
    const print = () => JSON.stringify([[...stored.indices], [...stored.states]]);
    const version: SnapshotVersion = { bytes: 100, print };
    versions.set(version, stored);
    return version;
  }
  const listVisible = (): readonly StoredDocument[] =>
    (isBehind ? previous : documents).filter(
      (document) => uuidsByName.get(document.index.name) === document.index.uuid,
    );
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
      parseVersion: (text) => {
        const [indices, states] = JSON.parse(text);
        return createVersion({ indices: new Map(indices), states: new Map(states) });
      },
    },
    countRead: () => read,
    add: (copies) => {
      sequence += 1;
      change([...documents, { sequence, index, copies }]);
    },
    addLate: (copies) => {
      sequence += 1;
      late = [...late, { sequence, index, copies }];
    },
    reveal: () => {
      change([...documents, ...late]);
      late = [];
    },
    remove: (place) => {
      change(documents.toSpliced(findPlace(place), documents.length === 0 ? 0 : 1));
    },
    rollOver: () => addIndex(`spans-${uuids + 1}`),
    removeIndex: (place) => {
      const names = [...uuidsByName.keys()];
      const name = requireAt(names, place % names.length);
      const isGone = (document: StoredDocument): boolean => document.index.name === name;
      const removed = [...documents, ...late].filter(isGone).map(({ copies }) => copies);
      change(documents.filter((document) => !isGone(document)));
      late = late.filter((document) => !isGone(document));
      uuidsByName.delete(name);
      if (name === index.name) addIndex(name);
      return removed;
    },
    replace: (place, alter) => {
      const document = documents[findPlace(place)];
      if (document === undefined) return;
      sequence += 1;
      const [first, ...others] = document.copies;
      const copies: DocumentCopies = [alter(first), ...others.map(alter)];
      change(documents.toSpliced(findPlace(place), 1, { ...document, sequence, copies }));
    },
    addAgain: (place, alter) => {
      const document = documents[findPlace(place)];
      if (document === undefined) return;
      sequence += 1;
      const [first, ...others] = document.copies;
      change([...documents, { sequence, index, copies: [alter(first), ...others.map(alter)] }]);
    },
    fallBehind: () => {
      isBehind = true;
    },
    catchUp: () => {
      isBehind = false;
    },
    listSpans: () => listVisible().flatMap(({ copies }) => copies),
  };
}

/** A reader of these spans, whose copies catch up before the second snapshot is opened; and how many were opened. */
export function createLateReader({ reader, catchUp }: StoredSpans): {
  readonly reader: SpanReader;
  readonly countOpened: () => number;
} {
  let opened = 0;
  const openSnapshot: SpanReader["openSnapshot"] = async (...query) => {
    opened += 1;
    if (opened === 2) catchUp();
    return reader.openSnapshot?.(...query);
  };
  return { reader: { ...reader, openSnapshot }, countOpened: () => opened };
}

/** Those of the indices that are there, and the names of the others. */
function partitionStates(
  earlier: StoredVersion | undefined,
  now: ReadonlyMap<string, number>,
): readonly [kept: ShardStates, gone: ReadonlySet<string>] {
  const indices = [...(earlier?.indices ?? [])];
  const gone = new Set(indices.filter(([name, uuid]) => now.get(name) !== uuid).map(([name]) => name));
  return [new Map([...(earlier?.states ?? [])].filter(([name]) => !gone.has(name))), gone];
}
