// `profile: auto`: the layout of each index. A mapping tells it where it shows one layout, and that one's message; else
// twenty documents do. Where these show none, they are read by the layout by which most of them can be read, because a line
// without its message and severity is found by nothing that is asked for. That is a guess: `check` says so with the
// reason, and it is made again as documents come. Layouts whose time the index lacks do not come into question, since by
// them no document is in any range. Behind a wall only its own documents tell: a mapping shows what others wrote as well.
import type { LRUCache } from "lru-cache";
import { BackendError } from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/store.ts";
import type { ElasticClient } from "../client/client.ts";
import { allOf, buildIndicesQuery, matchAll, type Query } from "../client/query-dsl.ts";
import type { JsonObject } from "../document/lossless-json.ts";
import { findStructuredMessage, findValue } from "../layout/body-decoder.ts";
import { findTimeField, type LayoutGroup, partitionByLayout } from "../layout/layout-groups.ts";
import { parseDocument, readSeverity } from "../layout/line-decoder.ts";
import { findFirstText, type LogLayout, logLayouts } from "../layout/log-layout.ts";
import { findField, type IndexGroup, type IndexMetadata, summariseIndices } from "../mapping/mapping.ts";
import { compileTenantFilter, parseTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";
import { formatNames, searchComplete } from "./search.ts";

export interface Detection {
  readonly layoutGroups: readonly LayoutGroup[];
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
export interface SampleVerdict {
  readonly documents: number;
  /** The layout that they show. */
  readonly shown: LogLayout | undefined;
  /** Those by which most of them can be read, where they show none: equally good. */
  readonly guessed: readonly LayoutScore[];
}
/** How many documents a layout finds a message in, and how many a severity. */
interface LayoutScore {
  readonly layout: LogLayout;
  readonly messages: number;
  readonly severities: number;
}

/** In the order of their names, so that `ecs` is the first of those whose body is the whole document. */
const candidateLayouts = [...logLayouts.values()];
const fallbackLayout = requireBuiltInLayout("ecs");

const sampleSize = 20;
const concurrentSamples = 8;
/** The first documents of an index seldom change, but a guess may be wrong for those that came since. */
const guessLifetime = 300_000;

/** @throws {BackendError} */
export async function detectLayouts(
  backend: string,
  client: ElasticClient,
  { index: pattern, where }: Pick<LogSource, "index" | "where">,
  metadata: IndexMetadata,
  known: LRUCache<string, SampleVerdict>,
  signal: AbortSignal,
): Promise<Detection> {
  const found = new Map<IndexGroup, LogLayout>();
  const unsure = new Map<IndexGroup, SampleVerdict | undefined>();
  let settled = true;

  async function look(group: IndexGroup): Promise<void> {
    const able = listTimelyLayouts(group);
    const shown = listMappedLayouts(group, able);
    const [first] = shown;
    if (where === undefined && first !== undefined && shown.length === 1 && hasMappedMessage(group, first)) {
      found.set(group, first);
      return;
    }
    // Those that the mapping shows stand first, so that they are taken where the documents tell no difference.
    const among = [...shown, ...able.filter((layout) => !shown.includes(layout))];
    const key = JSON.stringify([pattern, where, group.indices, among.map(({ name }) => name)]);
    const own = allOf([buildIndicesQuery(group.indices), buildTenantQuery(where, group)]);
    const told = known.get(key) ?? (await readSample(backend, client, pattern, own, among, signal));
    if (told.documents === 0) settled = false;
    // The documents of a young index are few, and say little of those to come.
    else if (told.documents === sampleSize)
      known.set(key, told, told.shown === undefined ? { ttl: guessLifetime } : {});
    const layout = told.shown ?? (told.documents === 0 ? first : undefined);
    if (layout === undefined) unsure.set(group, told);
    else found.set(group, layout);
  }

  if (metadata.opaque) {
    const told = await readSample(backend, client, pattern, matchAll, candidateLayouts, signal);
    const layout = told.shown ?? told.guessed[0]?.layout ?? fallbackLayout;
    const guesses =
      told.shown === undefined ? [{ indices: pattern, groups: [], ...describeGuess(layout, told) }] : [];
    return {
      layoutGroups: partitionByLayout(() => layout, metadata, layout),
      settled: told.documents > 0,
      guesses,
    };
  }
  for (let at = 0; at < metadata.groups.length; at += concurrentSamples) {
    await Promise.all(metadata.groups.slice(at, at + concurrentSamples).map(look));
  }
  const guesses = new Map<string, Judgement & { readonly groups: IndexGroup[] }>();
  // What could be read in few ways first: what could be read in many is read as the others are, where these agree.
  const ways = ([, told]: readonly [IndexGroup, SampleVerdict | undefined]) =>
    told?.guessed.length || candidateLayouts.length;
  for (const entry of [...unsure].sort((a, b) => ways(a) - ways(b))) {
    const [group, told] = entry;
    const taken = new Set(found.values());
    const [common = fallbackLayout] = taken.size === 1 ? taken : [];
    const able = told?.guessed.map(({ layout }) => layout) ?? [];
    const layout = able.length === 0 || able.includes(common) ? common : (able[0] ?? fallbackLayout);
    found.set(group, layout);
    const judged = describeGuess(layout, told);
    const alike = guesses.get(judged.reason);
    if (alike === undefined) guesses.set(judged.reason, { ...judged, groups: [group] });
    else alike.groups.push(group);
  }
  return {
    layoutGroups: partitionByLayout((group) => found.get(group) ?? fallbackLayout, metadata, fallbackLayout),
    settled,
    guesses: [...guesses.values()].map((guess) => ({
      indices: formatNames(guess.groups.map(summariseIndices)),
      ...guess,
    })),
  };
}

/**
 * The layouts whose time the index has; all where it has none. A number may be anything, so it counts for a layout that the
 * mapping shows, or where there is no date.
 */
function listTimelyLayouts(group: IndexGroup): readonly LogLayout[] {
  const timely = candidateLayouts.filter((layout) => findTimeField(group, layout) !== undefined);
  const sure = timely.filter(
    (layout) =>
      findTimeField(group, layout)?.unit === undefined || listMappedLayouts(group, [layout]).length > 0,
  );
  return [sure, timely, candidateLayouts].find(({ length }) => length > 0) ?? candidateLayouts;
}

/** What of an index lies within the wall; a wall that it cannot keep is refused by whoever reads, and tells nothing here. */
function buildTenantQuery(where: string | undefined, group: IndexGroup): Query {
  if (where === undefined) return matchAll;
  try {
    return compileTenantFilter(parseTenantFilter(where), group);
  } catch (error) {
    if (error instanceof TenantFilterError) return matchAll;
    throw error;
  }
}

/** The profiles that a mapping shows. An alias is in no document, so it shows nothing. */
export function listMappedLayouts(group: IndexGroup, among: readonly LogLayout[]): readonly LogLayout[] {
  return among.filter(({ detect }) => detect.some((names) => names.every((name) => isMapped(group, name))));
}

/** Whether lines of an index may have a message by the profile. */
export function hasMappedMessage(group: IndexGroup, { message }: LogLayout): boolean {
  return message.some((name) => isMapped(group, name));
}

function isMapped(group: IndexGroup, name: string): boolean {
  const field = findField(group, name);
  return field !== undefined && field.aliasOf === undefined;
}

/** What the first documents that a query finds tell. @throws {BackendError} */
async function readSample(
  backend: string,
  client: ElasticClient,
  pattern: string,
  query: Query,
  among: readonly LogLayout[],
  signal: AbortSignal,
): Promise<SampleVerdict> {
  const body = { size: sampleSize, track_total_hits: false, query, sort: ["_doc"] };
  const { hits } = await searchComplete(backend, client, pattern, body, signal);
  const documents = hits.flatMap((hit) => {
    try {
      return [parseDocument(backend, hit, hit.source)];
    } catch (error) {
      if (error instanceof BackendError) return [];
      throw error;
    }
  });
  return { documents: hits.length, ...decideLayout(documents, among) };
}

/**
 * The layout that documents show, and those by which they can be read. A layout that none can be read by gives way to one
 * that finds their messages: its mark may be a field that others have too.
 */
function decideLayout(
  documents: readonly JsonObject[],
  among: readonly LogLayout[],
): Omit<SampleVerdict, "documents"> {
  const shown = selectBestLayouts(
    documents,
    among.filter((layout) => documents.some((document) => hasLayoutMark(document, layout))),
  );
  // Only where the whole document is the body does a wrong guess lose nothing of it.
  const guessed = selectBestLayouts(
    documents,
    among.filter(({ json }) => json === "source"),
  ).filter(({ messages, severities }) => messages + severities > 0);
  const [first] = shown;
  if (first !== undefined && (first.messages > 0 || !guessed.some(({ messages }) => messages > 0)))
    return { shown: first.layout, guessed: [] };
  return { shown: undefined, guessed };
}

/**
 * Those that most documents are read best by, equally good ones in the order given. What documents show is no vote: a
 * mark of one layout, as Logstash sets it, may stand beside the fields of another.
 */
function selectBestLayouts(
  documents: readonly JsonObject[],
  among: readonly LogLayout[],
): readonly LayoutScore[] {
  const votes = among.map((layout) => ({ layout, votes: 0, messages: 0, severities: 0 }));
  for (const document of documents) {
    const grades = votes.map((vote) => {
      const { message, severity, fields } = scoreDocument(document, vote.layout);
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
function scoreDocument(document: JsonObject, layout: LogLayout) {
  const { message, severity, hostname, group } = layout;
  return {
    // An object at `log` is what ECS has there as well, so that it tells nothing.
    message:
      findFirstText(document, message) !== undefined ||
      (layout.json !== "source" && findStructuredMessage(document, layout) !== undefined),
    severity: readSeverity(document, severity) !== "unknown",
    fields: [hostname, group].filter((names) => findFirstText(document, names) !== undefined).length,
  };
}

function hasLayoutMark(document: JsonObject, { detect }: LogLayout): boolean {
  return detect.some((names) => names.every((name) => findValue(document, name) !== undefined));
}

type Judgement = Pick<Guess, "reason" | "plausible">;

function describeGuess(layout: LogLayout, told: SampleVerdict | undefined): Judgement {
  const read = `read as ${layout.name}`;
  if (told === undefined || told.documents === 0)
    return { reason: `${read} until there are documents that tell`, plausible: false };
  const { documents } = told;
  const own = told.guessed.find((reading) => reading.layout === layout);
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

function requireBuiltInLayout(name: string): LogLayout {
  const layout = logLayouts.get(name);
  if (layout === undefined) throw new Error(`the built-in profile ${name} is missing`);
  return layout;
}
