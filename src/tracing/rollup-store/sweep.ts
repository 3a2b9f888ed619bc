// Deletes what nobody refers to: segments that were replaced, passed the retention or were left by a roller that ended early, and
// manifests of sites, definitions or views that are gone.
import { day, hour, type Millis } from "../../core/time.ts";
import type { ListedDocument, RollupStore } from "../../store/rollups.ts";
import { formatManifestId, parseGroupOfId, parseManifest } from "./manifest.ts";

/** A manifest that was not written for so long has nobody who cares for it. */
const manifestLifetime: Millis = day - 2 * hour;
const maxRemoved = 1_000;
const maxManifestsPerRead = 20;

interface SweepResult {
  /** Segments to which no manifest refers now. One that is here again at the next sweep is deleted. */
  readonly unreferenced: ReadonlySet<string>;
  /** Ids of manifests with documents that are gone. */
  readonly broken: ReadonlySet<string>;
}

/**
 * Deletes old manifests, and segments that were unreferenced at the sweep before too: a request may still have a manifest that
 * refers to them. Documents of others in the same place are left alone. @throws {BackendError}
 */
export async function sweepRollups(
  store: RollupStore,
  now: Millis,
  before: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<SweepResult> {
  const manifests = new Set<string>();
  const segments = new Map<string, string>();
  const old: string[] = [];
  for await (const batch of store.list(signal)) {
    for (const document of batch) {
      const { id } = document;
      const group = parseGroupOfId(id);
      if (isOld(document, now)) old.push(id);
      else if (group !== undefined && id === formatManifestId(group)) manifests.add(group);
      else if (group !== undefined) segments.set(id, group);
    }
  }
  const referenced = new Set<string>();
  const broken = new Set<string>();
  for (const [group, ids] of await readReferences(store, [...manifests], signal)) {
    for (const id of ids) {
      referenced.add(id);
      if (!segments.has(id)) broken.add(group);
    }
  }
  const unreferenced = new Set([...segments.keys()].filter((id) => !referenced.has(id)));
  await removeAll(store, [...old, ...[...unreferenced].filter((id) => before.has(id))], signal);
  return { unreferenced, broken };
}

function isOld({ id, made }: ListedDocument, now: Millis): boolean {
  return (id.startsWith("manifest-") || id.startsWith("lease-")) && made < now - manifestLifetime;
}

/** The ids of the segments' documents, by group. */
async function readReferences(
  store: RollupStore,
  groups: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const references = new Map<string, readonly string[]>();
  for (let first = 0; first < groups.length; first += maxManifestsPerRead) {
    const part = groups.slice(first, first + maxManifestsPerRead);
    const documents = await store.read(part.map(formatManifestId), signal);
    const bodies = new Map(documents.map(({ id, body }) => [id, body]));
    for (const group of part) {
      const manifest = parseManifest(group, bodies.get(formatManifestId(group)) ?? "");
      references.set(
        group,
        manifest === undefined ? [] : [...manifest.segments, ...manifest.merged].map(({ id }) => id),
      );
    }
  }
  return references;
}

async function removeAll(store: RollupStore, ids: readonly string[], signal: AbortSignal): Promise<void> {
  for (let first = 0; first < ids.length; first += maxRemoved) {
    await store.remove(ids.slice(first, first + maxRemoved), signal);
  }
}
