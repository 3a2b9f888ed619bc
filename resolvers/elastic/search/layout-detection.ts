// `profile: auto`: the layout of each index. A mapping tells it where it shows one layout, and that one's message; else
// twenty documents do. Where these show none, they are read by the layout by which most of them can be read, because a line
// without its message and severity is found by nothing that is asked for. That is a guess: `check` says so with the
// reason, and it is made again as documents come. Layouts whose time the index lacks do not come into question, since by
// them no document is in any range. Behind a wall only its own documents tell: a mapping shows what others wrote as well.
import type { LRUCache } from "lru-cache";
import { BackendError } from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/store.ts";
import type { Door } from "../client/client.ts";
import { all, every, inIndices, type Query } from "../client/query-dsl.ts";
import type { Json } from "../document/lossless-json.ts";
import { structuredMessage, valueAt } from "../layout/body-decoder.ts";
import { type Part, partBy, timeIn } from "../layout/layout-groups.ts";
import { parseDocument, readSeverity } from "../layout/line-decoder.ts";
import { firstText, type LogProfile, profiles } from "../layout/log-layout.ts";
import { findField, type IndexGroup, type Knowledge, nameGroup } from "../mapping/mapping.ts";
import { compileWhere, parseWhere, WhereError } from "../query/tenant-filter.ts";
import { listed, searchWhole } from "./search.ts";

export interface Detection {
  readonly parts: readonly Part[];
  /** False while an index without documents could show its layout by its first ones. */
  readonly settled: boolean;
  readonly guesses: readonly Guess[];
}

/** What indices that show no layout are read as. */
export interface Guess {
  /** Their names, as a sentence has them. */
  readonly indices: string;
  /** None where mappings may not be read. */
  readonly groups: readonly IndexGroup[];
  readonly reason: string;
  /** Every document that was looked at has a message by it, and most have a severity: these are lines. */
  readonly plausible: boolean;
}

/** What a few documents of some indices tell. */
export interface Told {
  readonly documents: number;
  /** The layout that they show. */
  readonly shown: LogProfile | undefined;
  /** Those by which most of them can be read, where they show none: equally good. */
  readonly guessed: readonly Reading[];
}
/** How many documents a layout finds a message in, and how many a severity. */
interface Reading {
  readonly profile: LogProfile;
  readonly messages: number;
  readonly severities: number;
}

/** In the order of their names, so that `ecs` is the first of those whose body is the whole document. */
const candidates = [...profiles.values()];
const fallback = builtIn("ecs");

const sampled = 20;
const sampledAtOnce = 8;
/** The first documents of an index seldom change, but a guess may be wrong for those that came since. */
const guessedFor = 300_000;

