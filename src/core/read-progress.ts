// How far a request has read from its sources, for the sentence that it ends with when its deadline passes.
import { type Millis, printDuration } from "./time.ts";

/** What a request reads, over all of its backends, and what makes it less. */
const adviceByUnit = {
  documents: "narrow the range or the filters",
  samples: "ask for fewer series, a coarser resolution or a shorter range",
} as const;
type ReadUnit = keyof typeof adviceByUnit;

/** `wanted` grows as the request learns how many there are; it stays zero where the request does not learn it. */
export interface ReadProgress {
  unit: ReadUnit;
  wanted: number;
  read: number;
  /** When the last of them came, on the clock of `performance.now`. */
  lastReadAt: Millis;
}

/** A source that has sent nothing for this long, or a quarter of the deadline, is the one that is late. */
const maxSilence: Millis = 5_000;

export function createReadProgress(): ReadProgress {
  return { unit: "documents", wanted: 0, read: 0, lastReadAt: 0 };
}

/** Counts what a source has sent. */
export function reportRead(progress: ReadProgress | undefined, count: number, unit: ReadUnit): void {
  if (progress === undefined) return;
  progress.unit = unit;
  progress.read += count;
  progress.lastReadAt = performance.now();
}

/** What a client reads when the deadline passes; undefined where the sources have sent nothing lately. */
export function describeLateRead(
  { unit, wanted, read, lastReadAt }: ReadProgress,
  deadline: Millis,
): string | undefined {
  const silence = performance.now() - lastReadAt;
  if (read === 0 || silence > Math.min(maxSilence, deadline / 4)) return undefined;
  const of =
    wanted > read
      ? `${read.toLocaleString("en")} of about ${wanted.toLocaleString("en")}`
      : read.toLocaleString("en");
  return `The request took longer than ${printDuration(deadline)}; ${of} ${unit} were read; ${adviceByUnit[unit]}`;
}
