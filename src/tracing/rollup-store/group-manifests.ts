// The manifests of groups, as documents of the store: those of a step, which are replaced, and those of all groups.
import type { TimeRange } from "../../core/time.ts";
import type { NewDocument, RollupStore } from "../../store/rollups.ts";
import { emptyManifest, formatManifestId, type Manifest, parseManifest, printManifest } from "./manifest.ts";
import type { RollTarget } from "./roll-target.ts";

/** A group, in a step for several. */
export interface GroupToRoll {
  readonly target: RollTarget;
  /** Pieces that take too much. */
  readonly skipped: readonly TimeRange[];
  /** Whether documents to which the manifest refers may be gone, or may not be readable. */
  readonly isUnverified: boolean;
  /** Whether documents of an origin that the snapshot lacks are taken as deleted: no copy has shown them for a while. */
  readonly mayTakeAsDeleted: (origin: string) => boolean;
  /** Whether an origin goes on losing documents. */
  readonly isUnstable: (origin: string) => boolean;
}

export function toManifestDocument({ group, name: { site } }: RollTarget, manifest: Manifest): NewDocument {
  return { id: formatManifestId(group), site, made: manifest.at, body: printManifest(group, manifest) };
}

export interface FoundManifest {
  readonly groupToRoll: GroupToRoll;
  readonly manifest: Manifest;
  readonly revision: string | undefined;
}

/** A manifest that cannot be read is as good as an empty one, and is replaced. Errors as `RollupStore.read`. */
export async function readManifestsToReplace(
  store: RollupStore,
  groupsToRoll: readonly GroupToRoll[],
  signal: AbortSignal,
): Promise<readonly FoundManifest[]> {
  const documents = await store.read(
    groupsToRoll.map(({ target }) => formatManifestId(target.group)),
    signal,
  );
  const byId = new Map(documents.map((document) => [document.id, document]));
  return groupsToRoll.map((groupToRoll) => {
    const { group } = groupToRoll.target;
    const document = byId.get(formatManifestId(group));
    const manifest = document && parseManifest(group, document.body);
    return { groupToRoll, manifest: manifest ?? emptyManifest, revision: document?.revision };
  });
}

/** Few enough to hold their texts at the same time. */
const manifestsPerRead = 20;

/** The manifest of each group, in the order of the groups; undefined where it cannot be read. Errors as `RollupStore.read`. */
export async function* readManifests(
  store: RollupStore,
  groups: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<readonly [group: string, manifest: Manifest | undefined]> {
  for (let first = 0; first < groups.length; first += manifestsPerRead) {
    const part = groups.slice(first, first + manifestsPerRead);
    const documents = await store.read(part.map(formatManifestId), signal);
    const bodies = new Map(documents.map(({ id, body }) => [id, body]));
    for (const group of part) {
      yield [group, parseManifest(group, bodies.get(formatManifestId(group)) ?? "")];
    }
  }
}
