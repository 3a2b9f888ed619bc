// Lists the indices and data streams of a cluster with their names, and which are copies of others.
import { z } from "zod";
import { BackendError, isRefusedBySource } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern } from "../client/query-dsl.ts";
import { findCopies } from "../mapping/index-copies.ts";
import { type ListedIndex, readListedIndices } from "../mapping/listed-indices.ts";

/** The open indices and data streams behind a pattern; undefined where they may not be listed. @throws {BackendError} */
export async function listIndices(
  backend: string,
  client: ElasticClient,
  pattern: string,
  signal: AbortSignal,
): Promise<readonly ListedIndex[] | undefined> {
  const path = `/_resolve/index/${encodePattern(pattern)}`;
  const response = await requestUnlessRefused(client, path, { expand_wildcards: "open" }, signal);
  if (response === undefined) return undefined;
  try {
    return readListedIndices(response);
  } catch (cause) {
    throw new BackendError(backend, "malformed", "the list of indices cannot be read", { cause });
  }
}

const settingsSchema = z.object({ settings: z.object({ index: z.record(z.string(), z.unknown()) }) });

/** The copies among all open indices, each with its original; none where settings may not be read. @throws {BackendError} */
export async function listCopies(
  backend: string,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const path = "/*/_settings/index.uuid,index.resize.*,index.store.snapshot.*";
  const response = await requestUnlessRefused(client, path, { expand_wildcards: "open" }, signal);
  if (response === undefined) return new Map();
  const { data: indices } = z.record(z.string(), z.unknown()).safeParse(response);
  if (indices === undefined)
    throw new BackendError(backend, "malformed", "the settings of indices cannot be read");
  // An index without settings that can be read is no copy, and may be the original of one.
  return findCopies(
    new Map(
      Object.entries(indices).map(([index, one]) => [
        index,
        settingsSchema.safeParse(one).data?.settings.index ?? {},
      ]),
    ),
  );
}

/** The answer as parsed JSON; undefined where the user may not ask, or the server refuses to tell. @throws {BackendError} */
export async function requestUnlessRefused(
  client: ElasticClient,
  path: string,
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<unknown> {
  try {
    return await client.sendJson({ method: "GET", path, query }, signal);
  } catch (error) {
    if (isRefusedBySource(error)) return undefined;
    throw error;
  }
}
