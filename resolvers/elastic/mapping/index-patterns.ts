// Collapses the index names of a cluster into few patterns. Names that differ by a date, version or counter only form one
// pattern, since tomorrow's index belongs to it too. Each name lies in exactly one pattern, so that no document belongs to
// two sources.
import { requireFirst, requireKey, requireLast } from "../../../src/core/collections.ts";

export interface IndexPattern {
  /** The pattern as a request names it; exclusions follow what they are taken from. */
  readonly index: string;
  readonly names: readonly string[];
  /** Whether the names differ by more than dates, versions and counters. */
  readonly merged: boolean;
}

/** With more patterns than this, names with a common beginning are merged. */
const maxPatterns = 24;
/** The address of a request has room for this many exclusions beside its patterns. */
const maxExclusions = 24;

/**
 * Patterns for all names, sorted by `index`. Leaves out hidden names (a leading dot). With more than `limit` patterns, merges
 * names with a common beginning as long as `readKind` returns one kind for them; `isStream` tells names of data streams.
 */
export function collapseIndexNames(
  names: readonly string[],
  limit = maxPatterns,
  readKind: (name: string) => string = () => "",
  isStream: (name: string) => boolean = () => false,
): readonly IndexPattern[] {
  const visible = [...new Set(names)].filter((name) => !name.startsWith("."));
  let stems = groupNames(visible, deriveStem);
  for (const widen of wideners) if (stems.size > limit) stems = mergeStems(stems, widen, readKind);
  return mergeOverlapping(stems)
    .map(([stem, own]) => ({
      index: [stem, ...listExclusions(stem, own, visible, stems, isStream)].join(","),
      names: own.sort(),
      merged: new Set(own.map(deriveStem)).size > 1,
    }))
    .sort((a, b) => (a.index < b.index ? -1 : 1));
}

/** Whether a pattern matches a name: one part matches it, and no later part excludes it. */
export function isNameInPattern(index: string, name: string): boolean {
  return index.split(",").reduce((matched, part) => {
    if (part.startsWith("-")) return matched && !isGlobMatch(part.slice(1), name);
    return matched || isGlobMatch(part, name);
  }, false);
}

/** The name of a data stream's backing index; the first group is the data stream. */
const backingIndexPattern = /^\.ds-(.+?)(?:-\d{4}\.\d{2}\.\d{2})?-\d{6}$/;

/** Problems for `readout check`: data streams that a pattern names as exclusions without effect (see `insertStar`). */
export function listKeptStreams(index: string, indices: Iterable<string>): readonly string[] {
  const streams = new Set([...indices].map((name) => backingIndexPattern.exec(name)?.[1] ?? name));
  const named = index.split(",").flatMap((part) => (part.startsWith("-") ? [part.slice(1)] : []));
  return named
    .filter((name) => streams.has(name) && !isNameInPattern(index, name))
    .map((name) => `-${name} does not take the data stream out of the pattern; -*${name} does`);
}

/** Whether one part of a pattern, which may contain stars, matches a name. */
export function isGlobMatch(pattern: string, name: string): boolean {
  const parts = pattern.split("*");
  if (parts.length === 1) return name === pattern;
  const [first, last] = [requireFirst(parts), requireLast(parts)];
  if (!name.startsWith(first)) return false;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return name.length - last.length >= at && name.endsWith(last);
}

/** Dates, versions and counters: `2026.01.31`, `2026-w05`, `20260131`, `8.19.0`, `-000001`. */
const counterPattern =
  /(?<![A-Za-z0-9])(?:\d{4}[.\-_](?:w\d{2}|\d{2})(?:[.\-_]\d{2}){0,2}|\d{8}|\d+(?:\.\d+){2,3}|\d{6})(?![A-Za-z0-9])/g;

function deriveStem(name: string): string {
  return name.replaceAll(counterPattern, "*").replaceAll(/\*(?:[.\-_]\*)+/g, "*");
}

/** Returns a pattern for all names with the same beginning as `stem`; undefined if it has no such beginning. */
type StemWidener = (stem: string) => string | undefined;

/** The type of a data stream with the first word of its dataset; then the first word of any name. */
const beginnings = [/^(?:logs|traces|metrics)-[^-._*]+[-._]/, /^[^-._*]+[-._]/];
/** The name of a data stream, as what precedes its namespace, and the namespace. */
const dataStreamPattern = /^(?<head>(?:logs|traces|metrics)-[^-*]+)(?<namespace>-[^-*]+)$/;

