// The values that string operators compare at a path of a line's body, as `matches` sees them: numbers in the source's
// spelling, an array by its elements, and nothing for `null`, an empty array and an object.
import type { Path } from "./ast.ts";
import { isNumberText, openBody, spelling } from "./json-body.ts";
import { isArrayIndex, readChild } from "./matches.ts";

/** For many lines: returns the distinct values that a body has at the path, none where it lacks the path. Never throws. */
export function createPathReader(path: Path): (json: string) => ReadonlySet<string> {
  return (json) => {
    const body = openBody(json);
    // A double has lost the spelling, so a body with a number at the path is read again.
    return listValues(body.plain(), path) ?? listValues(body.exact(), path) ?? new Set();
  };
}

/** Undefined where a number has no spelling. The stack of places is ours: arrays may be nested deeper than the engine's. */
function listValues(root: unknown, path: Path): Set<string> | undefined {
  const values = new Set<string>();
  const waiting: { readonly node: unknown; readonly at: number }[] = [{ node: root, at: 0 }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { node, at } = next;
    const step = path[at];
    if (Array.isArray(node) && !isArrayIndex(step)) {
      for (const element of node) waiting.push({ node: element, at });
    } else if (step !== undefined) {
      if (typeof node === "object" && node !== null)
        waiting.push({ node: readChild(node, step), at: at + 1 });
    } else if (typeof node === "number") {
      return undefined;
    } else {
      const text = toComparedText(node);
      if (text !== undefined) values.add(text);
    }
  }
  return values;
}

function toComparedText(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return String(value);
  return isNumberText(value) ? value[spelling] : undefined;
}
