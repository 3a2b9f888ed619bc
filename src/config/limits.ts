// The bounds on what one request, one token and the whole server may take: `limits` and `tail` of readout.yaml.
import { z } from "zod";
import { day, type Millis, minute } from "../core/time.ts";
import { count, duration } from "./validation.ts";

export interface Limits {
  /** Rows of one answer. */
  readonly rows: number;
  /** Above this, the lines of one millisecond are answered in parts. Can only be raised. */
  readonly linesPerMillisecond: number;
  /** Documents read from a source for one request. */
  readonly documents: number;
  /** Bytes of documents that one request holds at once. */
  readonly heldBytes: number;
  readonly deadline: Millis;
  /** Requests that run at once. */
  readonly requests: number;
  /** Streamed answers that run at once. */
  readonly streams: number;
  /** Series times points of one answer. */
  readonly points: number;
  /** Spans of one trace. */
  readonly spans: number;
  /** How far before a range the previous sample of a counter may be. */
  readonly lookBack: Millis;
  /** Requests and streamed answers of one token that run at once. */
  readonly tokenRequests: number;
  readonly tokenStreams: number;
  /** Connections open at once, in all and from one address. */
  readonly connections: number;
  readonly addressConnections: number;
  /** Requests per second of one token, ten times as many at once. */
  readonly rate: number;
  /** Documents read from a source for one export. */
  readonly export: number;
  /** Memory for figures of spans that are kept between requests, of each backend. */
  readonly rollupBytes: number;
  /** Memory for values of metrics that are kept between requests, of each backend. */
  readonly metricCacheBytes: number;
  readonly tail: TailLimits;
}

/** Limits of one token beside those of the server; the smaller one of each holds. */
export interface TokenLimits {
  readonly rate?: number | undefined;
  readonly requests?: number | undefined;
  /** Streamed answers at once, and as many live tails. */
  readonly streams?: number | undefined;
  readonly export?: number | undefined;
  readonly documents?: number | undefined;
}

interface TailLimits {
  /** How long after its own time a line may become visible and still be delivered. */
  readonly lateness: Millis;
  /** Live tails open at once. */
  readonly maxOpen: number;
  /** Live tails of one token that are open at once. */
  readonly perToken: number;
}

export const defaultLimits = {
  rows: 200_000,
  linesPerMillisecond: 10_000,
  documents: 500_000,
  heldBytes: 268_435_456,
  deadline: minute / 2,
  requests: 64,
  streams: 32,
  // Half of all, so that no single token occupies the server.
  tokenRequests: 32,
  tokenStreams: 16,
  // More than all places and tails together; each that is idle costs a few kilobytes.
  connections: 5_000,
  addressConnections: 2_500,
  points: 5_000_000,
  spans: 50_000,
  lookBack: day,
  rate: 100,
  export: 10_000_000,
  rollupBytes: 67_108_864,
  metricCacheBytes: 67_108_864,
  tail: { lateness: minute, maxOpen: 500, perToken: 100 },
} as const satisfies Limits;

export const limitsSchema = z.strictObject({
  rows: count(1).default(defaultLimits.rows),
  // Can only be raised: clients may hold cursors that were issued under the default.
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
  // Half of all where absent, so that no single token or address takes everything.
  token_requests: count(1).optional(),
  token_streams: count(1).optional(),
  connections: count(1).default(defaultLimits.connections),
  address_connections: count(1).optional(),
  rate: count(1).default(defaultLimits.rate),
  export: count(1).default(defaultLimits.export),
  rollup_bytes: count(0).default(defaultLimits.rollupBytes),
  metric_cache_bytes: count(0).default(defaultLimits.metricCacheBytes),
  held_bytes: count(1).default(defaultLimits.heldBytes),
});

export const tokenLimitsSchema = z.strictObject({
  rate: count(1).optional(),
  requests: count(1).optional(),
  streams: count(1).optional(),
  export: count(1).optional(),
  documents: count(1).optional(),
});

export const tailSchema = z.strictObject({
  lateness: duration(day).default(defaultLimits.tail.lateness),
  max_open: count(1).default(defaultLimits.tail.maxOpen),
  per_token: count(1).default(defaultLimits.tail.perToken),
});
