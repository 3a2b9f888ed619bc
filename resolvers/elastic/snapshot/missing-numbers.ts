// Lists the sequence numbers among the newest of an index that no document has. Counts of blocks show where some are missing; the
// numbers of these blocks are then looked up.
import { allOf, anyOf, buildIndicesQuery, type Query } from "../client/query-dsl.ts";

/**
 * A document becomes visible at most so many numbers late: more than a server works on at the same time, and few enough to
 * add up for each request. Their sum is exact in floating point.
 */
export const recentNumbers = 50_000;

/** Missing numbers that are listed for an index. Copies of a busy shard often lack a few dozen, which are still being written. */
export const maxMissing = 500;
/** Numbers among which the missing ones are looked for, in one answer, and their ranges: servers limit the clauses of a query. */
const maxSearchedNumbers = 20_000;
const maxSearchedRanges = 500;

/** The last documents of an index, counted in blocks of numbers. */
export interface CountedNumbers {
  readonly state: { readonly newest: number; readonly blockLength: number };
  readonly documents: number;
  /** How many each block has, by its first number; those without any are left out. */
  readonly blocks: ReadonlyMap<number, number>;
}

/**
 * The missing numbers by index, of at most so many indices that have any. Those of which there are too many are left out.
 * `findPresent` finds which numbers of a query there are.
 */
export async function listMissing(
  found: ReadonlyMap<string, CountedNumbers>,
  maxIndices: number,
  findPresent: (query: Query) => Promise<ReadonlyMap<string, ReadonlySet<number>>>,
): Promise<ReadonlyMap<string, readonly number[]>> {
  const gaps = chooseGaps(found, maxIndices);
  const parts = [...gaps].flatMap(([index, own]): readonly Query[] => {
    const numbers = own.map(({ from, to }) => ({ range: { _seq_no: { gt: from - 1, lte: to } } }));
    return own.length === 0 ? [] : [allOf([buildIndicesQuery([index]), anyOf(numbers)])];
  });
  const present = parts.length === 0 ? undefined : await findPresent(anyOf(parts));
  return new Map(
    [...gaps].map(([index, own]) => {
      const numbers = own.flatMap(({ from, to }) =>
        Array.from({ length: to - from + 1 }, (_, at) => from + at),
      );
      return [index, numbers.filter((number) => present?.get(index)?.has(number) !== true)] as const;
    }),
  );
}

/** The gaps of each index, as far as they are few enough to be searched through together. */
function chooseGaps(
  found: ReadonlyMap<string, CountedNumbers>,
  maxIndices: number,
): ReadonlyMap<string, readonly NumberRange[]> {
  const gaps = new Map<string, readonly NumberRange[]>();
  let [numbers, ranges, indices] = [0, 0, 0];
  for (const [index, recent] of found) {
    const own = listGaps(recent);
    if (own === undefined) continue;
    const length = own.reduce((sum, { from, to }) => sum + to - from + 1, 0);
    const isMuch = numbers + length > maxSearchedNumbers || ranges + own.length > maxSearchedRanges;
    if (own.length > 0 && (isMuch || indices >= maxIndices)) continue;
    numbers += length;
    ranges += own.length;
    if (own.length > 0) indices += 1;
    gaps.set(index, own);
  }
  return gaps;
}

/** Both inclusive. */
interface NumberRange {
  readonly from: number;
  readonly to: number;
}

/** The parts of blocks that are not full. Undefined where too many numbers are missing. */
function listGaps({ state, documents, blocks }: CountedNumbers): readonly NumberRange[] | undefined {
  const { newest, blockLength } = state;
  const first = Math.max(0, newest - recentNumbers + 1);
  if (newest - first + 1 - documents > maxMissing) return undefined;
  const gaps: NumberRange[] = [];
  for (let start = first - (first % blockLength); start <= newest; start += blockLength) {
    const range = { from: Math.max(first, start), to: Math.min(newest, start + blockLength - 1) };
    if ((blocks.get(start) ?? 0) < range.to - range.from + 1) gaps.push(range);
  }
  return gaps;
}
