// Collapses the index names of a cluster into few patterns. Names that differ by a date, version or counter only form one
// pattern, since tomorrow's index belongs to it too. Each index is reached by exactly one pattern, by its name or by an alias,
// so that no document belongs to two sources.
import { requireKey } from "../../../src/core/collections.ts";
import { areEnvironments } from "../../../src/core/environments.ts";
import { isGlobMatch, listReached } from "./index-patterns.ts";
import type { ListedIndex } from "./listed-indices.ts";

export interface IndexPattern {
  /** The pattern as a request names it; exclusions follow what they are taken from. */
  readonly index: string;
  readonly members: readonly ListedIndex[];
  /** Whether the names differ by more than dates, versions and counters. */
  readonly isMerged: boolean;
}

/** The patterns that `init` proposes at most, where names can be merged. Those of several environments can not. */
const maxPatterns = 24;
/** The address of a request has room for this many exclusions beside its patterns. */
const maxExclusions = 24;

interface CollapseOptions {
  /** With more patterns than this, names with a common beginning are merged. */
  readonly limit?: number | undefined;
  /** Only names of one kind are merged. By default, all are of one. */
  readonly readKind?: ((name: string) => string) | undefined;
  /** Names that the patterns may not reach. */
  readonly others?: readonly ListedIndex[];
}

/** Patterns for all names, sorted by `index`. */
export function collapseIndices(
  listed: readonly ListedIndex[],
  { limit = maxPatterns, readKind = () => "", others = [] }: CollapseOptions = {},
): readonly IndexPattern[] {
  const byName = new Map(listed.map((one) => [one.name, one]));
  let stems = Map.groupBy(byName.keys(), deriveStem);
  for (const widen of withinNamespace) if (stems.size > limit) stems = mergeStems(stems, widen, readKind);
  const keptApart = listKeptApart(listed);
  for (const widen of acrossNamespaces) {
    const canMerge = (name: string) => !keptApart.has(name);
    if (stems.size > limit) stems = mergeStems(stems, widen, readKind, canMerge);
  }
  const patterns = mergeOverlapping(stems);
  const stemOf = new Map(patterns.flatMap(([stem, names]) => names.map((name) => [name, stem])));
  return patterns
    .map(([stem, names]) => {
      const members = names.sort().map((name) => requireKey(byName, name));
      const foreign = [...byName.values(), ...others].filter(({ name }) => stemOf.get(name) !== stem);
      return {
        index: excludeOthers(stem, members, foreign, ({ name }) => stemOf.get(name) ?? deriveOtherStem(name)),
        members,
        isMerged: new Set(names.map(deriveStem)).size > 1,
      };
    })
    .sort((a, b) => (a.index < b.index ? -1 : 1));
}

/**
 * The pattern for these members alone, without those of `others` that it reaches. One without a star cannot exclude: its
 * members get patterns of their own.
 */
export function narrowPattern(
  index: string,
  members: readonly ListedIndex[],
  others: readonly ListedIndex[],
): readonly IndexPattern[] {
  const foreign = others.filter((one) => !members.includes(one));
  if (!index.includes("*") && foreign.some((one) => listReached(index, one).length > 0))
    return collapseIndices(members, { limit: Number.POSITIVE_INFINITY, others: foreign });
  return [{ index: excludeOthers(index, members, foreign), members, isMerged: false }];
}

/**
 * The pattern with exclusions for those of `others` that it reaches. Excludes them by their stem, which also holds for their
 * indices of tomorrow, unless that takes away a member.
 */
export function excludeOthers(
  pattern: string,
  members: readonly ListedIndex[],
  others: readonly ListedIndex[],
  findStem = ({ name }: ListedIndex): string => deriveOtherStem(name),
): string {
  const kept = members.flatMap(({ own, aliases }) => [own, ...aliases]);
  const foreign = others.filter((one) => listReached(pattern, one).length > 0);
  const exclusions = [...Map.groupBy(foreign, findStem)].flatMap(([stem, some]) => {
    const isUsable = stem.includes("*") && !kept.some((name) => isGlobMatch(stem, name));
    return isUsable ? [stem] : some.flatMap((one) => nameAlone(one, kept));
  });
  return [pattern, ...[...new Set(exclusions)].sort().map((exclusion) => `-${exclusion}`)].join(",");
}

/** Dates, versions and counters: `2026.01.31`, `2026-w05`, `20260131`, `8.19.0`, `-000001`. */
const counterPattern =
  /(?<![A-Za-z0-9])(?:\d{4}[.\-_](?:w\d{2}|\d{2})(?:[.\-_]\d{2}){0,2}|\d{8}|\d+(?:\.\d+){2,3}|\d{6})(?![A-Za-z0-9])/g;

/** The stem of an index that has no pattern of its own; copies that OpenSearch's policies make have one end. */
function deriveOtherStem(name: string): string {
  return name.endsWith("_shrunken") ? "*_shrunken" : deriveStem(name);
}

