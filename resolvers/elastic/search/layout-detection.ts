// The layout of each index, where the configuration says `auto`. A mapping decides where it shows exactly one layout and maps
// that layout's message; otherwise twenty documents do. Where these show no layout, the one that reads most of them is guessed,
// because a line without message and severity is hardly ever found. `check` reports a guess with its reason, and it is made
// again as documents come. Of an index without documents nothing is known: whoever reads asks first whether it has some now, and
// believes none that come meanwhile.
// A layout whose time field the index lacks is no candidate: its lines would be in no range. With a tenant filter only the
// tenant's own documents count, since a mapping also shows what others wrote.
import type { LRUCache } from "lru-cache";
import { isNonEmpty, requireFirst, requireKey } from "../../../src/core/collections.ts";
import { formatScalar, type JsonObject } from "../../../src/core/json/lossless-json.ts";
import { allOf, anyOf, matchAll, matchNone, type Query } from "../client/query-dsl.ts";
import { findFirstText, findValue } from "../document/dotted-names.ts";
import type { Hit } from "../document/hit-scanner.ts";
import { findStructuredMessage } from "../layout/body-decoder.ts";
import { findTimeField, type LayoutGroup, partitionByLayout } from "../layout/layout-groups.ts";
import { readSeverity } from "../layout/line-decoder.ts";
import { type LayoutMark, type LogLayout, logLayouts } from "../layout/log-layout.ts";
import { findField, type IndexGroup, type IndexMetadata } from "../mapping/mapping.ts";
import { isNumeric } from "../query/comparison-compiler.ts";
import { compileTenantFilter, parseTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";
import {
  findFirstDocuments,
  joinQueries,
  parseSampled,
  type SampleContext,
  type SampledGroup,
  sampleGroups,
  sampleSize,
} from "./layout-samples.ts";

export interface Detection {
  readonly layoutGroups: readonly LayoutGroup[];
  /** Find the documents of indices that had none: the first ones could show another layout. */
  readonly unseen: readonly Query[];
  readonly guesses: readonly Guess[];
  /** Groups whose documents, not their mapping alone, show the layout, and have messages by it. */
  readonly shown: ReadonlySet<IndexGroup>;
}

/** How indices that show no layout are read. */
export interface Guess {
  /** Empty where mappings may not be read. */
  readonly groups: readonly IndexGroup[];
  readonly reason: string;
  /** Every document of the sample has a message by it, and most have a severity: these are lines. */
  readonly plausible: boolean;
}

/** What a sample of documents shows. */
export interface SampleVerdict {
  /** The size of the sample. */
  readonly documents: number;
  /** The layout that they show. */
  readonly shown: LayoutScore | undefined;
  /** Where they show none, the layouts that read most of them, equally well. */
  readonly guessed: readonly LayoutScore[];
}

/** The number of documents in which a layout finds a message, and a severity. */
interface LayoutScore {
  readonly layout: LogLayout;
  readonly messages: number;
  readonly severities: number;
}

/** In the order in which they are tried. */
const candidateLayouts = orderLayouts([...logLayouts.values()]);
/**
 * What documents without a mark may be read by, `ecs` first. A wrong guess loses nothing only where the whole document is the
 * body.
 */
const guessableLayouts = candidateLayouts.filter(
  ({ json, resembles }) => json === "source" && resembles.length === 0,
);
const fallbackLayout = requireBuiltInLayout("ecs");

/** The first documents of an index seldom change, but a guess may be wrong for later ones. */
const guessLifetime = 300_000;

/** By name, but each before the layouts that it resembles. */
function orderLayouts(layouts: readonly LogLayout[]): readonly LogLayout[] {
  const ordered = [...layouts];
  for (const layout of layouts) {
    const first = ordered.findIndex(({ name }) => layout.resembles.includes(name));
    const own = ordered.indexOf(layout);
    if (first !== -1 && first < own) ordered.splice(first, 0, ...ordered.splice(own, 1));
  }
  return ordered;
}

/** What the detection of one source needs, and what it has found. */
interface DetectionContext extends SampleContext {
  readonly tenantFilter: string | undefined;
  readonly samples: LRUCache<string, SampleVerdict>;
  readonly found: Map<IndexGroup, LogLayout>;
  readonly shown: Set<IndexGroup>;
  readonly undecided: Map<IndexGroup, SampleVerdict>;
  readonly unseen: SampledGroup[];
}

/** A group whose mapping does not decide. */
interface UndecidedGroup extends SampledGroup {
  /** Those that the mapping shows come first, so that they are taken where the documents make no difference. */
  readonly candidates: readonly LogLayout[];
  /** The first layout that the mapping shows. */
  readonly mapped: LogLayout | undefined;
  /** All that the verdict depends on. */
  readonly key: string;
}

/** `samples` remembers verdicts from one state of the mappings to the next. @throws {BackendError} */
export async function detectLayouts(
  place: SampleContext,
  tenantFilter: string | undefined,
  metadata: IndexMetadata,
  samples: LRUCache<string, SampleVerdict>,
): Promise<Detection> {
  const found = new Map<IndexGroup, LogLayout>();
  const context: DetectionContext = {
    ...place,
    tenantFilter,
    samples,
    found,
    shown: new Set(),
    undecided: new Map(),
    unseen: [],
  };
  if (metadata.opaque) return detectOpaque(context, metadata);
  const unknown: UndecidedGroup[] = [];
  for (const group of metadata.groups) {
    const sampled = judgeMapping(context, group);
    if (sampled === undefined) continue;
    const sample = samples.get(sampled.key);
    if (sample === undefined) unknown.push(sampled);
    else judgeSample(context, sampled, sample);
  }
  for await (const [sampled, hits] of sampleGroups(context, unknown)) {
    const sample = readVerdict(place.backend, hits, sampled.candidates);
    // A young index has few documents, which say little about those to come.
    if (sample.documents === sampleSize)
      samples.set(sampled.key, sample, sample.shown === undefined ? { ttl: guessLifetime } : {});
    judgeSample(context, sampled, sample);
  }
  const guesses = guessUndecided(context);
  const unseen = new Set(context.unseen.flatMap(({ group }) => group.indices));
  return {
    layoutGroups: partitionByLayout(
      (group) => requireKey(found, group),
      metadata,
      fallbackLayout,
      (index) => unseen.has(index),
    ),
    unseen: joinQueries(context.unseen),
    guesses,
    shown: context.shown,
  };
}

/**
 * One layout for the whole pattern, where mappings may not be read. A tenant filter cannot be compiled then, so no document is
 * looked at: the source is refused by whoever reads.
 */
async function detectOpaque(context: DetectionContext, metadata: IndexMetadata): Promise<Detection> {
  if (context.tenantFilter !== undefined) {
    const layoutGroups = partitionByLayout(() => fallbackLayout, metadata, fallbackLayout);
    return { layoutGroups, unseen: [], guesses: [], shown: new Set() };
  }
  const hits = await findFirstDocuments(context, matchAll, sampleSize);
  const sample = readVerdict(context.backend, hits, candidateLayouts);
  const { layout } = sample.shown ?? sample.guessed[0] ?? { layout: fallbackLayout };
  const guess = { groups: [], ...describeGuess(layout, sample) };
  return {
    layoutGroups: partitionByLayout(
      () => layout,
      metadata,
      layout,
      () => sample.documents === 0,
    ),
    unseen: sample.documents === 0 ? [matchAll] : [],
    guesses: sample.shown === undefined ? [guess] : [],
    shown: new Set(),
  };
}

/** Decides a group by its mapping. If that is not enough, returns what a sample of its documents needs. */
function judgeMapping(
  { pattern, tenantFilter, found }: DetectionContext,
  group: IndexGroup,
): UndecidedGroup | undefined {
  const timely = listTimelyLayouts(group);
  const mapped = listMappedLayouts(group, timely);
  const [first] = mapped;
  if (
    tenantFilter === undefined &&
    first !== undefined &&
    mapped.length === 1 &&
    hasMappedMessage(group, first)
  ) {
    found.set(group, first);
    return undefined;
  }
  const candidates = [...mapped, ...timely.filter((layout) => !mapped.includes(layout))];
  const key = JSON.stringify([pattern, tenantFilter, group.indices, candidates.map(({ name }) => name)]);
  return { group, query: buildGroupTenantQuery(tenantFilter, group), candidates, mapped: first, key };
}

/** Decides a group by its documents, as far as these show a layout. */
function judgeSample(
  { found, shown, undecided, unseen }: DetectionContext,
  sampled: UndecidedGroup,
  sample: SampleVerdict,
): void {
  const { group, mapped } = sampled;
  if (sample.documents === 0) unseen.push(sampled);
  if (sample.shown !== undefined && sample.shown.messages > 0) shown.add(group);
  const layout = sample.shown?.layout ?? (sample.documents === 0 ? mapped : undefined);
  if (layout === undefined) undecided.set(group, sample);
  else found.set(group, layout);
}

/**
 * Decides the groups whose sample shows no layout. A group that few layouts can read comes first; one that many can read is
 * read like the groups before it, if these agree.
 */
function guessUndecided({ found, undecided }: DetectionContext): readonly Guess[] {
  const guesses = new Map<string, Judgement & { readonly groups: IndexGroup[] }>();
  const countChoices = ({ guessed }: SampleVerdict) => guessed.length || candidateLayouts.length;
  for (const [group, sample] of [...undecided].sort((a, b) => countChoices(a[1]) - countChoices(b[1]))) {
    const taken = new Set(found.values());
    const [common = fallbackLayout] = taken.size === 1 ? taken : [];
    const readable = sample.guessed.map(({ layout }) => layout);
    const layout = readable.length === 0 || readable.includes(common) ? common : requireFirst(readable);
    found.set(group, layout);
    const judgement = describeGuess(layout, sample);
    const known = guesses.get(judgement.reason);
    if (known === undefined) guesses.set(judgement.reason, { ...judgement, groups: [group] });
    else known.groups.push(group);
  }
  return [...guesses.values()];
}

/**
 * The layouts whose time field the index has; all where it has none. A number may be anything, so a layout with a numeric time
 * counts only if the mapping shows the layout, or where no layout has a date.
 */
function listTimelyLayouts(group: IndexGroup): readonly LogLayout[] {
  const timely = candidateLayouts.filter((layout) => findTimeField(group, layout) !== undefined);
  const certain = timely.filter(
    (layout) =>
      findTimeField(group, layout)?.unit === undefined || listMappedLayouts(group, [layout]).length > 0,
  );
  return [certain, timely].find(isNonEmpty) ?? candidateLayouts;
}

/** The tenant's documents of an index: none where the filter is not exact, which whoever reads refuses. */
function buildGroupTenantQuery(tenantFilter: string | undefined, group: IndexGroup): Query {
  if (tenantFilter === undefined) return matchAll;
  try {
    return compileTenantFilter(parseTenantFilter(tenantFilter), group);
  } catch (error) {
    if (error instanceof TenantFilterError) return matchNone;
    throw error;
  }
}

/** The layouts that a mapping shows. An alias is in no document, so it shows nothing. */
export function listMappedLayouts(group: IndexGroup, candidates: readonly LogLayout[]): readonly LogLayout[] {
  return candidates.filter(({ detect }) =>
    detect.some((marks) => marks.every((mark) => isMarked(group, mark))),
  );
}

/** Log lines of an index by its mapping: documents with a message and the marks of a layout. */
export function buildLineQuery(group: IndexGroup): Query {
  const exists = (field: string): Query => ({ exists: { field } });
  const buildMarksQuery = (marks: readonly LayoutMark[]) => allOf(marks.map(({ name }) => exists(name)));
  const layouts = listMappedLayouts(group, candidateLayouts).filter((layout) =>
    hasMappedMessage(group, layout),
  );
  return anyOf(
    layouts.map(({ message, detect }) =>
      allOf([anyOf(message.map(exists)), anyOf(detect.map(buildMarksQuery))]),
    ),
  );
}

/** Whether the index maps a field for the layout's message. */
export function hasMappedMessage(group: IndexGroup, { message }: LogLayout): boolean {
  return message.some((name) => isMapped(group, name));
}

function isMarked(group: IndexGroup, { name, isNumber }: LayoutMark): boolean {
  const field = findField(group, name);
  return isMapped(group, name) && (!isNumber || (field !== undefined && isNumeric(field)));
}

function isMapped(group: IndexGroup, name: string): boolean {
  const field = findField(group, name);
  return field !== undefined && field.aliasOf === undefined;
}

/** What the first documents of a group show. */
function readVerdict(backend: string, hits: readonly Hit[], candidates: readonly LogLayout[]): SampleVerdict {
  const documents = hits.map((hit) => parseSampled(backend, hit)).filter((one) => one !== undefined);
  return { documents: hits.length, ...decideLayout(documents, candidates) };
}

/**
 * The layout that documents show, or those by which they can be read. A shown layout that finds no message gives way to one
 * that does: its mark may be a field that other layouts have too.
 */
function decideLayout(
  documents: readonly JsonObject[],
  candidates: readonly LogLayout[],
): Omit<SampleVerdict, "documents"> {
  const shown = selectBestLayouts(
    documents,
    candidates.filter((layout) => documents.some((document) => hasLayoutMark(document, layout))),
  );
  const guessed = selectBestLayouts(
    documents,
    candidates.filter((layout) => guessableLayouts.includes(layout)),
  ).filter(({ messages, severities }) => messages + severities > 0);
  const isPreceded = ({ name }: LogLayout) => shown.some(({ layout }) => layout.precedes.includes(name));
  const first = shown.find(({ layout }) => !isPreceded(layout));
  if (first !== undefined && (first.messages > 0 || !guessed.some(({ messages }) => messages > 0)))
    return { shown: first, guessed: [] };
  return { shown: undefined, guessed };
}

/**
 * The layouts that read most documents best, equally good ones in the given order. The mark of a layout is no vote: Logstash
 * sets it beside the fields of another layout.
 */
function selectBestLayouts(
  documents: readonly JsonObject[],
  candidates: readonly LogLayout[],
): readonly LayoutScore[] {
  const votes = candidates.map((layout) => ({ layout, votes: 0, messages: 0, severities: 0 }));
  for (const document of documents) {
    const scores = votes.map((vote) => {
      const { message, severity, fields } = scoreDocument(document, vote.layout);
      if (message) vote.messages += 1;
      if (severity) vote.severities += 1;
      return 4 * Number(message) + Number(severity) + fields;
    });
    const most = Math.max(...scores);
    for (const [at, vote] of votes.entries()) if (scores[at] === most) vote.votes += 1;
  }
  const most = Math.max(...votes.map((vote) => vote.votes));
  const equal = votes.filter((vote) => vote.votes === most);
  // Queries name a severity more often than a host or a group.
  const mostSeverities = Math.max(...equal.map(({ severities }) => severities));
  return equal.filter(({ severities }) => severities === mostSeverities);
}

/** Which line fields a layout finds in a document. */
function scoreDocument(document: JsonObject, layout: LogLayout) {
  const { message, severity, hostname, group } = layout;
  return {
    // ECS has an object at `log` as well, so that it shows nothing.
    message:
      findFirstText(document, message) !== undefined ||
      (layout.json !== "source" && findStructuredMessage(document, layout) !== undefined),
    severity: readSeverity(document, severity) !== "unknown",
    fields: [hostname, group].filter((names) => findFirstText(document, names) !== undefined).length,
  };
}

function hasLayoutMark(document: JsonObject, { detect }: LogLayout): boolean {
  return detect.some((marks) =>
    marks.every(({ name, isNumber }) => {
      const value = findValue(document, name);
      return isNumber ? /^\d+$/.test(formatScalar(value) ?? "") : value !== undefined;
    }),
  );
}

type Judgement = Pick<Guess, "reason" | "plausible">;

function describeGuess(layout: LogLayout, { documents, guessed }: SampleVerdict): Judgement {
  const read = `read as ${layout.name}`;
  if (documents === 0) return { reason: `${read} until documents show more`, plausible: false };
  const own = guessed.find((score) => score.layout === layout);
  if (own === undefined) {
    const reason = `${read}, although none of ${documents} documents has a message by it`;
    return { reason, plausible: false };
  }
  const { messages, severities } = own;
  return {
    reason: `${read}, by which ${messages} of ${documents} documents have a message and ${severities} a severity`,
    plausible: messages === documents && 2 * severities > documents,
  };
}

function requireBuiltInLayout(name: string): LogLayout {
  const layout = logLayouts.get(name);
  if (layout === undefined) throw new Error(`the built-in layout ${name} is missing`);
  return layout;
}
