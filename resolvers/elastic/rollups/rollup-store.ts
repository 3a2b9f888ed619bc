// Rollups as documents of one index of the user's own. Bodies are stored and not indexed. Documents are read by id, so that what
// was written last is seen without a refresh; only the listing is a search.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import type { ListedDocument, NewDocument, RollupStore, StoredDocument } from "../../../src/store/rollups.ts";
import { bulkResultSchema, createBulkError } from "../client/bulk-result.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern } from "../client/query-dsl.ts";

/** What the requests of one store share. */
interface StoreContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly index: string;
}

/** Documents of one request. */
const maxRead = 200;
const maxListed = 1_000;
/** Bytes of one request that writes, unless a single document is larger. */
const maxWrittenBytes = 4_000_000;

const indexDefinition = {
  settings: { index: { number_of_shards: 1, auto_expand_replicas: "0-1", codec: "best_compression" } },
  mappings: { dynamic: false, properties: { key: { type: "keyword" }, site: { type: "keyword" } } },
};

export function createRollupStore(backend: string, client: ElasticClient, index: string): RollupStore {
  const context: StoreContext = { backend, client, index };
  return {
    read: async (ids, signal) => {
      const found: StoredDocument[] = [];
      for (const part of cutList(ids, maxRead)) found.push(...(await readDocuments(context, part, signal)));
      return found;
    },
    create: async (documents, signal) => {
      const lines = documents.map((document) =>
        printAction({ create: { _id: document.id } }, toSource(document)),
      );
      // 409: another instance has written it, or an answer was lost.
      await write(context, lines, [409], signal);
    },
    replace: async (document, revision, signal) => {
      const { id: _id } = document;
      const action =
        revision === undefined ? { create: { _id } } : { index: { _id, ...parseRevision(revision) } };
      const statuses = await write(context, [printAction(action, toSource(document))], [409], signal);
      return !statuses.includes(409);
    },
    list: (signal) => listDocuments(context, signal),
    remove: async (ids, signal) => {
      const lines = ids.map((_id) => printAction({ delete: { _id } }));
      await write(context, lines, [404], signal);
    },
  };
}

function toSource({ id, site, made, body }: NewDocument): object {
  return { key: id, site, made, body };
}

function printAction(...lines: readonly object[]): string {
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

function cutList<T>(list: readonly T[], length: number): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(list.length / length) }, (_, part) =>
    list.slice(part * length, (part + 1) * length),
  );
}

// ---- Reading --------------------------------------------------------------------------------------------------

const gottenSchema = z.object({
  docs: z.array(
    z.object({
      _id: z.string(),
      found: z.boolean().default(false),
      _seq_no: z.int().optional(),
      _primary_term: z.int().optional(),
      // What it holds is judged by who asks. A document without a body is as good as none.
      _source: z.object({ body: z.string() }).optional().catch(undefined),
      error: z.object({ type: z.string() }).optional(),
    }),
  ),
});

