// Which names and indices a pattern reaches, by the rules of the servers.
import { requireFirst, requireLast } from "../../../src/core/collections.ts";
import type { ListedIndex } from "./listed-indices.ts";

/** Whether a pattern matches a name: one part matches it, and no later part excludes it. */
export function isNameInPattern(index: string, name: string): boolean {
  return index.split(",").reduce((matched, part) => {
    if (part.startsWith("-")) return matched && !isGlobMatch(part.slice(1), name);
    return matched || isGlobMatch(part, name);
  }, false);
}

/** The name of a data stream's backing index; the first group is the data stream. */
const backingIndexPattern = /^\.ds-(.+?)(?:-\d{4}\.\d{2}\.\d{2})?-\d{6}$/;

/** Limitations for `readout check`: data streams that a pattern excludes without a star, which has no effect (see `nameAlone`). */
export function explainIneffectiveExclusions(index: string, indices: Iterable<string>): readonly string[] {
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

/**
 * The indices behind a listed name that a pattern reaches. A part with a star matches aliases too. An exclusion counts after a
 * part with a star alone: with a star it takes away what it matches by any name, without one the index of that very name, but no
 * alias and no data stream. (Seen on Elasticsearch 8 and OpenSearch 2.)
 */
export function listReached(
  pattern: string,
  { own, aliases, isStream, indices }: ListedIndex,
): readonly string[] {
  const names = [own, ...aliases];
  let reached: readonly string[] = [];
  let mayExclude = false;
  for (const part of pattern.split(",")) {
    if (!part.startsWith("-")) {
      mayExclude ||= part.includes("*");
      if (names.some((name) => isGlobMatch(part, name))) reached = indices;
      continue;
    }
    if (!mayExclude) continue;
    const excluded = part.slice(1);
    if (excluded.includes("*")) reached = names.some((name) => isGlobMatch(excluded, name)) ? [] : reached;
    else if (excluded !== own) reached = reached.filter((index) => index !== excluded);
    else if (!isStream) reached = [];
  }
  return reached;
}
