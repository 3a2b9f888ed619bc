// Several readings of a source at once: its sites, their sources, parts of long lists of ids.

/** How many are read at once. */
const abreast = 4;

/** What all of them give, as it comes. */
export async function* together<T>(starts: readonly (() => AsyncGenerator<T>)[]): AsyncGenerator<T> {
  type Step = { readonly of: AsyncGenerator<T>; readonly result: IteratorResult<T> };
  const waiting = [...starts];
  const steps = new Map<AsyncGenerator<T>, Promise<Step>>();
  const advance = (of: AsyncGenerator<T>) => {
    const step = of.next().then((result) => ({ of, result }));
    // One that fails while another is waited for is met in the race.
    step.catch(() => undefined);
    steps.set(of, step);
  };
  try {
    for (;;) {
      while (steps.size < abreast) {
        const start = waiting.shift();
        if (start === undefined) break;
        advance(start());
      }
      if (steps.size === 0) return;
      const { of, result } = await Promise.race(steps.values());
      if (result.done === true) steps.delete(of);
      else {
        yield result.value;
        advance(of);
      }
    }
  } finally {
    // Each frees what it holds at the source; one that still waits does so once its signal has stopped it.
    for (const of of steps.keys()) of.return(undefined).catch(() => undefined);
  }
}