function deriveStem(name: string): string {
  return name.replaceAll(counterPattern, "*").replaceAll(/\*(?:[.\-_]\*)+/g, "*");
}

/** Returns a pattern for all names with the same beginning as `stem`; undefined if it has no such beginning. */
type StemWidener = (stem: string) => string | undefined;

/** The type of a data stream with the first word of its dataset; then the first word of any name. */
const beginnings = [/^(?:logs|traces|metrics)-[^-._*]+[-._]/, /^[^-._*]+[-._]/];
/** The name of a data stream, as what precedes its namespace, and the namespace. */
const dataStreamPattern = /^(?<head>(?:logs|traces|metrics)-[^-*]+)-(?<namespace>[^-*]+)$/;

/** The namespace of a data stream `<type>-<dataset>-<namespace>`. A date or a counter is none. */
function readNamespace(name: string): string | undefined {
  return dataStreamPattern.exec(deriveStem(name))?.groups?.namespace;
}

/** The namespaces of those that are data streams, sorted. */
export function listNamespaces(listed: Iterable<ListedIndex>): readonly string[] {
  return [...new Set([...listed].flatMap(({ name }) => readNamespace(name) ?? []))].sort();
}

/**
 * The names with a namespace that is an environment. Those of metrics are counted apart: sites have no sources of them, so they do
 * not say what the namespaces of logs and traces are.
 */
function listKeptApart(listed: readonly ListedIndex[]): ReadonlySet<string> {
  const streams = listed.filter(({ name }) => readNamespace(name) !== undefined);
  const parts = Map.groupBy(streams, ({ name }) => name.startsWith("metrics-")).values();
  const ofEnvironments = [...parts].filter((part) => areEnvironments(listNamespaces(part)));
  return new Set(ofEnvironments.flat().map(({ name }) => name));
}

const withinNamespace = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const { head, namespace } = dataStreamPattern.exec(stem)?.groups ?? {};
      const start = head === undefined ? undefined : beginning.exec(head)?.[0];
      return start && `${start}*-${namespace}`;
    },
);
/** Applied last, since a namespace may be a tenant. */
const acrossNamespaces = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const start = beginning.exec(stem)?.[0];
      return start && `${start}*`;
    },
);

/** Merges stems with the same beginning, if more than two whose names can be merged are of one kind. */
function mergeStems(
  stems: ReadonlyMap<string, readonly string[]>,
  widen: StemWidener,
  readKind: (name: string) => string,
  canMerge: (name: string) => boolean = () => true,
): Map<string, string[]> {
  const merged = new Map<string, string[]>();
  for (const [pattern, candidates] of Map.groupBy(stems.keys(), (stem) => widen(stem) ?? "")) {
    const chosen = pattern === "" ? [] : selectOneKind(candidates, stems, readKind, canMerge);
    for (const stem of candidates) {
      const key = chosen.includes(stem) ? pattern : stem;
      merged.set(key, [...(merged.get(key) ?? []), ...requireKey(stems, stem)]);
    }
  }
  return merged;
}

/**
 * The largest set of mergeable candidates of one kind none of whose names matches another candidate. Empty if the set is too small, or
 * if it leaves too many candidates to exclude.
 */
function selectOneKind(
  candidates: readonly string[],
  stems: ReadonlyMap<string, readonly string[]>,
  readKind: (name: string) => string,
  canMerge: (name: string) => boolean,
): readonly string[] {
  const mergeable = candidates.filter((stem) => requireKey(stems, stem).every(canMerge));
  const kinds = Map.groupBy(mergeable, (stem) => {
    const own = new Set(requireKey(stems, stem).map(readKind));
    return own.size === 1 ? [...own].join() : `several, of ${stem}`;
  });
  let [chosen = []] = [...kinds.values()].sort((a, b) => b.length - a.length);
  for (let size = -1; size !== chosen.length; ) {
    size = chosen.length;
    const others = candidates.filter((stem) => !chosen.includes(stem));
    chosen = chosen.filter(
      (stem) => !others.some((other) => requireKey(stems, stem).some((name) => isGlobMatch(other, name))),
    );
  }
  return chosen.length > 2 && candidates.length - chosen.length <= maxExclusions ? chosen : [];
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

/**
 * What takes one index or data stream out of a pattern, and none of the `kept` names. Servers exclude a data stream only by a
 * name with a star (seen on Elasticsearch 8 and 9 and OpenSearch 3): they have expanded the pattern to its indices by then.
 */
function nameAlone({ own, isStream, indices }: ListedIndex, kept: readonly string[]): readonly string[] {
  if (!isStream) return [own];
  const spellings = Array.from({ length: own.length + 1 }, (_, at) => `${own.slice(0, at)}*${own.slice(at)}`);
  const usable = spellings.find((spelling) => !kept.some((one) => isGlobMatch(spelling, one)));
  return usable === undefined ? indices : [usable];
}
