// Sends queries for the snapshots of a range. Rows are counted first, so that an answer over the limit costs a source
// little, and then read in slices of bounded size.

import { mapConcurrent } from "../../../src/core/async/concurrency.ts";
import { createPause, yieldToEventLoop } from "../../../src/core/async/turns.ts";
import { readNumber } from "../../../src/core/collections.ts";
import { BackendError, Refused } from "../../../src/core/errors.ts";
import type { Buckets } from "../../../src/core/rows.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";
import type { PrometheusClient } from "../client/client.ts";
import { type Expression, measureAlternative } from "../client/promql.ts";
import type { EvaluationTime } from "../client/query-request.ts";
import type { ServerTraits } from "../client/server-traits.ts";
import type { PodScope, QueryScope } from "./selectors.ts";
import { alignToSnapshots, type SnapshotAnswers, type SnapshotSeries } from "./snapshot-series.ts";

export type QueryClient = Pick<PrometheusClient, "query" | "readTraits">;

/** A cluster, and the traits of its server. */
export type ClusterScope = QueryScope & Pick<ServerTraits, "hidesRestarts" | "expressionBytes">;

/** Snapshots of one query: a server returns at most 11,000. */
export const maxSnapshotsPerQuery = 10_000;
/** Queries of one answer that are sent at once: the server has other clients. */
const concurrentQueries = 6;
/** With more names the filter is applied to the rows instead of being sent. */
const maxFilterNames = 250;
/** How often an expression may have the names that it asks for, where OpenTelemetry's metrics have one spelling; and its rest. */
const maxOccurrences = 12;
const bytesWithoutNames = 3_000;

/** Takes names for the expressions of one scope, each once, and says whether they have room for them. Else it takes none. */
export function createNameTaker({ expressionBytes }: ClusterScope): (names: PodScope) => boolean {
  const room =
    expressionBytes === undefined
      ? Number.POSITIVE_INFINITY
      : (expressionBytes - bytesWithoutNames) / maxOccurrences;
  const taken = { namespaces: new Set<string>(), pods: new Set<string>() };
  let bytes = 0;
  return (names) => {
    const namespaces = [...new Set(names.namespaces)].filter((name) => !taken.namespaces.has(name));
    const pods = [...new Set(names.pods)].filter((name) => !taken.pods.has(name));
    const wanted = [...namespaces, ...pods].reduce((sum, name) => sum + measureAlternative(name), bytes);
    if (wanted > room) return false;
    if (taken.namespaces.size + namespaces.length > maxFilterNames) return false;
    if (taken.pods.size + pods.length > maxFilterNames) return false;
    for (const name of namespaces) taken.namespaces.add(name);
    for (const name of pods) taken.pods.add(name);
    bytes = wanted;
    return true;
  };
}

/** @throws {BackendError} */
export async function readScope(
  client: QueryClient,
  match: ForcedLabels,
  signal: AbortSignal,
): Promise<ClusterScope> {
  return { match, ...(await client.readTraits(signal)) };
}

/**
 * Yields the batches that `read` makes of the scope, each after a check that the server still has those traits of the scope
 * that change what a query means.
 * @throws {BackendError} also if it has others: its queries were written for another server
 */
export async function* readInScope<Rows>(
  backend: string,
  client: QueryClient,
  match: ForcedLabels,
  signal: AbortSignal,
  read: (cluster: ClusterScope) => AsyncIterable<Rows>,
): AsyncGenerator<Rows> {
  const cluster = await readScope(client, match, signal);
  for await (const rows of read(cluster)) {
    await requireSameServer(backend, client, cluster, signal);
    yield rows;
  }
  // What has no rows is an answer too.
  await requireSameServer(backend, client, cluster, signal);
}

async function requireSameServer(
  backend: string,
  client: QueryClient,
  { edge, hidesRestarts }: ClusterScope,
  signal: AbortSignal,
): Promise<void> {
  const traits = await client.readTraits(signal);
  if (traits.edge === edge && traits.hidesRestarts === hidesRestarts) return;
  const detail = "the server was replaced by another version during the query; send the request again";
  throw new BackendError(backend, "malformed", detail);
}

/**
 * For a query those that are answered before it is sent: what they show has to be in its answer too, although exporters are
 * scraped meanwhile.
 */
export type QueryOrder = Readonly<Record<string, readonly string[]>>;

