// What is remembered of the indices behind each pattern, so that a query needs one request. The reader notices by itself
// when an index appears and asks for a refresh. What only a fresh mapping shows is an index that was dropped and made
// again under its name, so age is bounded, and for a wall between tenants closely.
import { LRUCache } from "lru-cache";
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import type { IO, LogSource, OwnProfiles } from "../../../src/store/store.ts";
import { orAborted } from "../../http/guard.ts";
import type { Door } from "../client/client.ts";
import { encodePattern, mappingOptions } from "../client/query-dsl.ts";
import { type Part, partBy } from "../layout/layout-groups.ts";
import { type LogProfile, profiles } from "../layout/log-layout.ts";
import { type SpanProfile, spanProfiles } from "../layout/span-layout.ts";
import { type Knowledge, opaqueKnowledge, readKnowledge } from "../mapping/mapping.ts";
import { type Detection, detectLayouts, type Guess, type Told } from "./layout-detection.ts";
import { isClosed, postSearch } from "./search.ts";

export interface Catalog {
  /**
   * What the mappings of a pattern say; served stale while a fresh copy is fetched, for a wall only when it is seconds
   * old. @throws {BackendError}
   */
  knowledge(pattern: string, walled: boolean, signal: AbortSignal): Promise<Knowledge>;
  /** Reads the mappings again, once for all who ask at the same time. @throws {BackendError} */
  refresh(pattern: string, signal: AbortSignal): Promise<Knowledge>;
  /** Some aliases reach another number of shards than their indices have: not a sign of news once it was looked at. */
  accept(pattern: string, shards: number): void;
  accepted(pattern: string): number | undefined;
  /** The layout of each index of a source, as parts that are read alike; `auto` may look at a few documents. */
  parts(source: LogSource, knowledge: Knowledge, signal: AbortSignal): Promise<readonly Part[]>;
  /** What `auto` could only guess of these, each with the reason. */
  guesses(source: LogSource, knowledge: Knowledge, signal: AbortSignal): Promise<readonly Guess[]>;
  /** The layouts that the documents of a source may have; which of them has which index, its mapping tells. */
  spanProfiles(source: SpanSource): readonly SpanProfile[];
}

const fresh: Millis = 30_000;
/** An index can be dropped and made again under its name, which only its mapping shows: no copy is served older. */
const served: Millis = 300_000;
const servedToWalls: Millis = 5_000;
/** How long a failure is repeated to others instead of asking a source in trouble again. */
const backOff: Millis = 1_000;

