// The names of a cluster as few patterns: what differs by its date, version or counter alone is one, since tomorrow's
// index belongs to it as well. Each name lies behind exactly one pattern, so that no document is read as two sources.

export interface IndexPattern {
  /** As a request names it: exclusions stand behind what they are taken from. */
  readonly index: string;
  readonly names: readonly string[];
  /** More than their dates, versions and counters differ. */
  readonly merged: boolean;
}

/** Beyond this, names that begin alike are one. */
const maxPatterns = 24;
/** What a request's address has room for beside the names that it asks for. */
const maxExclusions = 24;

/** Sorted by `arrayIndex`. Hidden names (a leading dot) are left out; what is of several kinds is not gathered. */
export function collapseIndexNames(
  names: readonly string[],
  most = maxPatterns,
  kindOf: (name: string) => string = () => "",
  isStream: (name: string) => boolean = () => false,
): readonly IndexPattern[] {
  const visible = [...new Set(names)].filter((name) => !name.startsWith("."));
  let stems = groupNames(visible, deriveStem);
  for (const patternOf of gatherings) if (stems.size > most) stems = mergeStems(stems, patternOf, kindOf);
  return mergeOverlapping(stems)
    .map(([stem, own]) => ({
      index: [stem, ...listExclusions(stem, own, visible, stems, isStream)].join(","),
      names: own.sort(),
      merged: new Set(own.map(deriveStem)).size > 1,
    }))
    .sort((a, b) => (a.index < b.index ? -1 : 1));
}

/** Whether a name lies behind a pattern: the stars of one part, less what later parts take away. */
export function isNameInPattern(index: string, name: string): boolean {
  return index.split(",").reduce((held, part) => {
    if (part.startsWith("-")) return held && !isGlobMatch(part.slice(1), name);
    return held || isGlobMatch(part, name);
  }, false);
}

/** The index of a data stream, by its name. */
const backingIndexPattern = /^\.ds-(.+?)(?:-\d{4}\.\d{2}\.\d{2})?-\d{6}$/;

/** What a pattern means to leave out and holds all the same, for `readout check`: see `insertStar`. */
export function listKeptStreams(index: string, indices: Iterable<string>): readonly string[] {
  const streams = new Set([...indices].map((name) => backingIndexPattern.exec(name)?.[1] ?? name));
  const named = index.split(",").flatMap((part) => (part.startsWith("-") ? [part.slice(1)] : []));
  return named
    .filter((name) => streams.has(name) && !isNameInPattern(index, name))
    .map((name) => `-${name} does not take the data stream out of the pattern; -*${name} does`);
}

/** Whether one part of a pattern, with its stars, stands for a name. */
export function isGlobMatch(pattern: string, name: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  if (rest.length === 0) return name === pattern;
  if (!name.startsWith(first)) return false;
  let at = first.length;
  const last = rest.pop() ?? "";
  for (const part of rest) {
    const found = name.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return name.length - last.length >= at && name.endsWith(last);
}

/** What dates, versions and counters look like: `2026.01.31`, `2026-w05`, `20260131`, `8.19.0`, `-000001`. */
const counterPattern =
  /(?<![A-Za-z0-9])(?:\d{4}[.\-_](?:w\d{2}|\d{2})(?:[.\-_]\d{2}){0,2}|\d{8}|\d+(?:\.\d+){2,3}|\d{6})(?![A-Za-z0-9])/g;

function deriveStem(name: string): string {
  return name.replaceAll(counterPattern, "*").replaceAll(/\*(?:[.\-_]\*)+/g, "*");
}

/** The pattern of those that begin as a stem does; none where it has no such beginning. */
type StemWidener = (stem: string) => string | undefined;

/** A data stream's type and the first word of its dataset; the first word of any name. */
const beginnings = [/^(?:logs|traces|metrics)-[^-._*]+[-._]/, /^[^-._*]+[-._]/];
/** A data stream but for its namespace, and that. */
const spaced = /^((?:logs|traces|metrics)-[^-*]+)(-[^-*]+)$/;

const withinNamespace = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const [, head = "", namespace] = spaced.exec(stem) ?? [];
      const begin = beginning.exec(head)?.[0];
      return begin && `${begin}*${namespace}`;
    },
);
const overNamespaces = beginnings.map(
  (beginning): StemWidener =>
    (stem) => {
      const begin = beginning.exec(stem)?.[0];
      return begin && `${begin}*`;
    },
);
/** In turns, until there are few enough. A namespace is an environment, and many namespaces are many tenants. */
const gatherings = [...withinNamespace, ...overNamespaces];

