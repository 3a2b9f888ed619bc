// The paths of the bodies of log lines, so that an agent knows what it may filter and group by.

import { createPause } from "../core/async/turns.ts";
import { JsonSyntaxError, parseJsonInTurns } from "../core/json/json-in-turns.ts";
import { formatScalar } from "../core/json/lossless-json.ts";
import type { Path } from "../log-query/ast.ts";
import { printPath } from "../log-query/field.ts";

/** More than an agent reads, and than a few pages hold. */
const maxPaths = 10_000;
const maxDepth = 8;
const maxPathChars = 500;

interface BodyPaths {
  /** Sorted. */
  readonly paths: readonly string[];
  /** What was left out. */
  readonly note?: string;
}

/** The paths of these JSON texts, as queries spell them; those that are met first where they are too many. */
export async function listBodyPaths(bodies: readonly string[], signal?: AbortSignal): Promise<BodyPaths> {
  const found = new Set<string>();
  let isBounded = false;
  const pause = createPause(signal);
  for (const body of bodies) {
    for (const path of walkPaths(await parseBody(body), undefined, 0)) {
      const paused = pause();
      if (paused !== undefined) await paused;
      if (path === undefined) continue;
      if (path === beyond) isBounded = true;
      else if (found.size < maxPaths || found.has(path)) found.add(path);
      else return describePaths(found, isBounded, true);
    }
  }
  return describePaths(found, isBounded, false);
}

function describePaths(found: ReadonlySet<string>, isBounded: boolean, isFull: boolean): BodyPaths {
  const notes = [
    ...(isFull ? [`Only the first ${maxPaths} paths are listed.`] : []),
    ...(isBounded
      ? [`Paths deeper than ${maxDepth} levels or longer than ${maxPathChars} characters are left out.`]
      : []),
  ];
  return { paths: [...found].sort(), ...(notes.length > 0 && { note: notes.join(" ") }) };
}

/** Undefined for a body that is no JSON: it has no fields. */
async function parseBody(body: string): Promise<unknown> {
  try {
    return await parseJsonInTurns(body);
  } catch (error) {
    if (error instanceof JsonSyntaxError) return undefined;
    throw error;
  }
}

/** Stands for a path that is too deep or too long. */
const beyond = Symbol("beyond");

/** The place of a value below the root of a body. */
interface Place {
  readonly keys: Path;
  /** As a query spells it. */
  readonly text: string;
}

/** Visits each value, so that whoever takes them can pause: its path where it is a scalar that a query can name. */
function* walkPaths(
  value: unknown,
  place: Place | undefined,
  depth: number,
): Generator<string | typeof beyond | undefined> {
  const path = place?.text ?? "";
  if (path.length > maxPathChars) yield beyond;
  else if (formatScalar(value) !== undefined) yield isNameable(path) ? path : undefined;
  else if (typeof value !== "object" || value === null) yield undefined;
  else if (depth === maxDepth) yield beyond;
  else for (const [own, one] of listMembers(value, place)) yield* walkPaths(one, own, depth + 1);
}

/** No query names the root, the key "" alone, or a key with NUL or half a surrogate pair. */
function isNameable(path: string): boolean {
  return path !== "" && path.isWellFormed() && !path.includes("\0");
}

/** The members of a container with their places: those of an array have its own. */
function* listMembers(
  value: object,
  place: Place | undefined,
): Generator<readonly [Place | undefined, unknown]> {
  if (Array.isArray(value)) for (const one of value) yield [place, one];
  else
    for (const [key, one] of Object.entries(value)) {
      const keys: Path = place === undefined ? [key] : [...place.keys, key];
      yield [{ keys, text: printPath(keys, false) }, one];
    }
}