/** @throws {BackendError} */
export async function detectLayouts(
  backend: string,
  door: Door,
  { index: pattern, where }: Pick<LogSource, "index" | "where">,
  knowledge: Knowledge,
  known: LRUCache<string, Told>,
  signal: AbortSignal,
): Promise<Detection> {
  const found = new Map<IndexGroup, LogProfile>();
  const unsure = new Map<IndexGroup, Told | undefined>();
  let settled = true;

  async function look(group: IndexGroup): Promise<void> {
    const able = timelyIn(group);
    const shown = shownBy(group, able);
    const [first] = shown;
    if (where === undefined && first !== undefined && shown.length === 1 && mapsMessage(group, first)) {
      found.set(group, first);
      return;
    }
    // Those that the mapping shows stand first, so that they are taken where the documents tell no difference.
    const among = [...shown, ...able.filter((profile) => !shown.includes(profile))];
    const key = JSON.stringify([pattern, where, group.indices, among.map(({ name }) => name)]);
    const own = every([inIndices(group.indices), wallOf(where, group)]);
    const told = known.get(key) ?? (await readSample(backend, door, pattern, own, among, signal));
    if (told.documents === 0) settled = false;
    // The documents of a young index are few, and say little of those to come.
    else if (told.documents === sampled)
      known.set(key, told, told.shown === undefined ? { ttl: guessedFor } : {});
    const profile = told.shown ?? (told.documents === 0 ? first : undefined);
    if (profile === undefined) unsure.set(group, told);
    else found.set(group, profile);
  }

  if (knowledge.opaque) {
    const told = await readSample(backend, door, pattern, all, candidates, signal);
    const profile = told.shown ?? told.guessed[0]?.profile ?? fallback;
    const guesses =
      told.shown === undefined ? [{ indices: pattern, groups: [], ...judge(profile, told) }] : [];
    return { parts: partBy(() => profile, knowledge, profile), settled: told.documents > 0, guesses };
  }
  for (let at = 0; at < knowledge.groups.length; at += sampledAtOnce) {
    await Promise.all(knowledge.groups.slice(at, at + sampledAtOnce).map(look));
  }
  const guesses = new Map<string, Judgement & { readonly groups: IndexGroup[] }>();
  // What could be read in few ways first: what could be read in many is read as the others are, where these agree.
  const ways = ([, told]: readonly [IndexGroup, Told | undefined]) =>
    told?.guessed.length || candidates.length;
  for (const entry of [...unsure].sort((a, b) => ways(a) - ways(b))) {
    const [group, told] = entry;
    const taken = new Set(found.values());
    const [common = fallback] = taken.size === 1 ? taken : [];
    const able = told?.guessed.map(({ profile }) => profile) ?? [];
    const profile = able.length === 0 || able.includes(common) ? common : (able[0] ?? fallback);
    found.set(group, profile);
    const judged = judge(profile, told);
    const alike = guesses.get(judged.reason);
    if (alike === undefined) guesses.set(judged.reason, { ...judged, groups: [group] });
    else alike.groups.push(group);
  }
  return {
    parts: partBy((group) => found.get(group) ?? fallback, knowledge, fallback),
    settled,
    guesses: [...guesses.values()].map((guess) => ({
      indices: listed(guess.groups.map(nameGroup)),
      ...guess,
    })),
  };
}

/**
 * The layouts whose time the index has; all where it has none. A number may be anything, so it counts for a layout that the
 * mapping shows, or where there is no date.
 */
function timelyIn(group: IndexGroup): readonly LogProfile[] {
  const timely = candidates.filter((profile) => timeIn(group, profile) !== undefined);
  const sure = timely.filter(
    (profile) => timeIn(group, profile)?.unit === undefined || shownBy(group, [profile]).length > 0,
  );
  return [sure, timely, candidates].find(({ length }) => length > 0) ?? candidates;
}

/** What of an index lies within the wall; a wall that it cannot keep is refused by whoever reads, and tells nothing here. */
function wallOf(where: string | undefined, group: IndexGroup): Query {
  if (where === undefined) return all;
  try {
    return compileWhere(parseWhere(where), group);
  } catch (error) {
    if (error instanceof WhereError) return all;
    throw error;
  }
}

/** The profiles that a mapping shows. An alias is in no document, so it shows nothing. */
export function shownBy(group: IndexGroup, among: readonly LogProfile[]): readonly LogProfile[] {
  return among.filter(({ detect }) => detect.some((names) => names.every((name) => isMapped(group, name))));
}

/** Whether lines of an index may have a message by the profile. */
export function mapsMessage(group: IndexGroup, { message }: LogProfile): boolean {
  return message.some((name) => isMapped(group, name));
}

function isMapped(group: IndexGroup, name: string): boolean {
  const field = findField(group, name);
  return field !== undefined && field.aliasOf === undefined;
}