const withinNamespace = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const { head, namespace } = dataStreamPattern.exec(stem)?.groups ?? {};
      const start = head === undefined ? undefined : beginning.exec(head)?.[0];
      return start && `${start}*${namespace}`;
    },
);
const acrossNamespaces = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const start = beginning.exec(stem)?.[0];
      return start && `${start}*`;
    },
);
/** Applied in order until there are few enough patterns. A namespace may be an environment or a tenant, so it stays longest. */
const wideners = [...withinNamespace, ...acrossNamespaces];

/** Merges stems with the same beginning, if more than two of them are of one kind. */
function mergeStems(
  stems: ReadonlyMap<string, readonly string[]>,
  widen: StemWidener,
  readKind: (name: string) => string,
): Map<string, string[]> {
  const merged = new Map<string, string[]>();
  for (const [pattern, candidates] of groupNames([...stems.keys()], (stem) => widen(stem) ?? "")) {
    const chosen = pattern === "" ? [] : selectOneKind(candidates, stems, readKind);
    for (const stem of candidates) {
      const key = chosen.includes(stem) ? pattern : stem;
      merged.set(key, [...(merged.get(key) ?? []), ...requireKey(stems, stem)]);
    }
  }
  return merged;
}

/**
 * The largest set of candidates of one kind none of whose names matches another candidate. Empty if the set is too small, or
 * if it leaves too many candidates to exclude.
 */
function selectOneKind(
  candidates: readonly string[],
  stems: ReadonlyMap<string, readonly string[]>,
  readKind: (name: string) => string,
): readonly string[] {
  const kinds = groupNames(candidates, (stem) => {
    const own = new Set(requireKey(stems, stem).map(readKind));
    return own.size === 1 ? [...own].join() : `several, of ${stem}`;
  });
  let chosen = requireFirst([...kinds.values()].sort((a, b) => b.length - a.length));
  for (let size = -1; size !== chosen.length; ) {
    size = chosen.length;
    const others = candidates.filter((stem) => !chosen.includes(stem));
    chosen = chosen.filter(
      (stem) => !others.some((other) => requireKey(stems, stem).some((name) => isGlobMatch(other, name))),
    );
  }
  return chosen.length > 2 && candidates.length - chosen.length <= maxExclusions ? chosen : [];
}

function groupNames(names: readonly string[], formatKey: (name: string) => string): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const name of names) {
    const key = formatKey(name);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [name]);
    else group.push(name);
  }
  return groups;
}

/** Merges pairs of patterns that match a name of each other, which exclusions cannot separate, into the shorter one. */
function mergeOverlapping(stems: Map<string, string[]>): readonly (readonly [string, string[]])[] {
  const order = [...stems.keys()].sort((a, b) => a.length - b.length);
  for (const [at, stem] of order.entries()) {
    for (const other of order.slice(at + 1)) {
      const [own, theirs] = [stems.get(stem), stems.get(other)];
      if (own === undefined || theirs === undefined) continue;
      const mutual =
        theirs.some((name) => isGlobMatch(stem, name)) && own.some((name) => isGlobMatch(other, name));
      if (!mutual) continue;
      own.push(...theirs);
      stems.delete(other);
    }
  }
  return [...stems];
}

/** Exclusions for the names that the pattern `stem` matches and that belong to other patterns. */
function listExclusions(
  stem: string,
  own: readonly string[],
  names: readonly string[],
  stems: ReadonlyMap<string, readonly string[]>,
  isStream: (name: string) => boolean,
): readonly string[] {
  if (!stem.includes("*")) return [];
  const foreign = names.filter((name) => !own.includes(name) && isGlobMatch(stem, name));
  return [...stems]
    .filter(([, theirs]) => theirs.some((name) => foreign.includes(name)))
    .map(([other]) => `-${other.includes("*") || !isStream(other) ? other : insertStar(other, own)}`)
    .sort();
}

/**
 * Inserts a star into an excluded name, where it matches none of the `kept` names. Servers exclude a data stream only by a
 * name with a star (seen on Elasticsearch 8 and 9 and OpenSearch 3): they have expanded the star to its indices by then.
 */
function insertStar(name: string, kept: readonly string[]): string {
  const spellings = Array.from(
    { length: name.length + 1 },
    (_, at) => `${name.slice(0, at)}*${name.slice(at)}`,
  );
  return spellings.find((spelling) => !kept.some((one) => isGlobMatch(spelling, one))) ?? name;
}
