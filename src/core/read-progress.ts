// How far a request has read from its sources, for the sentence that it ends with when its deadline passes.
import { type Millis, printDuration } from "./time.ts";

/** Documents, over all backends of a request. `wanted` grows as the request learns how many there are. */
export interface ReadProgress {
  wanted: number;
  read: number;
}

export function createReadProgress(): ReadProgress {
  return { wanted: 0, read: 0 };
}

/** What a client reads when the deadline passes; undefined where no source has sent documents. */
export function describeLateRead({ wanted, read }: ReadProgress, deadline: Millis): string | undefined {
  if (read === 0) return undefined;
  const of =
    wanted > read
      ? `${read.toLocaleString("en")} of about ${wanted.toLocaleString("en")}`
      : read.toLocaleString("en");
  return `The request took longer than ${printDuration(deadline)}; ${of} documents were read; narrow the range or the filters`;
}
