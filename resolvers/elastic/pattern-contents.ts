// What the members of a pattern hold: lines, spans, events of spans, copies, or nothing that is known; by the same detection as
// reading.
import type { JsonObject } from "../../src/core/json/lossless-json.ts";
import type { SourceInspection } from "../../src/store/inspection.ts";
import type { LogSource } from "../../src/store/logs.ts";
import type { ElasticClient } from "./client/client.ts";
import {
  allOf,
  anyOf,
  buildIndicesQuery,
  matchNone,
  not,
  type Query,
  restrictToIndices,
} from "./client/query-dsl.ts";
import { findValue } from "./document/dotted-names.ts";
import { type PlacedForm, type PlacedForms, placeForms } from "./layout/form-placement.ts";
import type { LogLayout } from "./layout/log-layout.ts";
import { type EventForm, type SpanForm, spanLayouts } from "./layout/span-layout.ts";
import { collapseIndices, type IndexPattern } from "./mapping/collapsed-patterns.ts";
import type { ListedIndex } from "./mapping/listed-indices.ts";
import type { IndexGroup, IndexMetadata } from "./mapping/mapping.ts";
import { buildCertainFormQuery } from "./query/span-lower-bounds.ts";
import { buildFormQuery } from "./query/span-upper-bounds.ts";
import { buildLineQuery, hasMappedMessage, listMappedLayouts } from "./search/layout-detection.ts";
import { hasDocuments, parseSampled, sampleGroups } from "./search/layout-samples.ts";
import type { MappingCache } from "./search/mapping-cache.ts";
import { listCopyIndices } from "./spans/inspection.ts";

export interface SurveyContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
  readonly inspect: (source: LogSource) => Promise<SourceInspection>;
  readonly signal: AbortSignal;
  /** Whether the user has named the patterns. */
  readonly isRequested: boolean;
}

/** The members of a pattern by what they hold. Some hold both lines and events of spans. */
export interface Contents {
  readonly all: readonly ListedIndex[];
  /** Lines; nothing that is recognised where no other is. */
  readonly lines: readonly ListedIndex[];
  /** Beside lines: nothing that is recognised, also not in indices whose names differ by a date or a counter. */
  readonly unknown: readonly ListedIndex[];
  /** Spans or events of spans. */
  readonly traces: readonly ListedIndex[];
  /** Indices that hold spans. */
  readonly spanIndices: readonly string[];
  /** Copies of spans. */
  readonly copies: readonly ListedIndex[];
  readonly pattern: string;
  /** As of its metadata. */
  readonly resultWindow: number;
}

/** The places of spans and their events by all known layouts. @throws {BackendError} */
export async function placeAllForms(
  metadata: IndexMetadata,
  { client, signal }: SurveyContext,
): Promise<PlacedForms> {
  return placeForms(metadata, [...spanLayouts.values()], await client.detectProduct(signal));
}

export async function divideMembers(
  { index: pattern, members }: IndexPattern,
  metadata: IndexMetadata,
  forms: PlacedForms,
  context: SurveyContext,
): Promise<Contents> {
  const { indices: known, resultWindow } = metadata;
  const seen = members.filter(({ indices }) => indices.some((index) => known.has(index)));
  const unseen = members.filter((one) => !seen.includes(one));
  const listed = new Set(members.flatMap(({ indices }) => indices));
  const unlisted = [...known]
    .filter((index) => !listed.has(index))
    .map((index) => ({ name: index, own: index, aliases: [], isStream: false, indices: [index] }));
  const shown = [...seen, ...unlisted];
  const holdsAny = (indices: Iterable<string>) => {
    const holders = new Set(indices);
    return (one: ListedIndex) => one.indices.some((index) => holders.has(index));
  };
  const copyIndices = new Set(
    forms.layouts.flatMap(({ copies }) => listCopyIndices(copies, { indices: known })),
  );
  const copies = shown.filter(({ indices }) => indices.every((index) => copyIndices.has(index)));
  const spanIndices = forms.spans.flatMap(({ group }) => group.indices);
  const eventIndices = forms.events.flatMap(({ group }) => group.indices);
  const spans = shown.filter(holdsAny(spanIndices)).filter((one) => !copies.includes(one));
  const events = shown
    .filter(holdsAny(eventIndices))
    .filter((one) => !spans.includes(one) && !copies.includes(one));
  // Events of spans may be log lines too, as those of OpenTelemetry, or the only documents, as the errors of APM.
  const own = buildIndicesQuery(events.flatMap(({ indices }) => indices));
  const hasLines =
    events.length > 0 && (await hasOtherDocuments({ pattern, resultWindow }, own, forms.events, context));
  const taken = new Set([...copies, ...spans, ...(hasLines ? [] : events)]);
  const lines = shown.filter((one) => !taken.has(one));
  const traces = [...spans, ...events];
  const unknown = await findUnknown(pattern, lines, metadata, context);
  // What is listed but whose mapping is not shown stays where the others are.
  const areAllTraces = shown.length > 0 && lines.length === 0;
  return {
    all: [...shown, ...unseen],
    pattern,
    resultWindow,
    copies,
    spanIndices,
    unknown,
    lines: areAllTraces ? lines : [...lines, ...unseen].filter((one) => !unknown.includes(one)),
    traces: areAllTraces ? [...traces, ...unseen] : traces,
  };
}

export const unrecognised = "neither lines nor spans";

