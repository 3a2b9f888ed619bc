// The bounds on what one request, one token and the whole server may take: `limits` and `tail` of readout.yaml.
import { day, type Millis, minute } from "../core/time.ts";
import { count, duration, strictObject } from "./validation.ts";

export interface Limits {
  /** Rows of one answer. */
  readonly rows: number;
  /** Lines of one millisecond before its answer is split into parts; settable upwards only (default 10,000). */
  readonly linesPerMillisecond: number;
  /** Documents read from a source for one request. */
  readonly documents: number;
  readonly deadline: Millis;
  /** Requests under way at once. */
  readonly requests: number;
  /** Streamed answers under way at once. */
  readonly streams: number;
  /** Series times points of one answer. */
  readonly points: number;
  /** Spans of one trace. */
  readonly spans: number;
  /** How far before a range a counter's previous sample is looked for. */
  readonly lookBack: Millis;
  /** The same two, of one token. */
  readonly tokenRequests: number;
  readonly tokenStreams: number;
  /** Requests per second of one token, ten times as many at once. */
  readonly rate: number;
  /** Documents read from a source for one export. */
  readonly export: number;
  readonly tail: TailLimits;
}

interface TailLimits {
  /** How long after its own time a line may become visible and is still delivered. */
  readonly lateness: Millis;
  /** Live tails open at once. */
  readonly maxOpen: number;
  /** The same of one token. */
  readonly perToken: number;
}

export const defaultLimits = {
  rows: 200_000,
  linesPerMillisecond: 10_000,
  documents: 500_000,
  deadline: minute / 2,
  requests: 64,
  streams: 32,
  // Half of all, so that no token takes every place.
  tokenRequests: 32,
  tokenStreams: 16,
  points: 5_000_000,
  spans: 50_000,
  lookBack: day,
  rate: 100,
  export: 10_000_000,
  tail: { lateness: minute, maxOpen: 500, perToken: 100 },
} as const satisfies Limits;

export const limitsSchema = strictObject({
  rows: count(1).default(defaultLimits.rows),
  // Upwards only: a client's cursor may have been issued under the default (README, "Log lines", Paging).
  lines_per_millisecond: count(
    defaultLimits.linesPerMillisecond,
    `can only be raised: expected ${defaultLimits.linesPerMillisecond} or more`,
  ).default(defaultLimits.linesPerMillisecond),
  points: count(1).default(defaultLimits.points),
  documents: count(1).default(defaultLimits.documents),
  spans: count(1).default(defaultLimits.spans),
  look_back: duration(366 * day).default(defaultLimits.lookBack),
  // A timer overflows after 24 days and then fires at once.
  deadline: duration(day).default(defaultLimits.deadline),
  requests: count(1).default(defaultLimits.requests),
  streams: count(1).default(defaultLimits.streams),
  token_requests: count(1).default(defaultLimits.tokenRequests),
  token_streams: count(1).default(defaultLimits.tokenStreams),
  rate: count(1).default(defaultLimits.rate),
  export: count(1).default(defaultLimits.export),
});

export const tailSchema = strictObject({
  lateness: duration(day).default(defaultLimits.tail.lateness),
  max_open: count(1).default(defaultLimits.tail.maxOpen),
  per_token: count(1).default(defaultLimits.tail.perToken),
});