/** The answers of several queries at the snapshots; a query that is `undefined` has no series. @throws {BackendError} */
export async function queryAll<Name extends string>(
  client: QueryClient,
  queries: Readonly<Record<Name, Expression | undefined>>,
  snapshots: Buckets,
  signal: AbortSignal,
  order: QueryOrder = {},
): Promise<SnapshotAnswers<Name>> {
  const time = toEvaluationTime(snapshots);
  const asked = new Map<string, Promise<unknown>>();
  const query = async (
    name: Name,
    either: AbortSignal,
  ): Promise<readonly [Name, readonly SnapshotSeries[]]> => {
    const expression = queries[name];
    if (expression === undefined) return [name, []];
    const earlier = (order[name] ?? []).map((one) => asked.get(one));
    const answer = Promise.all(earlier).then(() =>
      client.query(expression, time, alignToSnapshots(snapshots), either),
    );
    asked.set(name, answer);
    return [name, await answer];
  };
  const countEarlier = (name: string): number =>
    (order[name] ?? []).reduce((most, one) => Math.max(most, countEarlier(one) + 1), 0);
  // Those that wait come last, so that they keep no others from being sent.
  const names = (Object.keys(queries) as Name[]).sort((a, b) => countEarlier(a) - countEarlier(b));
  const answers = await mapConcurrent(names, concurrentQueries, query, signal);
  return Object.fromEntries(answers) as SnapshotAnswers<Name>;
}

export function toEvaluationTime({ start, step, count }: Buckets): EvaluationTime {
  return count === 1 ? { at: start } : { start, end: start + (count - 1) * step, step };
}

/** The snapshots in runs of as many as a query may have. */
export function* chunkSnapshots({ start, step, count }: Buckets): Generator<Buckets> {
  for (let first = 0; first < count; first += maxSnapshotsPerQuery) {
    yield { start: start + first * step, step, count: Math.min(maxSnapshotsPerQuery, count - first) };
  }
}

/** The greatest of the counts at each snapshot, and the sum of all counts. @throws {BackendError} */
export async function countPerSnapshot(
  client: QueryClient,
  counts: readonly Expression[],
  snapshots: Buckets,
  signal: AbortSignal,
): Promise<{ readonly largest: Float64Array; readonly sum: number }> {
  const largest = new Float64Array(snapshots.count);
  let sum = 0;
  for (const chunk of chunkSnapshots(snapshots)) {
    const first = (chunk.start - snapshots.start) / snapshots.step;
    const answers = await Promise.all(
      counts.map((expression) =>
        client.query(expression, toEvaluationTime(chunk), alignToSnapshots(chunk), signal),
      ),
    );
    for (const { values } of answers.flat()) {
      for (const [index, value] of values.entries()) {
        if (Number.isNaN(value)) continue;
        sum += value;
        largest[first + index] = Math.max(readNumber(largest, first + index), value);
      }
    }
  }
  return { largest, sum };
}

/** Runs of snapshots that have rows, each of about `maxRows` rows and at most as many snapshots as a query may have. */
export function* sliceSnapshots(
  { start, step }: Buckets,
  sizes: Float64Array,
  maxRows: number,
): Generator<Buckets> {
  let first = 0;
  let rows = 0;
  for (const [index, size] of sizes.entries()) {
    const isFull = rows + size > maxRows || index - first >= maxSnapshotsPerQuery;
    if (index > first && (size === 0 || isFull)) {
      yield { start: start + first * step, step, count: index - first };
      first = index;
      rows = 0;
    }
    if (size === 0) first = index + 1;
    rows += size;
  }
  if (first < sizes.length) yield { start: start + first * step, step, count: sizes.length - first };
}

/** Rows that are yielded together. */
const rowsPerBatch = 500;

/** Builds the rows of a snapshot, in turns of the event loop, and yields those that are accepted. `undefined` has no row. */
export async function* yieldRows<Item, Row>(
  items: Iterable<Item | undefined>,
  buildRow: (item: Item) => Row,
  accepts: (row: Row) => boolean,
  signal: AbortSignal,
): AsyncGenerator<readonly Row[]> {
  const pause = createPause(signal);
  let batch: Row[] = [];
  for (const item of items) {
    const row = item && buildRow(item);
    if (row !== undefined && accepts(row)) batch.push(row);
    const paused = pause();
    if (paused !== undefined) await paused;
    if (batch.length < rowsPerBatch) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
  await yieldToEventLoop();
  signal.throwIfAborted();
}

export function createTooManyRowsError(limit: number, wanted?: number): Refused {
  const count = wanted === undefined ? "" : ` (${wanted})`;
  const message = `More than ${limit} rows${count} would have to be read; narrow the range or the filters`;
  return new Refused("result_too_large", message, { limit, ...(wanted !== undefined && { wanted }) });
}