async function readDocuments(
  { backend, client, index }: StoreContext,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<readonly StoredDocument[]> {
  const path = `/${encodePattern(index)}/_mget`;
  const answer = await client.sendJson({ method: "POST", path, body: JSON.stringify({ ids }) }, signal);
  const { data, error: cause } = gottenSchema.safeParse(answer);
  if (data === undefined)
    throw new BackendError(backend, "malformed", `${path}: no list of documents`, { cause });
  return data.docs.flatMap(({ _id: id, found, _seq_no, _primary_term, _source, error }) => {
    if (error !== undefined && error.type !== "index_not_found_exception")
      throw new BackendError(backend, "partial", `${path}: ${error.type}`);
    if (!found) return [];
    return [{ id, body: _source?.body ?? "", revision: `${_seq_no} ${_primary_term}` }];
  });
}

function parseRevision(revision: string): object {
  const [if_seq_no, if_primary_term] = revision.split(" ").map(Number);
  return { if_seq_no, if_primary_term };
}

const listedSchema = z.object({
  timed_out: z.literal(false),
  _shards: z.object({ failed: z.literal(0) }),
  hits: z.object({
    hits: z.array(
      z.object({
        _id: z.string(),
        // Documents of others in the same index are listed without a site, as of no known owner.
        _source: z.object({ site: z.string(), made: z.number() }).catch({ site: "", made: 0 }),
        sort: z.tuple([z.string().nullable()]),
      }),
    ),
  }),
});

async function* listDocuments(
  { backend, client, index }: StoreContext,
  signal: AbortSignal,
): AsyncGenerator<readonly ListedDocument[]> {
  const path = `/${encodePattern(index)}/_search`;
  const query = { allow_partial_search_results: "false", ignore_unavailable: "true" };
  let after: readonly [string | null] | undefined;
  for (;;) {
    const body = {
      size: maxListed,
      // Documents without a key are none of ours, and are left alone.
      query: { exists: { field: "key" } },
      sort: [{ key: "asc" }],
      _source: ["site", "made"],
      ...(after !== undefined && { search_after: after }),
    };
    const answer = await client.sendJson({ method: "POST", path, query, body: JSON.stringify(body) }, signal);
    const { data, error: cause } = listedSchema.safeParse(answer);
    if (data === undefined)
      throw new BackendError(backend, "partial", `${path}: incomplete documents`, { cause });
    const { hits } = data.hits;
    if (hits.length > 0) yield hits.map(({ _id: id, _source: { site, made } }) => ({ id, site, made }));
    if (hits.length < maxListed) return;
    after = hits.at(-1)?.sort;
  }
}

// ---- Writing --------------------------------------------------------------------------------------------------

const bulkResponseSchema = z.object({
  items: z.array(
    z
      .object({ create: bulkResultSchema, index: bulkResultSchema, delete: bulkResultSchema })
      .partial()
      .transform((item) => item.create ?? item.index ?? item.delete),
  ),
});

/** Writes actions, and returns their statuses. @throws {BackendError} for a status that is neither a success nor accepted */
async function write(
  context: StoreContext,
  actions: readonly string[],
  accepted: readonly number[],
  signal: AbortSignal,
): Promise<readonly number[]> {
  if (actions.length === 0) return [];
  await ensureIndex(context, signal);
  const statuses: number[] = [];
  for (const part of cutByBytes(actions))
    statuses.push(...(await writePart(context, part, accepted, signal)));
  return statuses;
}

function cutByBytes(actions: readonly string[]): readonly (readonly string[])[] {
  const parts: string[][] = [];
  let bytes = Number.POSITIVE_INFINITY;
  for (const action of actions) {
    const length = Buffer.byteLength(action);
    if (bytes + length > maxWrittenBytes) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1)?.push(action);
    bytes += length;
  }
  return parts;
}

async function writePart(
  { backend, client, index }: StoreContext,
  actions: readonly string[],
  accepted: readonly number[],
  signal: AbortSignal,
): Promise<readonly number[]> {
  const path = `/${encodePattern(index)}/_bulk`;
  const answer = await client.sendJson({ method: "POST", path, body: actions.join("") }, signal);
  const { data, error: cause } = bulkResponseSchema.safeParse(answer);
  if (data?.items.length !== actions.length)
    throw new BackendError(backend, "malformed", `${path}: not one result for each action`, { cause });
  return data.items.map((item) => {
    const result = item ?? { status: 0 };
    const { status } = result;
    if ((status >= 200 && status < 300) || accepted.includes(status)) return status;
    throw createBulkError(backend, "a rollup was not written", result);
  });
}

/**
 * Creates the index if it does not exist; otherwise the server would guess the types of its fields. It is looked for before each
 * write, since it may have been deleted. @throws {BackendError}
 */
async function ensureIndex(context: StoreContext, signal: AbortSignal): Promise<void> {
  const { client, index } = context;
  if (await hasIndex(context, signal)) return;
  const path = `/${encodePattern(index)}`;
  try {
    await client.send({ method: "PUT", path, body: JSON.stringify(indexDefinition) }, signal);
  } catch (error) {
    // Another instance may have been faster.
    if (!(error instanceof BackendError) || !(await hasIndex(context, signal))) throw error;
  }
}

async function hasIndex({ client, index }: StoreContext, signal: AbortSignal): Promise<boolean> {
  const path = `/${encodePattern(index)}/_search`;
  try {
    await client.send({ method: "POST", path, body: JSON.stringify({ size: 0 }) }, signal);
    return true;
  } catch (error) {
    signal.throwIfAborted();
    // Any other refusal is the operator's to read, such as that of a closed index, which exists.
    if (error instanceof BackendError && error.status === 404) return false;
    throw error;
  }
}
