// How large the hits of a pattern are. A search names their number, and what it returns is held as a whole.
import type { ElasticClient } from "../client/client.ts";

/** One is held back, and fewer would be read again and again. */
const leastHits = 4;
/** What one search for a page, or one page of a scroll, returns. Short hits stay far below it. */
export const pageBytes = 8_388_608;

/** How many hits of this size fit into the bytes. */
export function fitHits(bytes: number, bytesPerHit: number, most: number): number {
  return Math.min(most, Math.max(leastHits, Math.floor(bytes / bytesPerHit)));
}

/** What one hit took in the last response, by pattern: the next request may be the first of many at once. */
const knownSizes = new WeakMap<ElasticClient, Map<string, number>>();

export function findHitSize(client: ElasticClient, pattern: string): number | undefined {
  return knownSizes.get(client)?.get(pattern);
}

export function recordHitSize(client: ElasticClient, pattern: string, bytes: number): void {
  const sizes = knownSizes.get(client) ?? new Map<string, number>();
  knownSizes.set(client, sizes.set(pattern, bytes));
}
