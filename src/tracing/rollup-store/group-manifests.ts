// The manifests of groups that a step rolls, as documents of the store.
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
  /** Whether documents that the snapshot lacks are taken as deleted: no copy of the source has shown them for a while. */
  readonly mayTakeAsDeleted: boolean;
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
export async function readManifests(
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
