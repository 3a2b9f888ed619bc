// Reads the mappings behind a pattern. Asked for what is available, both products leave out an index that the credentials may
// not read as if it did not exist, so each name that is missing from the response is searched as well.
import { z } from "zod";
import { takeSteps } from "../../../src/core/async/turns.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern, isRemote, mappingOptions } from "../client/query-dsl.ts";
import { readIndexMetadata } from "../mapping/index-metadata.ts";
import { type IndexMetadata, opaqueMetadata } from "../mapping/mapping.ts";
import { digestResponse, parseMappings } from "../mapping/mapping-response.ts";
import { isIndexClosedError, postSearch } from "./search.ts";

/** What a response of `GET /<pattern>` said. */
export interface ReadMappings {
  readonly digest: string;
  /** The names in the pattern, without wildcards, that the response lacked. */
  readonly unseen: readonly string[];
  readonly metadata: IndexMetadata;
}

/**
 * The metadata of all indices that a pattern matches, a new object each time; opaque where documents may be read and mappings
 * not. `known` holds what the last response to each pattern said: one with the same bytes is not read again.
 * @throws {BackendError} also where the pattern names an index that may not be read
 */
export async function loadIndexMetadata(
  backend: string,
  client: ElasticClient,
  pattern: string,
  known: Map<string, ReadMappings>,
  signal: AbortSignal,
): Promise<IndexMetadata> {
  const bytes = await loadMappings(client, pattern, signal);
  const { unseen, metadata } =
    bytes === undefined
      ? { unseen: listUnseenNames(pattern, {}), metadata: opaqueMetadata }
      : await readMappings(backend, pattern, bytes, known, signal);
  await Promise.all(unseen.map((name) => requireReadable(backend, client, name, signal)));
  // A copy, because caches use the object as the key of what they know about a pattern.
  return { ...metadata };
}

async function readMappings(
  backend: string,
  pattern: string,
  bytes: Buffer,
  known: Map<string, ReadMappings>,
  signal: AbortSignal,
): Promise<ReadMappings> {
  const digest = await takeSteps(digestResponse(bytes), signal);
  const last = known.get(pattern);
  if (last?.digest === digest) return last;
  try {
    const response = await takeSteps(parseMappings(bytes), signal);
    const metadata = await takeSteps(readIndexMetadata(response, pattern), signal);
    const read = { digest, unseen: listUnseenNames(pattern, response), metadata };
    known.set(pattern, read);
    return read;
  } catch (cause) {
    signal.throwIfAborted();
    throw new BackendError(backend, "malformed", `the mappings of ${pattern} cannot be read`, { cause });
  }
}

const noIndices = Buffer.from("{}");

/** Undefined without the permission for mappings, and for remote clusters, which show none. */
async function loadMappings(
  client: ElasticClient,
  pattern: string,
  signal: AbortSignal,
): Promise<Buffer | undefined> {
  if (isRemote(pattern)) return undefined;
  const path = `/${encodePattern(pattern)}`;
  try {
    return await client.send({ method: "GET", path, query: mappingOptions }, signal);
  } catch (error) {
    if (!(error instanceof BackendError)) throw error;
    // Refused credentials are no missing permission: the search fails with the same error, which is worth a retry.
    if (error.status === 401) await probeSearch(client, pattern, signal);
    if (error.failure === "denied") return undefined;
    if (isNotFound(error)) return noIndices;
    throw error;
  }
}

async function probeSearch(client: ElasticClient, pattern: string, signal: AbortSignal): Promise<void> {
  await postSearch(client, pattern, JSON.stringify({ size: 0, track_total_hits: false }), {}, signal);
}

/** Checks that a name either does not exist or may be read. @throws {BackendError} */
async function requireReadable(
  backend: string,
  client: ElasticClient,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  try {
    await probeSearch(client, name, signal);
  } catch (error) {
    // A closed index is reported by the search itself.
    if (isNotFound(error) || isIndexClosedError(error)) return;
    throw error;
  }
  const { narrowsAliases } = await client.detectProduct(signal);
  if (narrowsAliases) await requireWholeAlias(backend, client, name, signal);
}

const namedList = z.array(z.object({ name: z.string() }));
const resolvedNames = z.object({ indices: namedList, aliases: namedList, data_streams: namedList });

/**
 * With `do_not_fail_on_forbidden`, OpenSearch replaces an alias by those of its indices that the user may read, in searches and
 * in this request. The name itself comes back only if all of it may be read. @throws {BackendError}
 */
async function requireWholeAlias(
  backend: string,
  client: ElasticClient,
  name: string,
  signal: AbortSignal,
): Promise<void> {
  const path = `/_resolve/index/${encodePattern(name)}`;
  const {
    success,
    data,
    error: cause,
  } = resolvedNames.safeParse(await client.sendJson({ method: "GET", path }, signal));
  if (!success)
    throw new BackendError(backend, "malformed", `the resolution of ${name} cannot be read`, { cause });
  if (Object.values(data).some((found) => found.some((one) => one.name === name))) return;
  const reason = `the credentials may read some of the indices of ${name} only`;
  throw new BackendError(backend, "partial", reason);
}

function isNotFound(error: unknown): boolean {
  return error instanceof BackendError && error.status === 404;
}

/** The names in a pattern, without wildcards, that are missing from the response of `GET /<pattern>`. */
function listUnseenNames(pattern: string, response: Readonly<Record<string, unknown>>): readonly string[] {
  const indices = Object.entries(
    response as Readonly<Record<string, { aliases?: object; data_stream?: unknown } | null>>,
  );
  const isSeen = (name: string) =>
    indices.some(
      ([index, definition]) =>
        index === name || definition?.data_stream === name || Object.hasOwn(definition?.aliases ?? {}, name),
    );
  return pattern
    .split(",")
    .map((name) => name.trim())
    .filter((name) => !/[*<:]|^-|^_all$/.test(name) && !isSeen(name));
}
