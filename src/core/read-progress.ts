// How far a request has read from its sources, for the sentence that it ends with when its deadline passes.
import { type Millis, printDuration } from "./time.ts";

/** Documents, over all backends of a request. `wanted` grows as the request learns how many there are. */
export interface ReadProgress {
  wanted: number;
  read: number;
  /** When the last of them came, on the clock of `performance.now`. */
  lastReadAt: Millis;
}

/** A source that has sent nothing for this long, or a quarter of the deadline, is the one that is late. */
const maxSilence: Millis = 5_000;

export function createReadProgress(): ReadProgress {
  return { wanted: 0, read: 0, lastReadAt: 0 };
}

/** What a client reads when the deadline passes; undefined where the sources have sent nothing lately. */
export function describeLateRead(
  { wanted, read, lastReadAt }: ReadProgress,
  deadline: Millis,
): string | undefined {
  const silence = performance.now() - lastReadAt;
  if (read === 0 || silence > Math.min(maxSilence, deadline / 4)) return undefined;
  const of =
    wanted > read
      ? `${read.toLocaleString("en")} of about ${wanted.toLocaleString("en")}`
      : read.toLocaleString("en");
  return `The request took longer than ${printDuration(deadline)}; ${of} documents were read; narrow the range or the filters`;
}