/** Patterns that begin alike, where there are more than two of them, become one: of each beginning those of one kind. */
function mergeStems(
  stems: ReadonlyMap<string, readonly string[]>,
  patternOf: StemWidener,
  kindOf: (name: string) => string,
): Map<string, string[]> {
  const crowded = new Map<string, string[]>();
  for (const [pattern, alike] of groupNames([...stems.keys()], (stem) => patternOf(stem) ?? "")) {
    const chosen = pattern === "" ? [] : selectOneKind(alike, stems, kindOf);
    for (const stem of alike) {
      const key = chosen.includes(stem) ? pattern : stem;
      crowded.set(key, [...(crowded.get(key) ?? []), ...(stems.get(stem) ?? [])]);
    }
  }
  return crowded;
}

/** The most that are of one kind, and that none of the others holds a name of; empty where these are too many to exclude. */
function selectOneKind(
  alike: readonly string[],
  stems: ReadonlyMap<string, readonly string[]>,
  kindOf: (name: string) => string,
): readonly string[] {
  const namesOf = (stem: string) => stems.get(stem) ?? [];
  const kinds = groupNames(alike, (stem) => {
    const own = new Set(namesOf(stem).map(kindOf));
    return own.size === 1 ? [...own].join() : `several, of ${stem}`;
  });
  let [chosen = []] = [...kinds.values()].sort((a, b) => b.length - a.length);
  for (let size = -1; size !== chosen.length; ) {
    size = chosen.length;
    const others = alike.filter((stem) => !chosen.includes(stem));
    chosen = chosen.filter(
      (stem) => !others.some((other) => namesOf(stem).some((name) => isGlobMatch(other, name))),
    );
  }
  return chosen.length > 2 && alike.length - chosen.length <= maxExclusions ? chosen : [];
}

function groupNames(names: readonly string[], keyOf: (name: string) => string): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const name of names) {
    const key = keyOf(name);
    const own = groups.get(key);
    if (own === undefined) groups.set(key, [name]);
    else own.push(name);
  }
  return groups;
}

/** Two patterns that each hold a name of the other cannot be told apart by exclusion: the shorter one takes both. */
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

/** The patterns of names that this one would hold without being theirs. */
function listExclusions(
  stem: string,
  own: readonly string[],
  names: readonly string[],
  stems: ReadonlyMap<string, readonly string[]>,
  isStream: (name: string) => boolean,
): readonly string[] {
  if (!stem.includes("*")) return [];
  const strangers = names.filter((name) => !own.includes(name) && isGlobMatch(stem, name));
  const of = [...stems].filter(([, theirs]) => theirs.some((name) => strangers.includes(name)));
  return of
    .map(([other]) => `-${other.includes("*") || !isStream(other) ? other : insertStar(other, own)}`)
    .sort();
}

/**
 * A server takes a data stream out of a pattern only by a name with a star (seen on Elasticsearch 8 and 9 and OpenSearch 3): the star has stood
 * for its indices by then. So one is put where it stands for nothing, in this name or in those that are kept.
 */
function insertStar(name: string, kept: readonly string[]): string {
  const spellings = Array.from(
    { length: name.length + 1 },
    (_, at) => `${name.slice(0, at)}*${name.slice(at)}`,
  );
  return spellings.find((spelling) => !kept.some((one) => isGlobMatch(spelling, one))) ?? name;
}
