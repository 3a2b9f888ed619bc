// Deletes what nobody refers to: segments that were replaced, passed the retention or were left by a roller that ended early, and
// manifests of sites, definitions, views or versions of the program that are gone. Another version may be at work beside this one,
// whose manifests this one cannot read. It writes them again and again, so their age alone tells whether it is still there.
import { day, hour, type Millis } from "../../core/time.ts";
import type { RollupStore } from "../../store/rollups.ts";
import { readManifests } from "./group-manifests.ts";
import { isLeaseId } from "./lease.ts";
import { parseManifestId, parseSegmentId } from "./manifest.ts";

/** A manifest that was not written for so long has nobody who cares for it. */
const manifestLifetime: Millis = day - 2 * hour;
const maxRemoved = 1_000;

interface SweepResult {
  /** Segments to which no manifest refers now. One that is here again at the next sweep is deleted. */
  readonly unreferenced: ReadonlySet<string>;
  /** Ids of manifests with documents that are gone. */
  readonly broken: ReadonlySet<string>;
}

/**
 * Deletes old manifests and leases, and segments that were unreferenced at the sweep before too: a request may still have a
 * manifest that refers to them. Segments whose manifest cannot be read stay as long as it does. Documents whose ids this program
 * does not write are left alone. @throws {BackendError}
 */
export async function sweepRollups(
  store: RollupStore,
  now: Millis,
  before: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<SweepResult> {
  const { old, groups, segments } = await listDocuments(store, now, signal);
  const { referenced, unreadable } = await readReferences(store, groups, signal);
  const isUnreferenced = ([id, group]: readonly [string, string]): boolean =>
    !referenced.has(id) && !unreadable.has(group);
  const unreferenced = new Set([...segments].filter(isUnreferenced).map(([id]) => id));
  await removeAll(store, [...old, ...[...unreferenced].filter((id) => before.has(id))], signal);
  const broken = [...referenced].filter(([id]) => !segments.has(id)).map(([, group]) => group);
  return { unreferenced, broken: new Set(broken) };
}

interface ListedIds {
  /** Ids of manifests and leases that nobody has written for long. */
  readonly old: readonly string[];
  /** The groups of all other manifests. */
  readonly groups: readonly string[];
  /** The group of each segment, by its id. */
  readonly segments: ReadonlyMap<string, string>;
}

async function listDocuments(store: RollupStore, now: Millis, signal: AbortSignal): Promise<ListedIds> {
  const old: string[] = [];
  const groups: string[] = [];
  const segments = new Map<string, string>();
  for await (const batch of store.list(signal)) {
    for (const { id, made } of batch) {
      const segmentGroup = parseSegmentId(id);
      if (segmentGroup !== undefined) segments.set(id, segmentGroup);
      const group = parseManifestId(id);
      if (group === undefined && !isLeaseId(id)) continue;
      if (made < now - manifestLifetime) old.push(id);
      else if (group !== undefined) groups.push(group);
    }
  }
  return { old, groups, segments };
}

interface References {
  /** The group of each segment to which a manifest refers, by its id. */
  readonly referenced: ReadonlyMap<string, string>;
  /** The groups whose manifests cannot be read. */
  readonly unreadable: ReadonlySet<string>;
}

async function readReferences(
  store: RollupStore,
  groups: readonly string[],
  signal: AbortSignal,
): Promise<References> {
  const referenced = new Map<string, string>();
  const unreadable = new Set<string>();
  for await (const [group, manifest] of readManifests(store, groups, signal)) {
    if (manifest === undefined) unreadable.add(group);
    else for (const { id } of [...manifest.segments, ...manifest.merged]) referenced.set(id, group);
  }
  return { referenced, unreadable };
}

async function removeAll(store: RollupStore, ids: readonly string[], signal: AbortSignal): Promise<void> {
  for (let first = 0; first < ids.length; first += maxRemoved) {
    await store.remove(ids.slice(first, first + maxRemoved), signal);
  }
}