/** Those of `lines` that hold none in any index of the same stem; none where that is all of them. */
async function findUnknown(
  pattern: string,
  lines: readonly ListedIndex[],
  metadata: IndexMetadata,
  context: SurveyContext,
): Promise<readonly ListedIndex[]> {
  const kinds = await readKinds(pattern, lines, metadata, context);
  const isUnknown = ({ name }: ListedIndex) => [...(kinds.get(name) ?? [])].join() === unrecognised;
  const stems = collapseIndices(lines, { limit: Number.POSITIVE_INFINITY });
  const unknown = stems.flatMap(({ members }) => (members.every(isUnknown) ? members : []));
  return unknown.length === lines.length ? [] : unknown;
}

/** What the indices of each name hold. @throws {BackendError} */
export async function readKinds(
  index: string,
  members: readonly ListedIndex[],
  metadata: IndexMetadata,
  context: SurveyContext,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const { mappingCache, signal } = context;
  const forms = await placeAllForms(metadata, context);
  const copies = new Set(forms.layouts.flatMap((layout) => listCopyIndices(layout.copies, metadata)));
  const source = { id: "", index, layout: "auto", tenantFilter: undefined };
  const { layoutGroups, guesses, shown } = await mappingCache.detectLayouts(source, metadata, signal);
  const guessed = new Set(guesses.flatMap(({ plausible, groups }) => (plausible ? groups : [])));
  const found = new Map<string, Set<string>>();
  for (const { layout, groups } of layoutGroups) {
    for (const group of groups) {
      const hasLines = guessed.has(group) || shown.has(group) || isReadableBy(group, layout);
      for (const index of group.indices) {
        const name = members.find(({ indices }) => indices.includes(index))?.name ?? index;
        const lines = hasLines && findOtherSignal(name) === undefined ? layout : undefined;
        const kind = copies.has(index) ? unrecognised : describeKind(group, forms, lines);
        found.set(name, (found.get(name) ?? new Set()).add(kind));
      }
    }
  }
  return found;
}

/** Whether the mapping of an index group has the marks of a layout, and a message. */
function isReadableBy(group: IndexGroup, layout: LogLayout): boolean {
  return listMappedLayouts(group, [layout]).length > 0 && hasMappedMessage(group, layout);
}

/** What an index group holds; `lines` is the layout of its log lines, if it holds any. */
function describeKind(
  group: IndexGroup,
  { spans, events }: PlacedForms,
  lines: LogLayout | undefined,
): string {
  const placed = spans.find((one) => one.group === group);
  if (placed !== undefined) return `spans of ${placed.layout}`;
  const eventLayouts = events.filter((one) => one.group === group).map(({ layout }) => layout);
  return [...eventLayouts, lines === undefined ? unrecognised : `lines of ${lines.name}`].join();
}

/** Whether documents with the marks of log lines lie in the indices of spans. */
export async function hasLinesAmongSpans(
  { pattern, resultWindow, spanIndices }: Contents,
  { spans, events }: PlacedForms,
  context: SurveyContext,
): Promise<boolean> {
  const groups = [...new Set(spans.map((placed) => placed.group))];
  const lines = anyOf(
    restrictToIndices(groups.map((group) => ({ query: buildLineQuery(group), indices: group.indices }))),
  );
  if (lines === matchNone || spanIndices.length === 0) return false;
  return hasOtherDocuments({ pattern, resultWindow }, lines, [...spans, ...events], context);
}

type PlacedAny = PlacedForm<SpanForm | EventForm>;

/**
 * Whether a document that the query finds is of none of these forms. Where the index does not show of which a document is, the
 * first ones of each group are read.
 */
async function hasOtherDocuments(
  place: Pick<Contents, "pattern" | "resultWindow">,
  own: Query,
  placed: readonly PlacedAny[],
  { backend, client, signal }: SurveyContext,
): Promise<boolean> {
  const context = { backend, client, ...place, signal };
  const certainlyOthers = allOf([own, not(buildFormsQuery(placed, buildFormQuery))]);
  if (await hasDocuments(context, [certainlyOthers])) return true;
  const undecided = allOf([own, not(buildFormsQuery(placed, buildCertainFormQuery))]);
  const groups = [...new Set(placed.map(({ group }) => group))];
  const sampled = groups.map((group) => ({ group, query: undecided }));
  for await (const [{ group }, hits] of sampleGroups(context, sampled)) {
    const forms = placed.filter((one) => one.group === group).map(({ form }) => form);
    const documents = hits.map((hit) => parseSampled(backend, hit)).filter((one) => one !== undefined);
    if (documents.some((document) => !forms.some((form) => isOfForm(document, form)))) return true;
  }
  return false;
}

function buildFormsQuery(placed: readonly PlacedAny[], buildQuery: (one: PlacedAny) => Query): Query {
  return anyOf(placed.map((one) => allOf([buildIndicesQuery(one.group.indices), buildQuery(one)])));
}

function isOfForm(document: JsonObject, { present }: SpanForm | EventForm): boolean {
  return present.every((name) => (findValue(document, name) ?? "") !== "");
}

/** The first word of an index name, if it is the name of a signal other than logs. */
export function findOtherSignal(name: string): string | undefined {
  return /^(?:metric|trace|synthetic|profiling|heartbeat)[a-z]*(?=[-._])/.exec(name)?.[0];
}