export function createCatalog(
  backend: string,
  door: Door,
  io: Pick<IO, "cache">,
  own?: OwnProfiles<LogProfile, SpanProfile>,
): Catalog {
  const failures = new Map<string, { readonly at: number; readonly error: unknown }>();
  const accepted = new Map<string, number>();
  /** The indices behind each pattern, as last read. */
  const told = new Map<string, string>();
  /** By the source's wall. */
  const detected = new WeakMap<Knowledge, Map<string | undefined, Detection>>();
  const samples = new LRUCache<string, Told>({ max: 1_000 });
  const cache = new LRUCache<string, Knowledge>({
    max: 1_000,
    ttl: fresh,
    allowStale: true,
    noDeleteOnFetchRejection: true,
    fetchMethod: async (pattern) => {
      const failed = failures.get(pattern);
      if (failed !== undefined && performance.now() - failed.at < backOff) throw failed.error;
      try {
        const knowledge = await load(pattern);
        failures.delete(pattern);
        return knowledge;
      } catch (error) {
        failures.set(pattern, { at: performance.now(), error });
        throw error;
      }
    },
  });

  /** No caller's signal: others wait for the same answer. The door's own deadline bounds it. */
  const shared = new AbortController().signal;

  async function load(pattern: string): Promise<Knowledge> {
    const answer = await readMappings(pattern);
    await Promise.all(unseen(pattern, answer).map(mayRead));
    // A copy, because what is told of a pattern is remembered by it.
    if (answer === undefined) return { ...opaqueKnowledge };
    try {
      const knowledge = readKnowledge(answer, pattern);
      // How many shards were reached of others says nothing of these.
      const indices = JSON.stringify([...knowledge.uuids]);
      if (told.get(pattern) !== indices) accepted.delete(pattern);
      told.set(pattern, indices);
      return knowledge;
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
      return await door.sendJson({ method: "GET", path, query: mappingOptions }, shared);
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
    await postSearch(door, pattern, JSON.stringify({ size: 0, track_total_hits: false }), {}, shared);
  }

  /** What is not there is empty; what is there and not readable is an error. @throws {BackendError} */
  async function mayRead(name: string): Promise<void> {
    try {
      await send(name);
    } catch (error) {
      // Of a closed one the search itself tells.
      if (isMissing(error) || isClosed(error)) return;
      throw error;
    }
    if ((await door.product(shared)).name === "OpenSearch") await requireAllBehind(name);
  }

  /**
   * Told not to fail on what is forbidden (`do_not_fail_on_forbidden`), OpenSearch puts those indices of an alias that the
   * user may read in the alias's place, in searches as in this. Of what may be read as a whole the name itself comes back.
   * @throws {BackendError}
   */
  async function requireAllBehind(name: string): Promise<void> {
    const path = `/_resolve/index/${encodePattern(name)}`;
    const { success, data, error } = resolved.safeParse(await door.sendJson({ method: "GET", path }, shared));
    if (!success) throw new BackendError(backend, "malformed", `what ${name} stands for`, error);
    if (Object.values(data).some((found) => found.some((one) => one.name === name))) return;
    const reason = `the credentials may read some of the indices of ${name} only`;
    throw new BackendError(backend, "partial", reason);
  }

  async function fetch(pattern: string, signal: AbortSignal, oldest: Millis): Promise<Knowledge> {
    const left = cache.getRemainingTTL(pattern);
    // The cache reads its clock once in a while, so that what is new may seem to have more time left than it got.
    const forceRefresh = oldest === 0 || left <= fresh - oldest;
    io.cache("mappings", !forceRefresh && left > 0);
    const knowledge = await orAborted(
      cache.fetch(pattern, { forceRefresh, allowStale: !forceRefresh }),
      signal,
    );
    if (knowledge === undefined) throw new BackendError(backend, "unreachable", `no mappings of ${pattern}`);
    return knowledge;
  }

  async function layoutsOf(source: LogSource, knowledge: Knowledge, signal: AbortSignal): Promise<Detection> {
    const { profile: name, where } = source;
    if (name !== "auto") {
      const profile = profileNamed(name, profiles, own?.logs);
      return { parts: partBy(() => profile, knowledge, profile), settled: true, guesses: [] };
    }
    const byWall = detected.get(knowledge) ?? new Map<string | undefined, Detection>();
    const known = byWall.get(where);
    if (known !== undefined) return known;
    const detection = await detectLayouts(backend, door, source, knowledge, samples, signal);
    if (detection.settled) detected.set(knowledge, byWall.set(where, detection));
    return detection;
  }

  return {
    async knowledge(pattern, walled, signal) {
      const known = await fetch(pattern, signal, walled ? servedToWalls : served);
      // Closed indices are refused without a search that would show that they have been opened, or are gone.
      return known.closed.length === 0 ? known : fetch(pattern, signal, 0);
    },
    refresh: (pattern, signal) => fetch(pattern, signal, 0),
    accept: (pattern, shards) => void accepted.set(pattern, shards),
    accepted: (pattern) => accepted.get(pattern),
    parts: async (source, knowledge, signal) => (await layoutsOf(source, knowledge, signal)).parts,
    guesses: async (source, knowledge, signal) => (await layoutsOf(source, knowledge, signal)).guesses,
    spanProfiles: ({ profile }) =>
      profile === "auto" ? [...spanProfiles.values()] : [profileNamed(profile, spanProfiles, own?.traces)],
  };
}

const names = z.array(z.object({ name: z.string() }));
const resolved = z.object({ indices: names, aliases: names, data_streams: names });

function isMissing(error: unknown): boolean {
  return error instanceof BackendError && error.status === 404;
}

/**
 * The names in a pattern, without wildcards, that an answer of `GET /<pattern>` shows nothing of. Asked for what is
 * available, the products leave out an index that the credentials may not read as they do one that does not exist.
 */
function unseen(pattern: string, answer: unknown): string[] {
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
function profileNamed<Profile>(
  name: string,
  builtIn: ReadonlyMap<string, Profile>,
  own: ReadonlyMap<string, Profile> | undefined,
): Profile {
  const profile = builtIn.get(name) ?? own?.get(name);
  if (profile === undefined) throw new Error(`no profile ${name}`);
  return profile;
}
