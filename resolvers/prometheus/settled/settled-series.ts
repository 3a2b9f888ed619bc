// Answers a question from the values of buckets that are kept, and asks the source only for the other buckets. The operator
// says from which age on samples no longer change: the source itself cannot prove it.
import { requireAt } from "../../../src/core/collections.ts";
import { createTooManyPointsError, Refused } from "../../../src/core/errors.ts";
import type { Buckets, Series } from "../../../src/core/rows.ts";
import { fromMillis, type Millis, printInstant } from "../../../src/core/time.ts";
import { type ChosenRange, findCurrentRecorder } from "../../../src/telemetry/request-recorder.ts";
import type { UnkeptBuckets } from "../counters/bucket-survey.ts";
import { runConcurrent } from "../counters/series-reader.ts";
import type { BucketMemory } from "./bucket-memory.ts";

/** What is kept between the requests to a backend. */
export interface SettledValues {
  readonly backend: string;
  readonly memory: BucketMemory;
  /** Samples that are older no longer change. */
  readonly age: Millis;
  readonly now: () => Millis;
  /** Whether a question was answered from memory, wholly or in part. */
  readonly recordLookup: (hit: boolean) => void;
}

interface SettledQuestion {
  /** The name of the metric, for `explain`. */
  readonly metric: string;
  /** All that the values of a bucket depend on. */
  readonly question: string;
  /** On the grid of their step. */
  readonly buckets: Buckets;
  readonly lookBack: Millis;
  /** The most series times buckets. */
  readonly pointLimit: number;
  readonly openAttempt: () => SettledAttempt;
}

/** What is read for one answer, which may be given up for another one. */
interface SettledAttempt {
  /** Asks the source for the buckets from `from` until before `to`. */
  readonly ask: (span: BucketSpan, unkept: UnkeptBuckets) => Promise<readonly Series[]>;
  /** What was read no longer counts as held. */
  readonly release: () => void;
}

/** Buckets from `from` until before `to`. */
interface BucketSpan {
  readonly from: number;
  readonly to: number;
}

export interface SettledAnswer {
  /** In any order. */
  readonly series: readonly Series[];
  /** Keeps what was asked for. To be called once it is certain that the answer is right. */
  readonly keep: () => Promise<void>;
}

/** Each span costs some queries of its own. */
const mostSpans = 4;

export async function answerFromSettled(
  settled: SettledValues,
  { metric, question, buckets, lookBack, pointLimit, openAttempt }: SettledQuestion,
): Promise<SettledAnswer> {
  const { memory } = settled;
  const { start, step, count } = buckets;
  // Before anything is asked: what is settled now has been so when the source answers.
  const settledCount = Math.min(count, Math.max(0, Math.floor((settled.now() - settled.age - start) / step)));
  const kept = await memory.read(question, { start, step, count: settledCount }, pointLimit);
  const whole: BucketSpan = { from: 0, to: count };
  const unkept = collectUnkept(lookBack);
  const attempt = openAttempt();
  let spans = kept.known.includes(1) ? findMissingSpans(kept.known, count) : [whole];
  const askMissing = () => runConcurrent(spans, (span) => attempt.ask(span, unkept));
  let asked = spans.includes(whole) ? undefined : await askMissing().catch(suppressRefused);
  // Only the whole range shows how some questions are answered, or whether they are refused.
  if (asked === undefined || unkept.isNone()) {
    attempt.release();
    spans = [whole];
    asked = [await openAttempt().ask(whole, unkept)];
  }
  settled.recordLookup(!spans.includes(whole));
  explainSpans(settled, metric, buckets, spans);
  const series = mergeSpans(spans.includes(whole) ? [] : kept.series, spans, asked, count);
  if (series.length * count > pointLimit) throw createTooManyPointsError(pointLimit, series.length * count);
  return {
    series,
    keep: async () => {
      if (unkept.isNone()) return;
      for (const [at, { from, to }] of spans.entries()) {
        const own = { start: start + from * step, step, count: to - from };
        const mayKeep = (bucket: number) => from + bucket < settledCount && unkept.mayKeep(own, bucket);
        await memory.keep(question, own, requireAt(asked, at), mayKeep);
      }
    },
  };
}

/** A part of the range may be refused where the whole is not. */
function suppressRefused(error: unknown): undefined {
  if (error instanceof Refused) return undefined;
  throw error;
}

function collectUnkept(lookBack: Millis) {
  const starts = new Set<Millis>();
  let none = false;
  return {
    lookBack,
    add: (bucketStart: Millis) => void starts.add(bucketStart),
    addAll: () => {
      none = true;
    },
    /** Whether nothing may be kept. */
    isNone: () => none,
    mayKeep: ({ start, step }: Buckets, bucket: number) => !starts.has(start + bucket * step),
  };
}

/** The buckets that are not known, and those after the known ones. */
function findMissingSpans(known: Uint8Array, count: number): readonly BucketSpan[] {
  const spans: BucketSpan[] = [];
  for (let from = 0; from < count; ) {
    let to = from;
    while (to < count && known[to] !== 1) to++;
    if (to > from) spans.push({ from, to });
    from = to + 1;
  }
  if (spans.length <= mostSpans) return spans;
  const rest = spans.slice(mostSpans - 1);
  return [...spans.slice(0, mostSpans - 1), { from: rest[0]?.from ?? 0, to: rest.at(-1)?.to ?? count }];
}

function mergeSpans(
  kept: readonly Series[],
  spans: readonly BucketSpan[],
  asked: readonly (readonly Series[])[],
  count: number,
): readonly Series[] {
  const [only] = asked;
  if (kept.length === 0 && only !== undefined && spans[0]?.to === count && spans[0].from === 0) return only;
  const merged = new Map<string, Series>();
  for (const { tags, values: first } of kept) {
    // What is kept covers the settled buckets only.
    const values = new Float64Array(count).fill(Number.NaN);
    values.set(first);
    merged.set(JSON.stringify(tags), { tags, values });
  }
  for (const [at, { from }] of spans.entries()) {
    for (const { tags, values } of requireAt(asked, at)) {
      const key = JSON.stringify(tags);
      const series = merged.get(key) ?? { tags, values: new Float64Array(count).fill(Number.NaN) };
      merged.set(key, series);
      series.values.set(values, from);
    }
  }
  return [...merged.values()];
}

function explainSpans(
  { backend }: SettledValues,
  metric: string,
  { start, step, count }: Buckets,
  spans: readonly BucketSpan[],
): void {
  const recorder = findCurrentRecorder();
  if (recorder?.recordChoice === undefined) return;
  const asked = spans.reduce((sum, { from, to }) => sum + to - from, 0);
  const print = (bucket: number) => printInstant(fromMillis(start + bucket * step));
  const ranges: ChosenRange[] = [];
  let next = 0;
  const addKept = (until: number) => {
    if (next === until) return;
    ranges.push({ from: print(next), to: print(until), how: "kept", why: "these buckets are settled" });
  };
  for (const { from, to } of spans) {
    addKept(from);
    ranges.push({ from: print(from), to: print(to), how: "asked", why: "these are not, or are not kept" });
    next = to;
  }
  addKept(count);
  const why = `${count - asked} of ${count} buckets are kept in memory`;
  recorder.recordChoice({ backend, of: metric, how: asked === count ? "asked" : "kept", why, ranges });
}
