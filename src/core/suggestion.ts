// Suggests the word that a misspelt one stands for. A message has words of ours only, never the misspelt one, which may be a
// secret.
import { requireAt, requireLast } from "./collections.ts";

/** `; did you mean "x"?` for a known word that is near, else the known words if there are a few. */
export function formatSuggestion(word: string, known: readonly string[]): string {
  const near = findNearest(word, known);
  if (near !== undefined) return formatQuestion(near);
  return known.length > 0 && known.length <= 20 ? `; known here: ${known.join(", ")}` : "";
}

/** What is expected in place of `input`: one of the words. */
export function formatChoice(input: unknown, words: readonly string[]): string {
  const near = typeof input === "string" ? findNearest(input, words) : undefined;
  const list = [words.slice(0, -1).join(", "), ...words.slice(-1)].filter((part) => part !== "").join(" or ");
  return `expected ${list}${near === undefined ? "" : formatQuestion(near)}`;
}

function formatQuestion(near: string): string {
  return `; did you mean "${near}"?`;
}

/** The known word that is at most two edits away, and less than most of a short word, in any case of its letters. */
function findNearest(word: string, known: readonly string[]): string | undefined {
  return known
    .map((candidate) => ({
      candidate,
      distance: calculateEditDistance(word.toLowerCase(), candidate.toLowerCase()),
    }))
    .filter(
      ({ candidate, distance }) => distance <= 2 && 2 * distance <= Math.min(word.length, candidate.length),
    )
    .toSorted((a, b) => a.distance - b.distance)[0]?.candidate;
}

/** The Levenshtein distance; 3 where the lengths differ by more than 2. */
function calculateEditDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3;
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (const [index, letter] of [...a].entries()) {
    const next = [index + 1];
    for (const [column, other] of [...b].entries()) {
      const replaced = requireAt(row, column) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, requireAt(row, column + 1) + 1, requireAt(next, column) + 1));
    }
    row = next;
  }
  return requireLast(row);
}
