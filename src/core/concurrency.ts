// Several calls to sources for one request: some at a time, so that one request does not take all of a source, and all
// given up as soon as one fails.

/** The results in the order of the items. Rejects with the first failure, having aborted what was under way. */
export async function parallel<Item, Result>(
  items: readonly Item[],
  width: number,
  work: (item: Item, signal: AbortSignal) => Promise<Result>,
  signal: AbortSignal,
): Promise<readonly Result[]> {
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const entries = items.entries();
  const results: Result[] = [];
  const worker = async (): Promise<void> => {
    for (const [index, item] of entries) {
      both.throwIfAborted();
      results[index] = await work(item, both);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
  } catch (error) {
    stop.abort(error);
    throw error;
  }
  return results;
}
