// Indices that hold the documents of another one once more: shrunk, cloned, restored and mounted copies. OpenSearch's policies
// leave the index that they shrink; Elasticsearch's lifecycles delete it in the end. OpenSearch's settings name the original,
// those of Elasticsearch do not, so that there the name of the copy tells.
import { type JsonObject, readObject } from "../../../src/core/json/lossless-json.ts";

/** Copies whose original is here too, with its name. `settings` are those below `index`, by the name of each index. */
export function findCopies(settings: ReadonlyMap<string, JsonObject>): ReadonlyMap<string, string> {
  const nameOf = new Map([...settings].map(([index, { uuid }]) => [String(uuid), index]));
  const copies = new Map<string, string>();
  for (const [index, own] of settings) {
    const { uuid } = readObject(own, "resize", "source");
    const { index_name: mounted } = readObject(own, "store", "snapshot");
    const original = uuid === undefined ? undefined : nameOf.get(String(uuid));
    const named = [original, mounted, ...listFormerNames(index)].find(
      (name) => typeof name === "string" && name !== index && settings.has(name),
    );
    if (typeof named === "string") copies.set(index, named);
  }
  return copies;
}

/**
 * The names whose index this one may have taken the place of. Elasticsearch's lifecycles shrink an index or mount its snapshot
 * under another name, delete the index, and make its name an alias. Who restores a snapshot by hand often names it so too.
 * OpenSearch's policies add an end to the name of an index that they shrink.
 */
export function listFormerNames(index: string): readonly string[] {
  const names = index.endsWith("_shrunken") ? [index.slice(0, -"_shrunken".length)] : [];
  for (let at = index.indexOf("-"); at > 0; at = index.indexOf("-", at + 1)) {
    const prefix = index.slice(0, at + 1);
    if (/^(?:(?:partial|restored|shrink|shrink-[a-z0-9_-]{4})-)+$/i.test(prefix))
      names.push(index.slice(at + 1));
  }
  return names;
}

/** What to add to a pattern, so that it reaches the originals alone. */
export function adviseOnCopies(
  pattern: string,
  copies: ReadonlyMap<string, string>,
  indices: Iterable<string>,
): string {
  const others = [...indices].filter((index) => !copies.has(index));
  const haveCommonEnd = [...copies.keys()].every((name) => name.endsWith("_shrunken"));
  if (haveCommonEnd && !others.some((name) => name.endsWith("_shrunken")))
    return "let the pattern end in ,-*_shrunken";
  const [first] = copies.keys();
  return `take them out of the pattern (${pattern},-${first})`;
}
