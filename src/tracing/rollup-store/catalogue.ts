// What a rollup store has, for requests: the manifests of groups, and the figures of segments.
import { awaitShared } from "../../core/async/concurrency.ts";
import { runInUnownedTurns, yieldToEventLoop } from "../../core/async/turns.ts";
import { type BackendError, FiguresUnfinished } from "../../core/errors.ts";
import {
  day,
  earlier,
  fromMillis,
  hour,
  isRecent,
  type Millis,
  minute,
  printInstant,
  type TimeRange,
  toMillis,
} from "../../core/time.ts";
import type { RollupStore } from "../../store/rollups.ts";
import type { SnapshotVersion } from "../../store/spans.ts";
import {
  coversRange,
  type FiguresCodec,
  type GroupName,
  type StoredGroup,
  type StoredRollups,
  type StoredSegment,
} from "../rollups/stored-cover.ts";
import {
  findReach,
  formatManifestId,
  hashGroup,
  isIntact,
  type Manifest,
  parseManifest,
  parseSegment,
} from "./manifest.ts";

/** What the methods of one catalogue share. */
interface CatalogueContext {
  readonly findStore: () => RollupStore | undefined;
  /** Milliseconds since 1970. */
  readonly now: () => Millis;
  /** By group, the one that was read last as the last. */
  readonly known: Map<string, KnownManifest>;
}

interface KnownManifest {
  readonly readAt: Millis;
  readonly found: Promise<FoundManifest | undefined>;
  /** How many segments it lists; 0 until it is read. */
  segments: number;
}

interface FoundManifest extends Manifest {
  readonly store: RollupStore;
  readonly revision: string;
  /** The version that its text was read as; the same object for all requests. */
  parsed: { readonly version: SnapshotVersion | undefined } | undefined;
}

/** How long a manifest is used before it is read again. */
const manifestLifetime: Millis = 5_000;
/** Of the manifests that are kept, and of all segments that they list, each of which takes some 400 bytes. */
const maxKnown = 1_000;
const maxKnownSegments = 100_000;
/** Bytes of documents that one answer has: it is parsed in one turn. */
const maxLoadedBytes = 2_000_000;
/** A roller that has written nothing for so long has ended. */
const rollerLifetime: Millis = day;
const retryAfterSeconds = minute / 2 / 1_000;

/** The figures of a store, which is found when it is needed. */
export function createRollupCatalogue(
  findStore: () => RollupStore | undefined,
  now: () => Millis,
  report: (error: BackendError) => void,
  findRetention: (site: string) => Millis | undefined = () => undefined,
): StoredRollups {
  const context: CatalogueContext = { findStore, now, known: new Map() };
  return {
    find: async (name, parseVersion, signal) => {
      const manifest = await findManifest(context, name, signal);
      if (manifest?.version === undefined) return undefined;
      manifest.parsed ??= { version: parseVersion(manifest.version) };
      const { version } = manifest.parsed;
      return version && toStoredGroup(name, manifest, version);
    },
    reportFailure: report,
    explainMissing: async (name, range, signal) => {
      try {
        const manifest = await findManifest(context, name, signal);
        if (manifest === undefined || manifest.at < now() - rollerLifetime) return undefined;
        const oldest = now() - (findRetention(name.site) ?? Number.POSITIVE_INFINITY);
        return mayBeFinished(manifest, range, oldest) ? createUnfinishedError(manifest) : undefined;
      } catch (error) {
        signal.throwIfAborted();
        return error;
      }
    },
  };
}

/** One request reads a manifest for all that ask at the same time. */
async function findManifest(
  { known, now, findStore }: CatalogueContext,
  name: GroupName,
  signal: AbortSignal,
): Promise<FoundManifest | undefined> {
  const store = findStore();
  if (store === undefined) return undefined;
  const group = hashGroup(name);
  const last = known.get(group);
  if (last !== undefined && isRecent(last.readAt, now(), manifestLifetime))
    return awaitShared(last.found, signal);
  // Not the first caller's signal: others may wait for the same answer. The store's own deadline bounds it.
  const { signal: shared } = new AbortController();
  const found = runInUnownedTurns(() => readManifest(store, group, last?.found, shared));
  const entry: KnownManifest = { readAt: now(), found, segments: 0 };
  known.delete(group);
  known.set(group, entry);
  found.then(
    (manifest) => {
      entry.segments = manifest === undefined ? 0 : manifest.segments.length + manifest.merged.length;
      forgetOldest(known);
    },
    () => known.delete(group),
  );
  return awaitShared(found, signal);
}

/** The one that was read last stays, however long it is. */
function forgetOldest(known: Map<string, KnownManifest>): void {
  let segments = [...known.values()].reduce((sum, entry) => sum + entry.segments, 0);
  for (const [group, entry] of known) {
    if (known.size === 1 || (known.size <= maxKnown && segments <= maxKnownSegments)) return;
    known.delete(group);
    segments -= entry.segments;
  }
}

