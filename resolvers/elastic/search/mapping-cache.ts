// What is remembered of the indices behind each pattern, so that a query needs one request. The reader notices by itself
// when an index appears and asks for a refresh. What only a fresh mapping shows is an index that was dropped and made
// again under its name, so age is bounded, and for a wall between tenants closely.
import { LRUCache } from "lru-cache";
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import type { CustomLayouts, IO, LogSource } from "../../../src/store/store.ts";
import { raceAbort } from "../../http/guard.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern, mappingOptions } from "../client/query-dsl.ts";
import { type LayoutGroup, partitionByLayout } from "../layout/layout-groups.ts";
import { type LogLayout, logLayouts } from "../layout/log-layout.ts";
import { type SpanLayout, spanLayouts } from "../layout/span-layout.ts";
import { readIndexMetadata } from "../mapping/index-metadata.ts";
import { type IndexMetadata, opaqueMetadata } from "../mapping/mapping.ts";
import { type Detection, detectLayouts, type Guess, type SampleVerdict } from "./layout-detection.ts";
import { isIndexClosedError, postSearch } from "./search.ts";

export interface MappingCache {
  /**
   * What the mappings of a pattern say; served stale while a fresh copy is fetched, for a wall only when it is seconds
   * old. @throws {BackendError}
   */
  read(pattern: string, walled: boolean, signal: AbortSignal): Promise<IndexMetadata>;
  /** Reads the mappings again, once for all who ask at the same time. @throws {BackendError} */
  refresh(pattern: string, signal: AbortSignal): Promise<IndexMetadata>;
  /** Some aliases reach another number of shards than their indices have: not a sign of news once it was looked at. */
  acceptShardCount(pattern: string, shards: number): void;
  findAcceptedShardCount(pattern: string): number | undefined;
  /** The layout of each index of a source, as parts that are read alike; `auto` may look at a few documents. */
  readLayoutGroups(
    source: LogSource,
    read: IndexMetadata,
    signal: AbortSignal,
  ): Promise<readonly LayoutGroup[]>;
  /** What `auto` could only guess of these, each with the reason. */
  listGuesses(source: LogSource, read: IndexMetadata, signal: AbortSignal): Promise<readonly Guess[]>;
  /** The layouts that the documents of a source may have; which of them has which index, its mapping tells. */
  listSpanLayouts(source: SpanSource): readonly SpanLayout[];
}

const freshFor: Millis = 30_000;
/** An index can be dropped and made again under its name, which only its mapping shows: no copy is served older. */
const servedFor: Millis = 300_000;
const servedToTenantFilters: Millis = 5_000;
/** How long a failure is repeated to others instead of asking a source in trouble again. */
const backOff: Millis = 1_000;

