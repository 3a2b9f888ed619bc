// Snapshots of several backends, read as one. Each backend is held at a moment of its own, a little before or after the others,
// as in a reading of all of them. Figures that were made of such a snapshot hold as long as none of the backends has changed
// what it had.
import { z } from "zod";
import { mapAtOnce } from "../core/async/concurrency.ts";
import { requireKey } from "../core/collections.ts";
import { tryParseJson } from "../core/json/parse-json.ts";
import type { AddedSpans, SnapshotVersion, SpanReader, SpanSnapshot, SpanSources } from "../store/spans.ts";

/** What one backend is asked for. */
export interface SourcesInBackend {
  readonly backend: string;
  readonly reader: SpanReader;
  readonly sources: SpanSources;
}

interface SnapshotTools {
  /** What each backend is asked for about some sources, each backend once. */
  readonly divide: (sources: SpanSources) => readonly SourcesInBackend[];
  /** A reader over all of these, by the names of their backends. */
  readonly joinReaders: (readers: ReadonlyMap<string, SpanReader>) => SpanReader;
}

type State = Pick<SpanSnapshot, "version" | "added" | "behindOrigins">;
type Versions = ReadonlyMap<string, SnapshotVersion>;

/** By backend. */
const versionsOf = new WeakMap<SnapshotVersion, Versions>();

/** As `SpanReader.openSnapshot`. Undefined where one of the backends has no snapshots. */
export async function openFederatedSnapshot(
  { divide, joinReaders }: SnapshotTools,
  sources: SpanSources,
  since: SnapshotVersion | undefined,
  signal: AbortSignal,
): Promise<SpanSnapshot | undefined> {
  const parts = divide(sources);
  const opened = await openEach(parts, since && versionsOf.get(since), signal);
  if (opened === undefined) return undefined;
  const joinFrom = (open: (snapshot: SpanSnapshot, backend: string) => SpanReader): SpanReader =>
    joinReaders(new Map([...opened].map(([backend, snapshot]) => [backend, open(snapshot, backend)])));
  return {
    reader: joinFrom(({ reader }) => reader),
    trackOrigins: (report) =>
      joinFrom(({ trackOrigins }, backend) =>
        trackOrigins((origin) => report(formatOrigin(backend, origin))),
      ),
    ...joinStates(opened, since),
    select: async (selected, earlier, own) => {
      const before = earlier && versionsOf.get(earlier);
      const select = async (part: SourcesInBackend, either: AbortSignal) => {
        const snapshot = requireKey(opened, part.backend);
        return [
          part.backend,
          await snapshot.select(part.sources, before?.get(part.backend), either),
        ] as const;
      };
      const states = await mapAtOnce(divide(selected), select, own);
      return joinStates(new Map(states), earlier);
    },
    close: () => closeEach(opened),
  };
}

/** Opens all at once. Where one cannot be opened, none stays open. */
async function openEach(
  parts: readonly SourcesInBackend[],
  since: Versions | undefined,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, SpanSnapshot> | undefined> {
  const opened = new Map<string, SpanSnapshot>();
  const open = async ({ backend, reader, sources }: SourcesInBackend, own: AbortSignal): Promise<void> => {
    const snapshot = await reader.openSnapshot?.(sources, since?.get(backend), own);
    if (own.aborted) snapshot?.close();
    else if (snapshot !== undefined) opened.set(backend, snapshot);
  };
  try {
    await mapAtOnce(parts, open, signal);
  } catch (error) {
    closeEach(opened);
    throw error;
  }
  if (opened.size === parts.length) return opened;
  closeEach(opened);
  signal.throwIfAborted();
  return undefined;
}

function closeEach(opened: ReadonlyMap<string, SpanSnapshot>): void {
  for (const { close } of opened.values()) close();
}

function joinStates(states: ReadonlyMap<string, State>, since: SnapshotVersion | undefined): State {
  const sorted = [...states].sort(([a], [b]) => (a < b ? -1 : 1));
  const version = joinVersions(new Map(sorted.map(([backend, state]) => [backend, state.version])));
  const before = since && versionsOf.get(since);
  const isSame = before?.size === states.size && [...states.keys()].every((backend) => before.has(backend));
  const behind = sorted.flatMap(([backend, { behindOrigins }]) =>
    [...behindOrigins].map((origin) => formatOrigin(backend, origin)),
  );
  return { version, added: isSame ? joinAdded(sorted) : undefined, behindOrigins: new Set(behind) };
}

function joinVersions(versions: Versions): SnapshotVersion {
  const all = [...versions];
  const prints = all.flatMap(([backend, { print }]) => (print === undefined ? [] : [{ backend, print }]));
  const version: SnapshotVersion = {
    bytes: all.reduce((sum, [backend, { bytes }]) => sum + bytes + 2 * backend.length, 0),
    ...(prints.length === all.length && {
      print: () => JSON.stringify(prints.map(({ backend, print }) => [backend, print()])),
    }),
  };
  versionsOf.set(version, versions);
  return version;
}

const printedSchema = z.array(z.tuple([z.string(), z.string()]));

/** As `SpanReader.parseVersion`, of a text that the version of such a snapshot has printed. */
export function parseFederatedVersion(
  text: string,
  findReader: (backend: string) => SpanReader | undefined,
): SnapshotVersion | undefined {
  const { data } = printedSchema.safeParse(tryParseJson(text));
  const versions = new Map<string, SnapshotVersion>();
  for (const [backend, own] of data ?? []) {
    const version = findReader(backend)?.parseVersion?.(own);
    if (version !== undefined) versions.set(backend, version);
  }
  return data !== undefined && versions.size === data.length ? joinVersions(versions) : undefined;
}

/** Undefined where one of them is: what its backend had has changed, or may have. */
function joinAdded(states: readonly (readonly [backend: string, State])[]): AddedSpans | undefined {
  const known: AddedSpans[] = [];
  const changedOrigins = new Set<string>();
  for (const [backend, { added }] of states) {
    if (added === undefined) return undefined;
    known.push(added);
    for (const origin of added.changedOrigins) changedOrigins.add(formatOrigin(backend, origin));
  }
  return {
    documents: known.reduce((sum, { documents }) => sum + documents, 0),
    changedOrigins,
    read: async function* (query, signal) {
      for (const { read } of known) yield* read(query, signal);
    },
  };
}

/** Backends may have indices of one name. */
function formatOrigin(backend: string, origin: string): string {
  return JSON.stringify([backend, origin]);
}