/** What the first documents that a query finds tell. @throws {BackendError} */
async function readSample(
  backend: string,
  door: Door,
  pattern: string,
  query: Query,
  among: readonly LogProfile[],
  signal: AbortSignal,
): Promise<Told> {
  const body = { size: sampled, track_total_hits: false, query, sort: ["_doc"] };
  const { hits } = await searchWhole(backend, door, pattern, body, signal);
  const documents = hits.flatMap((hit) => {
    try {
      return [parseDocument(backend, hit, hit.source)];
    } catch (error) {
      if (error instanceof BackendError) return [];
      throw error;
    }
  });
  return { documents: hits.length, ...tell(documents, among) };
}

/**
 * The layout that documents show, and those by which they can be read. A layout that none can be read by gives way to one
 * that finds their messages: its mark may be a field that others have too.
 */
function tell(documents: readonly Json[], among: readonly LogProfile[]): Omit<Told, "documents"> {
  const shown = best(
    documents,
    among.filter((profile) => documents.some((document) => shows(document, profile))),
  );
  // Only where the whole document is the body does a wrong guess lose nothing of it.
  const guessed = best(
    documents,
    among.filter(({ json }) => json === "source"),
  ).filter(({ messages, severities }) => messages + severities > 0);
  const [first] = shown;
  if (first !== undefined && (first.messages > 0 || !guessed.some(({ messages }) => messages > 0)))
    return { shown: first.profile, guessed: [] };
  return { shown: undefined, guessed };
}

/**
 * Those that most documents are read best by, equally good ones in the order given. What documents show is no vote: a
 * mark of one layout, as Logstash sets it, may stand beside the fields of another.
 */
function best(documents: readonly Json[], among: readonly LogProfile[]): readonly Reading[] {
  const votes = among.map((profile) => ({ profile, votes: 0, messages: 0, severities: 0 }));
  for (const document of documents) {
    const grades = votes.map((vote) => {
      const { message, severity, fields } = legible(document, vote.profile);
      if (message) vote.messages += 1;
      if (severity) vote.severities += 1;
      return 4 * Number(message) + Number(severity) + fields;
    });
    const most = Math.max(...grades);
    for (const [at, vote] of votes.entries()) if (grades[at] === most) vote.votes += 1;
  }
  const most = Math.max(...votes.map((vote) => vote.votes));
  const equal = votes.filter((vote) => vote.votes === most);
  // A severity is asked for more often than a host or a group.
  const told = Math.max(...equal.map(({ severities }) => severities));
  return equal.filter(({ severities }) => severities === told);
}

/** Which line fields a profile finds in a document. */
function legible(document: Json, profile: LogProfile) {
  const { message, severity, hostname, group } = profile;
  return {
    // An object at `log` is what ECS has there as well, so that it tells nothing.
    message:
      firstText(document, message) !== undefined ||
      (profile.json !== "source" && structuredMessage(document, profile) !== undefined),
    severity: readSeverity(document, severity) !== "unknown",
    fields: [hostname, group].filter((names) => firstText(document, names) !== undefined).length,
  };
}

function shows(document: Json, { detect }: LogProfile): boolean {
  return detect.some((names) => names.every((name) => valueAt(document, name) !== undefined));
}

type Judgement = Pick<Guess, "reason" | "plausible">;

function judge(profile: LogProfile, told: Told | undefined): Judgement {
  const read = `read as ${profile.name}`;
  if (told === undefined || told.documents === 0)
    return { reason: `${read} until there are documents that tell`, plausible: false };
  const { documents } = told;
  const own = told.guessed.find((reading) => reading.profile === profile);
  if (own === undefined)
    return {
      reason: `${read}, although none of ${documents} documents has a message by it`,
      plausible: false,
    };
  const { messages, severities } = own;
  return {
    reason: `${read}, by which ${messages} of ${documents} documents have a message and ${severities} a severity`,
    plausible: messages === documents && 2 * severities > documents,
  };
}

function builtIn(name: string): LogProfile {
  const profile = profiles.get(name);
  if (profile === undefined) throw new Error(`the built-in profile ${name} is missing`);
  return profile;
}
