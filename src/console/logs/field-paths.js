// Which fields log lines have, as the query language spells them.
import { listEntries, readJson, toScalarText } from "../base/json.js";
import { printPath } from "../search/query.js";

/** A field of every line. */
export const lineFields = ["severity", "source", "hostname", "group"];
/** How columns and counts spell a key `source` of the body, which is not the source of the line. Queries know it as `source`. */
export const bodySource = "\\source";
const maxDepth = 8;
const maxListed = 200;

/**
 * `spelling` is how queries, counts and columns name it; `lines` how many of the given lines have it.
 * @typedef {{ readonly spelling: string, readonly path: readonly string[], readonly lines: number }} BodyField
 */

/**
 * The fields of the bodies of lines, those of most lines first.
 * @param {readonly { readonly json: string }[]} lines
 * @returns {readonly BodyField[]}
 */
export function collectBodyFields(lines) {
  /** @type {Map<string, { path: readonly string[], lines: number }>} */
  const found = new Map();
  for (const { json } of lines) {
    /** @type {Map<string, readonly string[]>} */
    const own = new Map();
    collectPaths(readBody(json), [], own);
    for (const [key, path] of own) {
      const known = found.get(key);
      if (known === undefined) found.set(key, { path, lines: 1 });
      else known.lines += 1;
    }
  }
  return [...found.values()]
    .map(({ path, lines: count }) => ({ spelling: printBodyField(path), path, lines: count }))
    .sort((a, b) => b.lines - a.lines || (a.spelling < b.spelling ? -1 : 1));
}

/**
 * The fields of the bodies of lines for a list of them, and how many others are left out.
 * @param {readonly { readonly json: string }[]} lines
 */
export function chooseListedFields(lines) {
  const all = collectBodyFields(lines);
  return { fields: all.slice(0, maxListed), left: Math.max(0, all.length - maxListed) };
}

/** @param {readonly string[]} path */
function printBodyField(path) {
  return path.length === 1 && path[0] === "source" ? bodySource : printPath(path);
}

/** @param {unknown} value @param {readonly string[]} path @param {Map<string, readonly string[]>} own */
function collectPaths(value, path, own) {
  if (path.length > maxDepth) return;
  if (Array.isArray(value)) {
    // A path matches whatever element it holds for.
    for (const one of value) collectPaths(one, path, own);
    return;
  }
  const entries = listEntries(value);
  if (entries === undefined) {
    if (value !== null && path.length > 0 && path.every(isSpellable)) own.set(JSON.stringify(path), path);
    return;
  }
  for (const [key, child] of entries) collectPaths(child, [...path, key], own);
}

/** @param {string} key */
function isSpellable(key) {
  return key !== "" && !/[\0\p{Surrogate}]/u.test(key);
}

/** @param {string} json */
export function readBody(json) {
  try {
    return readJson(json);
  } catch {
    // Deeper than the browser reads.
    return undefined;
  }
}

/**
 * The texts that a line has at a path of its body.
 * @param {{ readonly json: string }} line @param {readonly string[]} path keys
 * @returns {readonly string[]}
 */
export function listFieldTexts({ json }, path) {
  return walk(readBody(json), path);
}

/** @param {unknown} value @param {readonly string[]} path @returns {readonly string[]} */
function walk(value, path) {
  if (Array.isArray(value)) return value.flatMap((one) => walk(one, path));
  const [key, ...rest] = path;
  const entries = listEntries(value);
  if (key !== undefined) {
    const found = entries?.find(([name]) => name === key);
    return found === undefined ? [] : walk(found[1], rest);
  }
  const text = value === null ? undefined : toScalarText(value);
  return text === undefined ? [] : [text];
}
