// What a rollup store has, for operators.
import { requireKey } from "../../core/collections.ts";
import type { Instant, Millis } from "../../core/time.ts";
import type { RollupStore } from "../../store/rollups.ts";
import { readManifests } from "./group-manifests.ts";
import { probeId } from "./lease.ts";
import { findReach, parseManifestId } from "./manifest.ts";

interface KeptOfSite {
  readonly site: string;
  /** Groups of figures: kinds, and sets of partners. */
  readonly groups: number;
  /** How far back all of these groups reach; undefined where one has no segment. */
  readonly reach: Instant | undefined;
  readonly bytes: number;
}

/** Writes one small document and reads all manifests. In the order of the sites' names. @throws {BackendError} */
export async function surveyRollups(
  store: RollupStore,
  now: Millis,
  signal: AbortSignal,
): Promise<readonly KeptOfSite[]> {
  const [probe] = await store.read([probeId], signal);
  await store.replace({ id: probeId, site: "", made: now, body: "{}" }, probe?.revision, signal);
  const sites = new Map<string, string>();
  for await (const batch of store.list(signal)) {
    for (const { id, site } of batch) {
      const group = parseManifestId(id);
      if (group !== undefined) sites.set(group, site);
    }
  }
  const found: KeptOfSite[] = [];
  for await (const [group, manifest] of readManifests(store, [...sites.keys()], signal)) {
    if (manifest === undefined) continue;
    const bytes = [...manifest.segments, ...manifest.merged].reduce((sum, segment) => sum + segment.bytes, 0);
    found.push({ site: requireKey(sites, group), groups: 1, reach: findReach(manifest), bytes });
  }
  return [...Map.groupBy(found, ({ site }) => site)]
    .map(addGroups)
    .sort((a, b) => (a.site < b.site ? -1 : 1));
}

function addGroups([site, own]: readonly [string, readonly KeptOfSite[]]): KeptOfSite {
  const reaches = own.map(({ reach }) => reach);
  const known = reaches.filter((reach) => reach !== undefined);
  return {
    site,
    groups: own.length,
    reach: known.length < reaches.length ? undefined : known.reduce((a, b) => (a > b ? a : b)),
    bytes: own.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}
