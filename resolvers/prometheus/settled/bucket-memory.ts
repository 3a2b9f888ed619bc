// Keeps values of buckets that no longer change, in blocks of neighbouring buckets of one question. The blocks used longest
// ago make room for others.
import { LRUCache } from "lru-cache";
import { yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { createTooManyPointsError } from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";

/** What is kept for some buckets: NaN where a bucket has no value, or is not known. */
interface KeptBuckets {
  /** By bucket: 1 where its values are kept. */
  readonly known: Uint8Array;
  readonly series: readonly Series[];
}

/** A `question` is all that the values of a bucket depend on, beside its time. Buckets lie on the grid of their step. */
export interface BucketMemory {
  /** @throws {Refused} if series × buckets exceed `pointLimit` */
  read(question: string, buckets: Buckets, pointLimit: number): Promise<KeptBuckets>;
  /** Keeps the values of those buckets that may be kept. Values of other buckets may be anything. */
  keep(
    question: string,
    buckets: Buckets,
    series: readonly Series[],
    mayKeep: (bucket: number) => boolean,
  ): Promise<void>;
}

const bucketsPerBlock = 64;
/** What a series takes in a block beside its text: its values and the objects around them. */
const bytesPerSeries = bucketsPerBlock * 8 + 300;
/** The same of a block. */
const bytesPerBlock = 600;
/** A block that takes more than this share of the memory is not kept: it would push out all others. */
const mostBlockShare = 1 / 4;

interface Block {
  readonly known: Uint8Array;
  /** By the text of their tags. */
  readonly series: Map<string, Series>;
  /** Estimated. */
  bytes: number;
}

/** `recordBytes` hears how much is taken after each change. */
export function createBucketMemory(maxBytes: number, recordBytes: (bytes: number) => void): BucketMemory {
  const blocks = new LRUCache<string, Block>({
    maxSize: maxBytes,
    maxEntrySize: Math.ceil(maxBytes * mostBlockShare),
    sizeCalculation: ({ bytes }) => bytes,
  });
  return {
    async read(question, buckets, pointLimit) {
      const known = new Uint8Array(buckets.count);
      const found = new Map<string, Series>();
      for (const place of listPlaces(question, buckets)) {
        const block = blocks.get(place.key);
        if (block === undefined) continue;
        copyBlock(block, place, known, found, pointLimit);
        await yieldToEventLoop();
      }
      return { known, series: [...found.values()] };
    },
    async keep(question, buckets, series, mayKeep) {
      // Series of one question have tags of the same keys in the same order.
      const keyed = series.map((one) => [JSON.stringify(one.tags), one] as const);
      for (const place of listPlaces(question, buckets)) {
        const block = blocks.get(place.key) ?? createBlock(place.key);
        if (fillBlock(block, place, keyed, mayKeep)) {
          // The same object would not be measured again.
          blocks.delete(place.key);
          blocks.set(place.key, block);
          recordBytes(blocks.calculatedSize);
        }
        await yieldToEventLoop();
      }
    },
  };
}

/** The part of a block that buckets cover: those from `first` until before `end`, the first of them at `at` in the block. */
interface Place {
  readonly key: string;
  readonly first: number;
  readonly end: number;
  readonly at: number;
}

function* listPlaces(question: string, { start, step, count }: Buckets): Iterable<Place> {
  const offset = start / step;
  for (let first = 0; first < count; ) {
    const block = Math.floor((offset + first) / bucketsPerBlock);
    const at = offset + first - block * bucketsPerBlock;
    const end = Math.min(count, first + bucketsPerBlock - at);
    yield { key: `${block} ${question}`, first, end, at };
    first = end;
  }
}

function createBlock(key: string): Block {
  return {
    known: new Uint8Array(bucketsPerBlock),
    series: new Map(),
    bytes: bytesPerBlock + key.length * 2,
  };
}

function copyBlock(
  block: Block,
  { first, end, at }: Place,
  known: Uint8Array,
  found: Map<string, Series>,
  pointLimit: number,
): void {
  known.set(block.known.subarray(at, at + end - first), first);
  for (const [key, { tags, values }] of block.series) {
    const own = values.subarray(at, at + end - first);
    let series = found.get(key);
    if (series === undefined) {
      if (own.every(Number.isNaN)) continue;
      if ((found.size + 1) * known.length > pointLimit) throw createTooManyPointsError(pointLimit);
      series = { tags, values: new Float64Array(known.length).fill(Number.NaN) };
      found.set(key, series);
    }
    series.values.set(own, first);
  }
}

/** Whether the block has changed. */
function fillBlock(
  block: Block,
  { first, end, at }: Place,
  series: readonly (readonly [key: string, series: Series])[],
  mayKeep: (bucket: number) => boolean,
): boolean {
  const added: number[] = [];
  for (let bucket = first; bucket < end; bucket++)
    if (block.known[at + bucket - first] === 0 && mayKeep(bucket)) added.push(bucket);
  for (const [key, { tags, values }] of series) {
    let own = block.series.get(key);
    for (const bucket of added) {
      const value = readNumber(values, bucket);
      if (Number.isNaN(value)) continue;
      if (own === undefined) {
        own = { tags, values: new Float64Array(bucketsPerBlock).fill(Number.NaN) };
        block.series.set(key, own);
        // The text stands in the key, and its parts in the tags.
        block.bytes += bytesPerSeries + key.length * 4;
      }
      own.values[at + bucket - first] = value;
    }
  }
  for (const bucket of added) block.known[at + bucket - first] = 1;
  return added.length > 0;
}