/** Returns the one that was found before, unless it was replaced since. */
async function readManifest(
  store: RollupStore,
  group: string,
  before: KnownManifest["found"] | undefined,
  signal: AbortSignal,
): Promise<FoundManifest | undefined> {
  const [document] = await store.read([formatManifestId(group)], signal);
  if (document === undefined) return undefined;
  const last = await before?.catch(() => undefined);
  if (last !== undefined && last.store === store && last.revision === document.revision) return last;
  const manifest = parseManifest(group, document.body);
  return manifest && { ...manifest, store, revision: document.revision, parsed: undefined };
}

function toStoredGroup(
  name: GroupName,
  { store, revision, segments, merged }: FoundManifest,
  version: SnapshotVersion,
): StoredGroup {
  return {
    revision,
    version,
    segments,
    merged,
    load: async (wanted, decode, signal) => {
      const group = hashGroup(name);
      const loaded = await loadSegments(store, group, wanted, decode, signal);
      await noteDamaged(
        store,
        group,
        wanted.filter((segment) => !loaded.has(segment)),
        signal,
      );
      return loaded;
    },
  };
}

/** By store and group, the ids of documents that requests found damaged or gone, until a roller of this process takes them. */
const damagedIds = new WeakMap<RollupStore, Map<string, Set<string>>>();

/** Of segments that could not be loaded. Figures that are as they were written would be made the same again. */
async function noteDamaged(
  store: RollupStore,
  group: string,
  missing: readonly StoredSegment[],
  signal: AbortSignal,
): Promise<void> {
  const damaged = await findDamagedSegments(store, missing, signal);
  if (damaged.length > 0)
    noteIds(
      store,
      group,
      damaged.map(({ id }) => id),
    );
}

function noteIds(store: RollupStore, group: string, ids: readonly string[]): void {
  const groups = damagedIds.get(store) ?? new Map<string, Set<string>>();
  damagedIds.set(store, groups);
  const noted = groups.get(group) ?? new Set();
  groups.set(group, noted);
  for (const id of ids) noted.add(id);
}

/** The ids of the group's documents that requests of this process have found damaged or gone since the last time. */
export function takeDamaged(store: RollupStore, group: string): ReadonlySet<string> {
  const groups = damagedIds.get(store);
  const noted = groups?.get(group) ?? new Set();
  groups?.delete(group);
  return noted;
}

/** Removes these documents, which are found again if the store fails: nobody else knows of them. @throws {BackendError} */
export async function removeDamaged(store: RollupStore, group: string, signal: AbortSignal): Promise<void> {
  const ids = [...takeDamaged(store, group)];
  if (ids.length === 0) return;
  await store.remove(ids, signal).catch((error: unknown) => {
    noteIds(store, group, ids);
    throw error;
  });
}

/** The figures by segment, in the order of the segments. Those that are not there or cannot be read are left out. */
export async function loadSegments<Figures>(
  store: RollupStore,
  group: string,
  segments: readonly StoredSegment[],
  decode: FiguresCodec<Figures>["decode"],
  signal: AbortSignal,
): Promise<ReadonlyMap<StoredSegment, Figures>> {
  const loaded = new Map<StoredSegment, Figures>();
  for await (const { segment, body } of readBodies(store, segments, signal)) {
    const figures = body === undefined ? undefined : await decode(parseSegment(group, segment, body));
    if (figures !== undefined) loaded.set(segment, figures);
  }
  return loaded;
}

/** Returns the segments whose documents are not there, or are not those that were written. */
export async function findDamagedSegments(
  store: RollupStore,
  segments: readonly StoredSegment[],
  signal: AbortSignal,
): Promise<readonly StoredSegment[]> {
  const damaged: StoredSegment[] = [];
  for await (const { segment, body } of readBodies(store, segments, signal))
    if (body === undefined || !isIntact(segment, body)) damaged.push(segment);
  return damaged;
}

/** Each in a turn of the event loop of its own. */
async function* readBodies(
  store: RollupStore,
  segments: readonly StoredSegment[],
  signal: AbortSignal,
): AsyncGenerator<{ readonly segment: StoredSegment; readonly body: string | undefined }> {
  for (const part of cutByBytes(segments)) {
    const documents = await store.read(
      part.map(({ id }) => id),
      signal,
    );
    const bodies = new Map(documents.map(({ id, body }) => [id, body]));
    for (const segment of part) {
      yield { segment, body: bodies.get(segment.id) };
      await yieldToEventLoop();
    }
  }
}

function cutByBytes(segments: readonly StoredSegment[]): readonly (readonly StoredSegment[])[] {
  const parts: StoredSegment[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const segment of segments) {
    if (bytes + segment.bytes > maxLoadedBytes) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1)?.push(segment);
    bytes += segment.bytes;
  }
  return parts;
}

/** Whether rollers make the figures of all of a range, but for an end that is short enough to be read. */
function mayBeFinished(manifest: Manifest, { from, to }: TimeRange, oldest: Millis): boolean {
  if (toMillis(from) >= oldest - hour) return true;
  return coversRange(manifest, { from, to: earlier(fromMillis(oldest), to) });
}

function createUnfinishedError(manifest: Manifest): FiguresUnfinished {
  const reach = findReach(manifest);
  const far = reach === undefined ? "none are there yet" : `they reach back to ${printInstant(reach)}`;
  const sentence = `The figures of this range are being made, the newest first, and ${far}; ask again later, or for less`;
  return new FiguresUnfinished(sentence, retryAfterSeconds);
}
