// How far a request has read from its sources, for the sentence that it ends with when its deadline passes.
import { type Millis, printDuration, second } from "../time.ts";

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
  /** How many requests the sources have been sent and have not answered yet. */
  underWay: number;
  /** How many they have answered, and when the last one. */
  answered: number;
  lastAnsweredAt: Millis;
  /** Of each request that waits for its turn at a source: whether that source answers others. */
  readonly waiting: Set<() => boolean>;
  /** How long some of them waited at sources that do, until `waitedUntil`. */
  waited: Millis;
  waitedUntil: Millis;
}

/** A source that has sent nothing for this long, or a quarter of the deadline, is the one that is late. */
const maxSilence: Millis = 5_000;

export function createReadProgress(): ReadProgress {
  const none = { wanted: 0, read: 0, lastReadAt: 0, underWay: 0, answered: 0, lastAnsweredAt: 0 };
  return { unit: "documents", ...none, waiting: new Set(), waited: 0, waitedUntil: 0 };
}

/** Counts what a source has sent. */
export function reportRead(progress: ReadProgress | undefined, count: number, unit: ReadUnit): void {
  if (progress === undefined) return;
  progress.unit = unit;
  progress.read += count;
  progress.lastReadAt = performance.now();
}

/** A source has been sent one of its requests. Returns what is called when that has ended, however it did. */
export function reportSent(progress: ReadProgress | undefined): () => void {
  if (progress === undefined) return () => {};
  progress.underWay += 1;
  return () => {
    progress.underWay -= 1;
  };
}

/** A source has answered one of its requests, whatever it said. */
export function reportAnswer(progress: ReadProgress | undefined): void {
  if (progress === undefined) return;
  progress.answered += 1;
  progress.lastAnsweredAt = performance.now();
}

/** One of its requests waits for its turn at a source. Returns what is called when it waits no longer. */
export function reportWaiting(progress: ReadProgress | undefined, isAnswering: () => boolean): () => void {
  if (progress === undefined) return () => {};
  countWait(progress);
  progress.waiting.add(isAnswering);
  return () => {
    countWait(progress);
    progress.waiting.delete(isAnswering);
  };
}

/** Up to now. What waits at once counts once. */
function countWait(progress: ReadProgress): void {
  const now = performance.now();
  const isForOthers = [...progress.waiting].some((isAnswering) => isAnswering());
  if (isForOthers) progress.waited += now - progress.waitedUntil;
  progress.waitedUntil = now;
}

/**
 * What a client reads when the deadline passes; undefined where it is for want of an answer: the sources owe one and have sent
 * nothing lately, and there was no wait for those that answered others.
 */
export function describeLateRead(progress: ReadProgress, deadline: Millis): string | undefined {
  const { unit, wanted, read, underWay, answered } = progress;
  const silence = Math.min(maxSilence, deadline / 4);
  const isLately = (time: Millis): boolean => performance.now() - time <= silence;
  const late = `The request took longer than ${printDuration(deadline)}`;
  const print = (count: number): string => count.toLocaleString("en");
  if (read > 0 && isLately(progress.lastReadAt)) {
    const of = wanted > read ? `${print(read)} of about ${print(wanted)}` : print(read);
    return `${late}; ${of} ${unit} were read; ${adviceByUnit[unit]}`;
  }
  countWait(progress);
  const hasWaited = progress.waited > silence;
  const isAnswered = answered > 0 && (underWay === 0 || isLately(progress.lastAnsweredAt));
  if (!isAnswered && !hasWaited) return undefined;
  const digit = progress.waited < second ? 1 : second;
  const wait = printDuration(Math.round(progress.waited / digit) * digit);
  const parts = [
    ...(hasWaited ? [`it waited ${wait} for its turn at a data source`] : []),
    ...(answered > 0 ? [`${print(answered)} requests to data sources were answered`] : []),
  ];
  return [late, ...parts, "ask for less, or try again later"].join("; ");
}
