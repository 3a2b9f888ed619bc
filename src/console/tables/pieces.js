// A range in pieces of time, so that figures of the whole are also known over time. Both ends of a range belong to it, so a
// piece ends a nanosecond before the next one begins: nothing is counted twice or left out.

/** @typedef {{ readonly from: string, readonly to: string }} Bounds */

export const pieceCount = 12;

/**
 * @param {Bounds} bounds
 * @param {number} count most pieces
 * @returns {readonly Bounds[]} by time; one where the range is too short to be cut
 */
export function splitRange({ from, to }, count) {
  const [start, end] = [Date.parse(from), Date.parse(to)];
  const step = Math.ceil((end - start) / count);
  if (step < 1) return [{ from, to }];
  const cuts = Array.from({ length: count - 1 }, (_, at) => start + step * (at + 1)).filter(
    (cut) => cut < end,
  );
  const print = (/** @type {number} */ at) => new Date(at).toISOString();
  const starts = [from, ...cuts.map(print)];
  const ends = [...cuts.map((cut) => print(cut - 1).replace("Z", "999999Z")), to];
  return starts.map((begin, at) => ({ from: begin, to: ends[at] ?? to }));
}

/**
 * Asks for all pieces, two at a time so that others get their turn.
 * @template T
 * @param {readonly Bounds[]} pieces
 * @param {(piece: Bounds) => Promise<T>} ask
 * @returns {Promise<readonly T[]>} in the order of the pieces
 */
export async function readPieces(pieces, ask) {
  /** @type {T[]} */
  const answers = [];
  for (let at = 0; at < pieces.length; at += 2)
    answers.push(...(await Promise.all(pieces.slice(at, at + 2).map(ask))));
  return answers;
}
