// Points in time: views of a pattern's documents that later writes do not change. Each covers the shards with one number, so
// that documents can be told apart by their sequence numbers, which are unique within a shard only.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import { deleteUnawaited, type ElasticClient } from "./client.ts";
import type { PointInTimePaths } from "./product.ts";
import { encodePattern, indexOptions } from "./query-dsl.ts";
import type { ElasticRequest } from "./transports.ts";

export interface PointInTime {
  /** The pattern whose indices it covers. */
  readonly pattern: string;
  /** The number of the shards, from 0. */
  readonly shard: number;
  /** How many shards it has: one of each index that has the number. */
  readonly shards: number;
  readonly id: string;
  readonly paths: PointInTimePaths;
}

/** Each search keeps it open for another minute. */
const keepAlive = "1m";

const openedSchema = z.union([
  z.object({ id: z.string() }).transform(({ id }) => id),
  z.object({ pit_id: z.string() }).transform(({ pit_id }) => pit_id),
]);

/** @throws {BackendError} */
export async function openPointInTime(
  backend: string,
  client: ElasticClient,
  { pattern, shard, shards, paths }: Omit<PointInTime, "id">,
  signal: AbortSignal,
): Promise<PointInTime> {
  const path = `/${encodePattern(pattern)}/${paths.open}`;
  const query = { ...indexOptions, keep_alive: keepAlive, preference: `_shards:${shard}` };
  const answer = openedSchema.safeParse(await client.sendJson({ method: "POST", path, query }, signal));
  if (answer.success) return { pattern, shard, shards, id: answer.data, paths };
  throw new BackendError(backend, "malformed", "an answer that is no point in time", { cause: answer.error });
}

/** The bytes of the response of a search. @throws {BackendError} */
export function searchPointInTime(
  client: ElasticClient,
  point: PointInTime,
  body: object,
  signal: AbortSignal,
  parameters: Readonly<Record<string, string>> = {},
): Promise<Buffer> {
  return client.send(buildSearchRequest(point, body, parameters), signal);
}

/** As `searchPointInTime`; returns the parsed response. */
export function searchPointInTimeJson(
  client: Pick<ElasticClient, "sendJson">,
  point: PointInTime,
  body: object,
  signal: AbortSignal,
): Promise<unknown> {
  return client.sendJson(buildSearchRequest(point, body, {}), signal);
}

function buildSearchRequest(
  { id }: PointInTime,
  body: object,
  parameters: Readonly<Record<string, string>>,
): ElasticRequest {
  return {
    method: "POST",
    path: "/_search",
    query: { allow_partial_search_results: "false", ...parameters },
    body: JSON.stringify({ ...body, pit: { id, keep_alive: keepAlive } }),
  };
}

/** Frees points in time at the server without waiting. The server frees them by itself a minute after the last search. */
export function closePointsInTime(client: ElasticClient, points: readonly PointInTime[]): void {
  for (const { id, paths } of points)
    deleteUnawaited(client, `/${paths.close.path}`, paths.close.isList ? { pit_id: [id] } : { id });
}