export function createMappingCache(
  backend: string,
  client: ElasticClient,
  io: Pick<IO, "cache">,
  own?: CustomLayouts<LogLayout, SpanLayout>,
): MappingCache {
  const failures = new Map<string, { readonly at: number; readonly error: unknown }>();
  const accepted = new Map<string, number>();
  /** The indices behind each pattern, as last read. */
  const told = new Map<string, string>();
  /** By the source's wall. */
  const detected = new WeakMap<IndexMetadata, Map<string | undefined, Detection>>();
  const samples = new LRUCache<string, SampleVerdict>({ max: 1_000 });
  const cache = new LRUCache<string, IndexMetadata>({
    max: 1_000,
    ttl: freshFor,
    allowStale: true,
    noDeleteOnFetchRejection: true,
    fetchMethod: async (pattern) => {
      const failed = failures.get(pattern);
      if (failed !== undefined && performance.now() - failed.at < backOff) throw failed.error;
      try {
        const metadata = await load(pattern);
        failures.delete(pattern);
        return metadata;
      } catch (error) {
        failures.set(pattern, { at: performance.now(), error });
        throw error;
      }
    },
  });

  /** No caller's signal: others wait for the same answer. The door's own deadline bounds it. */
  const shared = new AbortController().signal;

  async function load(pattern: string): Promise<IndexMetadata> {
    const answer = await readMappings(pattern);
    await Promise.all(listUnseenNames(pattern, answer).map(mayRead));
    // A copy, because what is told of a pattern is remembered by it.
    if (answer === undefined) return { ...opaqueMetadata };
    try {
      const metadata = readIndexMetadata(answer, pattern);
      // How many shards were reached of others says nothing of these.
      const indices = JSON.stringify([...metadata.uuids]);
      if (told.get(pattern) !== indices) accepted.delete(pattern);
      told.set(pattern, indices);
      return metadata;
    } catch (error) {
      throw new BackendError(backend, "malformed", `the mappings of ${pattern} cannot be read`, {
        cause: error,
      });
    }
  }

  /** Undefined where documents may be read and mappings not: it takes another privilege, and remote clusters show none. */
  async function readMappings(pattern: string): Promise<unknown> {
    const path = `/${encodePattern(pattern)}`;
    try {
      return await client.sendJson({ method: "GET", path, query: mappingOptions }, shared);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      // Where the login itself is refused nothing may be read at all, and nothing is to be refused for good.
      if (error.status === 401) await send(pattern);
      if (error.failure === "denied" || (error.failure === "rejected" && pattern.includes(":")))
        return undefined;
      if (isMissing(error)) return {};
      throw error;
    }
  }

  async function send(pattern: string): Promise<void> {
    await postSearch(client, pattern, JSON.stringify({ size: 0, track_total_hits: false }), {}, shared);
  }

  /** What is not there is empty; what is there and not readable is an error. @throws {BackendError} */
  async function mayRead(name: string): Promise<void> {
    try {
      await send(name);
    } catch (error) {
      // Of a closed one the search itself tells.
      if (isMissing(error) || isIndexClosedError(error)) return;
      throw error;
    }
    if ((await client.detectProduct(shared)).name === "OpenSearch") await requireAllBehind(name);
  }

  /**
   * Told not to fail on what is forbidden (`do_not_fail_on_forbidden`), OpenSearch puts those indices of an alias that the
   * user may read in the alias's place, in searches as in this. Of what may be read as a whole the name itself comes back.
   * @throws {BackendError}
   */
  async function requireAllBehind(name: string): Promise<void> {
    const path = `/_resolve/index/${encodePattern(name)}`;
    const { success, data, error } = resolvedNames.safeParse(
      await client.sendJson({ method: "GET", path }, shared),
    );
    if (!success) throw new BackendError(backend, "malformed", `what ${name} stands for`, error);
    if (Object.values(data).some((found) => found.some((one) => one.name === name))) return;
    const reason = `the credentials may read some of the indices of ${name} only`;
    throw new BackendError(backend, "partial", reason);
  }

  async function fetch(pattern: string, signal: AbortSignal, oldest: Millis): Promise<IndexMetadata> {
    const left = cache.getRemainingTTL(pattern);
    // The cache reads its clock once in a while, so that what is new may seem to have more time left than it got.
    const forceRefresh = oldest === 0 || left <= freshFor - oldest;
    io.cache("mappings", !forceRefresh && left > 0);
    const metadata = await raceAbort(
      cache.fetch(pattern, { forceRefresh, allowStale: !forceRefresh }),
      signal,
    );
    if (metadata === undefined) throw new BackendError(backend, "unreachable", `no mappings of ${pattern}`);
    return metadata;
  }

  async function layoutsOf(
    source: LogSource,
    metadata: IndexMetadata,
    signal: AbortSignal,
  ): Promise<Detection> {
    const { layout: name, where } = source;
    if (name !== "auto") {
      const layout = findLayout(name, logLayouts, own?.logs);
      return { layoutGroups: partitionByLayout(() => layout, metadata, layout), settled: true, guesses: [] };
    }
    const byWall = detected.get(metadata) ?? new Map<string | undefined, Detection>();
    const known = byWall.get(where);
    if (known !== undefined) return known;
    const detection = await detectLayouts(backend, client, source, metadata, samples, signal);
    if (detection.settled) detected.set(metadata, byWall.set(where, detection));
    return detection;
  }

  return {
    async read(pattern, walled, signal) {
      const known = await fetch(pattern, signal, walled ? servedToTenantFilters : servedFor);
      // Closed indices are refused without a search that would show that they have been opened, or are gone.
      return known.closed.length === 0 ? known : fetch(pattern, signal, 0);
    },
    refresh: (pattern, signal) => fetch(pattern, signal, 0),
    acceptShardCount: (pattern, shards) => void accepted.set(pattern, shards),
    findAcceptedShardCount: (pattern) => accepted.get(pattern),
    readLayoutGroups: async (source, metadata, signal) =>
      (await layoutsOf(source, metadata, signal)).layoutGroups,
    listGuesses: async (source, metadata, signal) => (await layoutsOf(source, metadata, signal)).guesses,
    listSpanLayouts: ({ layout }) =>
      layout === "auto" ? [...spanLayouts.values()] : [findLayout(layout, spanLayouts, own?.traces)],
  };
}

const namedList = z.array(z.object({ name: z.string() }));
const resolvedNames = z.object({ indices: namedList, aliases: namedList, data_streams: namedList });

function isMissing(error: unknown): boolean {
  return error instanceof BackendError && error.status === 404;
}

/**
 * The names in a pattern, without wildcards, that an answer of `GET /<pattern>` shows nothing of. Asked for what is
 * available, the products leave out an index that the credentials may not read as they do one that does not exist.
 */
function listUnseenNames(pattern: string, answer: unknown): string[] {
  const indices = Object.entries(Object(answer) as Record<string, { aliases?: object } | null>);
  return pattern
    .split(",")
    .map((part) => part.trim())
    .filter((part) => !/[*<:]|^-|^_all$/.test(part))
    .filter(
      (part) =>
        !indices.some(
          ([index, told]) =>
            index === part || index.startsWith(`.ds-${part}-`) || Object.hasOwn(told?.aliases ?? {}, part),
        ),
    );
}

/** A name that is neither has kept the configuration from being served. */
function findLayout<Profile>(
  name: string,
  builtIn: ReadonlyMap<string, Profile>,
  own: ReadonlyMap<string, Profile> | undefined,
): Profile {
  const layout = builtIn.get(name) ?? own?.get(name);
  if (layout === undefined) throw new Error(`no profile ${name}`);
  return layout;
}
