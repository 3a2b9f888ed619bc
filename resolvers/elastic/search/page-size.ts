// How many documents a search of spans asks for. What it returns is held as a whole, here and at the source, so that documents
// are asked for by what those of their pattern took last: errors with the source around each line of their stacks take a
// thousand times as much as others.
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { findHitSize, pageBytes, recordHitSize } from "./hit-size.ts";
import type { ParsedResponse } from "./search-response.ts";

/**
 * The first search has room for what most look-ups find, and a scroll reads what exceeds it, in pages that suit the length of
 * the documents. `unknown` is for the first search of a pattern.
 */
const pageSizes = { first: 5_000, scroll: 1_000, unknown: 256 } as const;
/** The most that a first search returns of documents whose size is known. */
const firstBytes = 33_554_432;
/**
 * The length of a page, where its documents are short: longer ones cost memory, shorter ones the source's time. `pageBytes` is the
 * most for fewer documents than a scroll asks for.
 */
const shortPageBytes = 2_097_152;
/** Fewer documents than this tell nothing of others. */
const sampleSize = 20;

export function chooseFirstSize(client: ElasticClient, pattern: string): number {
  const bytesPerHit = findHitSize(client, pattern);
  if (bytesPerHit === undefined) return pageSizes.unknown;
  return Math.min(pageSizes.first, Math.max(1, Math.floor(firstBytes / bytesPerHit)));
}

/** Documents of a page, by those of the first search if there was one. */
export function choosePageSize(client: ElasticClient, pattern: string, first?: ParsedResponse): number {
  const isEmpty = first === undefined || first.count === 0;
  const bytesPerHit = isEmpty ? findHitSize(client, pattern) : first.bytes / first.count;
  if (bytesPerHit === undefined) return pageSizes.scroll;
  const countFitting = (limit: number) => Math.floor(limit / bytesPerHit);
  const size = Math.max(countFitting(shortPageBytes), Math.min(countFitting(pageBytes), pageSizes.scroll), 1);
  return Math.min(size, pageSizes.first);
}

/** Of a search that asked for `size`: a full page tells enough, however few they are. */
export function recordPageHitSize(
  client: ElasticClient,
  pattern: string,
  size: number,
  { bytes, count }: ParsedResponse,
): void {
  if (count === 0) return;
  if (count >= Math.min(sampleSize, size) || bytes >= shortPageBytes)
    recordHitSize(client, pattern, bytes / count);
}

/**
 * How many documents to ask for after a response with so many that was more than one may be. @throws `error`, where it is another
 * one, or that of a single document
 */
export function reducePageSize(client: ElasticClient, pattern: string, size: number, error: unknown): number {
  const isTooLarge = error instanceof BackendError && error.cause instanceof RangeError;
  if (!isTooLarge || size <= 1) throw error;
  const fewer = Math.max(1, Math.floor(size / 10));
  recordHitSize(client, pattern, pageBytes / fewer);
  return fewer;
}
