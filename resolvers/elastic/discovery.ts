// Surveys a cluster for `readout init`: collapses its index names into few patterns, and finds whether each pattern holds log
// lines, spans or events of spans, by the same detection as reading. Sources for which an inspection finds a problem are left out.
import { z } from "zod";
import { BackendError } from "../../src/core/errors.ts";
import type { FoundSource, SourceInspection, Survey } from "../../src/store/inspection.ts";
import type { LogSource } from "../../src/store/logs.ts";
import type { SpanSource } from "../../src/store/spans.ts";
import type { ElasticClient } from "./client/client.ts";
import { allOf, anyOf, buildIndicesQuery, encodePattern, not, searchOptions } from "./client/query-dsl.ts";
import { type PlacedForms, placeForms } from "./layout/form-placement.ts";
import type { LogLayout } from "./layout/log-layout.ts";
import { spanLayouts } from "./layout/span-layout.ts";
import { collapseIndexNames, type IndexPattern } from "./mapping/index-patterns.ts";
import { findField, type IndexGroup, type IndexMetadata } from "./mapping/mapping.ts";
import { buildFormQuery } from "./query/span-upper-bounds.ts";
import { type Guess, hasMappedMessage, listMappedLayouts } from "./search/layout-detection.ts";
import type { MappingCache } from "./search/mapping-cache.ts";
import { needsMapping, searchComplete } from "./search/search.ts";
import { inspectSpanSource, listCopyIndices } from "./spans/inspection.ts";

interface SurveyContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly mappingCache: MappingCache;
  readonly inspect: (source: LogSource) => Promise<SourceInspection>;
  readonly signal: AbortSignal;
}

/** Patterns are inspected one after another, since a mapping may have megabytes. */
const maxPatterns = 100;

const resolveResponseSchema = z.object({
  indices: z.array(z.object({ name: z.string(), data_stream: z.string().optional() })),
  data_streams: z.array(
    z.object({ name: z.string(), backing_indices: z.union([z.string(), z.array(z.string())]).default([]) }),
  ),
});

/** Proposes sources for the requested patterns, or without any for all indices. @throws {BackendError} */
export async function surveyIndices(requested: readonly string[], context: SurveyContext): Promise<Survey> {
  const notes: string[] = [];
  const patterns = await findPatterns(requested, context, notes);
  for (const { index } of patterns.slice(maxPatterns))
    notes.push(`${index}: not inspected; name it with --index`);
  const logs: FoundSource[] = [];
  const traces: FoundSource[] = [];
  for (const pattern of patterns.slice(0, maxPatterns)) {
    const found = await classifyPattern(pattern, context);
    if (found.note !== undefined) notes.push(`${pattern.index}: ${found.note}`);
    if (found.logs !== undefined) logs.push(found.logs);
    if (found.traces !== undefined) traces.push(found.traces);
  }
  return { logs, traces, labels: new Map(), kubernetes: [], notes };
}

/** The requested patterns as they are, or patterns for all names that the server lists. */
async function findPatterns(
  requested: readonly string[],
  context: SurveyContext,
  notes: string[],
): Promise<readonly IndexPattern[]> {
  const { backend, client, signal } = context;
  if (requested.length > 0) return requested.map((index) => ({ index, names: [], merged: false }));
  const request = { method: "GET", path: "/_resolve/index/*", query: { expand_wildcards: "open" } } as const;
  let answer: unknown;
  try {
    answer = await client.sendJson(request, signal);
  } catch (error) {
    if (!(error instanceof BackendError) || error.failure !== "denied") throw error;
    notes.push("the names of indices may not be listed: name those that may be read with --index");
    return [];
  }
  const { success, data, error } = resolveResponseSchema.safeParse(answer);
  if (!success) throw new BackendError(backend, "malformed", "the list of indices cannot be read", error);
  // A data stream is one name for all of its backing indices.
  const names = data.indices.flatMap(({ name, data_stream }) => (data_stream === undefined ? [name] : []));
  const streamOf = new Map(
    data.data_streams.flatMap(({ name, backing_indices }) =>
      [backing_indices].flat().map((index) => [index, name] as const),
    ),
  );
  return gatherPatterns([...names, ...data.data_streams.map(({ name }) => name)], streamOf, context);
}

/**
 * A pattern is proposed with one kind of content, so patterns that were merged by their names are inspected, and merged again
 * without names of another kind. Names that cannot be proposed as one pattern stay separate.
 */
async function gatherPatterns(
  names: readonly string[],
  streamOf: ReadonlyMap<string, string>,
  context: SurveyContext,
): Promise<readonly IndexPattern[]> {
  const streams = new Set(streamOf.values());
  const kinds = new Map<string, string>();
  const inspected = new Set<string>();
  for (;;) {
    const patterns = collapseIndexNames(
      names,
      undefined,
      (name) => kinds.get(name) ?? "",
      (name) => streams.has(name),
    );
    const pattern = patterns.find(({ merged, index }) => merged && !inspected.has(index));
    if (pattern === undefined) return patterns;
    inspected.add(pattern.index);
    const found = await findKinds(pattern, streamOf, context);
    const [only, ...others] = new Set(pattern.names.map((name) => found.get(name)));
    const isOneKind = only !== undefined && others.length === 0;
    if (isOneKind && (only === unrecognised || (await classifyPattern(pattern, context)).note === undefined))
      continue;
    for (const name of pattern.names) {
      const kind = isOneKind ? undefined : found.get(name);
      kinds.set(name, kind ?? `separate: ${name}`);
    }
  }
}

const unrecognised = "neither lines nor spans";

/** What each name of a pattern holds, and in which layout. Lacks names whose mapping is not shown. @throws {BackendError} */
async function findKinds(
  { index, names }: IndexPattern,
  streamOf: ReadonlyMap<string, string>,
  context: SurveyContext,
): Promise<ReadonlyMap<string, string>> {
  try {
    const found = await readKinds(index, streamOf, context);
    return new Map(
      names.flatMap((name) => {
        const kinds = found.get(name);
        return kinds === undefined ? [] : [[name, [...kinds].sort().join(", ")] as const];
      }),
    );
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    return new Map();
  }
}

/** What the indices of each name hold, by the names of data streams where there are any. @throws {BackendError} */
async function readKinds(
  index: string,
  streamOf: ReadonlyMap<string, string>,
  { client, mappingCache, signal }: SurveyContext,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const metadata = await mappingCache.refresh(index, signal);
  const forms = placeForms(metadata, [...spanLayouts.values()], await client.detectProduct(signal));
  const copies = new Set(forms.layouts.flatMap((layout) => listCopyIndices(layout.copies, metadata)));
  const source = { id: "", index, layout: "auto" };
  const layoutGroups = await mappingCache.readLayoutGroups(source, metadata, signal);
  const guesses = await mappingCache.listGuesses(source, metadata, signal);
  const guessed = new Set(guesses.flatMap(({ plausible, groups }) => (plausible ? groups : [])));
  const found = new Map<string, Set<string>>();
  for (const { layout, groups } of layoutGroups) {
    for (const group of groups) {
      const hasLines = guessed.has(group) || isReadableBy(group, layout);
      for (const member of group.indices) {
        const name = streamOf.get(member) ?? member;
        const lines = hasLines && findOtherSignal(name) === undefined ? layout : undefined;
        const kind = copies.has(member) ? unrecognised : describeKind(group, forms, lines);
        found.set(name, (found.get(name) ?? new Set()).add(kind));
      }
    }
  }
  return found;
}

/** Whether an index group has the marks of a layout, and a message. */
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

interface Classification {
  readonly logs?: FoundSource;
  readonly traces?: FoundSource;
  /** Why a pattern is left out, or proposed in part only. */
  readonly note?: string;
}

/** Leaves out a pattern that the user may not read, or that the server refuses to search. @throws {BackendError} */
async function classifyPattern(pattern: IndexPattern, context: SurveyContext): Promise<Classification> {
  try {
    return await inspectPattern(pattern, context);
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    if (error.failure === "denied") return { note: "some of it may not be read by this user" };
    return { note: "the server refuses to answer for it" };
  }
}

function isUnreadable(error: unknown): error is BackendError {
  return error instanceof BackendError && (error.failure === "denied" || error.failure === "rejected");
}

async function inspectPattern(pattern: IndexPattern, context: SurveyContext): Promise<Classification> {
  const { client, mappingCache, signal } = context;
  const { index } = pattern;
  const metadata = await mappingCache.refresh(index, signal);
  if (metadata.opaque) return { note: `its mapping may not be read (it ${needsMapping})` };
  if (metadata.indices.size === 0) {
    // A user who may list the names may not be allowed to read the mappings.
    return {
      note: pattern.names.length > 0 ? `its mapping is not shown (it ${needsMapping})` : "no open index",
    };
  }
  const forms = placeForms(metadata, [...spanLayouts.values()], await client.detectProduct(signal));
  const copied = forms.layouts.flatMap(({ copies }) => listCopyIndices(copies, metadata));
  if (copied.length > 0 && copied.length === metadata.indices.size)
    return { note: "copies of spans that other indices hold" };
  const hasTraces = forms.spans.length > 0 || forms.events.length > 0;
  const traces = hasTraces ? await describeSpans(pattern, forms, metadata, context) : {};
  if (forms.spans.length > 0) return traces;
  // Events of spans may be log lines too, as those of OpenTelemetry, or the only documents, as the errors of APM.
  if (forms.events.length > 0 && !(await hasOtherDocuments(index, forms, context))) return traces;
  return { ...traces, ...(await describeLines(pattern, metadata, context)) };
}

async function describeSpans(
  { index, names }: IndexPattern,
  forms: PlacedForms,
  { indices }: IndexMetadata,
  { backend, client, mappingCache, signal }: SurveyContext,
): Promise<Classification> {
  const layout = forms.layouts.map(({ name }) => name).join(", ");
  const common = { index, layout, indices: indices.size, namespace: deriveNamespace(names) };
  if (forms.spans.length === 0) return { traces: { holds: "events", ...common, limitations: [] } };
  const source: SpanSource = {
    ...{ site: "", index, layout: "auto", tagPrefixes: [] },
    ...{ namespaceAttribute: "", actionAttribute: "" },
  };
  const { problems, newest } = await inspectSpanSource(backend, source, client, mappingCache, signal);
  if (problems.length > 0) return { note: problems.join("; ") };
  return { traces: { holds: "spans", ...common, newest, limitations: [] } };
}

/** Whether the pattern has a document that is no event of a span. */
async function hasOtherDocuments(
  index: string,
  { events }: PlacedForms,
  { backend, client, signal }: SurveyContext,
): Promise<boolean> {
  const event = anyOf(
    events.map((placed) => allOf([buildIndicesQuery(placed.group.indices), buildFormQuery(placed)])),
  );
  const body = { size: 1, track_total_hits: false, query: not(event) };
  return (await searchComplete(backend, client, index, body, signal)).hits.length > 0;
}

async function describeLines(
  { index, names }: IndexPattern,
  metadata: IndexMetadata,
  context: SurveyContext,
): Promise<Classification> {
  const [signal, ...otherSignals] = new Set(names.map(findOtherSignal));
  if (signal !== undefined && otherSignals.length === 0)
    return { note: `its name begins with ${signal}, which is no log` };
  const source = { id: "", index, layout: "auto" };
  const layoutGroups = await context.mappingCache.readLayoutGroups(source, metadata, context.signal);
  const known = layoutGroups.filter(({ layout, groups }) =>
    groups.some((group) => listMappedLayouts(group, [layout]).length > 0),
  );
  const [first] = known;
  let guess: Guess | undefined;
  if (first === undefined) {
    const guesses = await context.mappingCache.listGuesses(source, metadata, context.signal);
    [guess] = guesses;
    if (guess === undefined) return { note: noLayout };
    if (!guesses.every(({ plausible }) => plausible)) return { note: explainGuess(guess) };
  } else if (!known.some(({ layout, groups }) => groups.some((group) => hasMappedMessage(group, layout)))) {
    const { name, message } = first.layout;
    return { note: `looks like ${name}, but has no ${message.join(" or ")}` };
  }
  const report = await context.inspect(source);
  if (report.problems.length > 0)
    return { note: [...(guess === undefined ? [] : [explainGuess(guess)]), ...report.problems].join("; ") };
  return {
    logs: {
      holds: "lines",
      ...{ index, layout: report.layout, indices: metadata.indices.size, newest: report.newest },
      guess: guess?.reason,
      namespace: deriveNamespace(names),
      services: await findServices(index, metadata, context),
      limitations: report.limitations,
    },
  };
}

const noLayout = "no known layout of lines or spans";

function explainGuess({ reason }: Guess): string {
  return `${noLayout}; a source of it is ${reason}`;
}

/** The first word of an index name, if it is the name of a signal other than logs. */
function findOtherSignal(name: string): string | undefined {
  return /^(?:metric|trace|synthetic|profiling|heartbeat)[a-z]*(?=[-._])/.exec(name)?.[0];
}

/** The namespace of data streams `<type>-<dataset>-<namespace>`; undefined unless all names have the same one. */
function deriveNamespace(names: readonly string[]): string | undefined {
  const found = names.map((name) => /^(?:logs|traces|metrics)-[^-]+-([^-]+)$/.exec(name)?.[1]);
  return found.every((one) => one === found[0]) ? found[0] : undefined;
}

/** The names at which layouts have the service of a document. */
const serviceNames = [
  ...["service.name", "resource.attributes.service.name", "resource.service.name", "serviceName"],
  ...["kubernetes.labels.app", "kubernetes.container_name"],
];

const servicesResponseSchema = z.object({
  aggregations: z.object({ services: z.object({ buckets: z.array(z.object({ key: z.string() })) }) }),
});

/** The most frequent services, as a suggestion; undefined if there are none, or if the search fails. */
async function findServices(
  index: string,
  { groups }: IndexMetadata,
  { client, signal }: SurveyContext,
): Promise<FoundSource["services"]> {
  const [field] = serviceNames.flatMap((name) => findKeywordField(name, groups) ?? []);
  if (field === undefined) return undefined;
  const body = JSON.stringify({ size: 0, aggs: { services: { terms: { field, size: 8 } } } });
  const path = `/${encodePattern(index)}/_search`;
  try {
    const answer = await client.sendJson({ method: "POST", path, query: searchOptions, body }, signal);
    const names = servicesResponseSchema.parse(answer).aggregations.services.buckets.map(({ key }) => key);
    return names.length === 0 ? undefined : { field, names };
  } catch (error) {
    if (error instanceof BackendError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}

/** The field or its `keyword` multi-field, if a tenant filter may use it in all of these indices. */
function findKeywordField(name: string, groups: readonly IndexGroup[]): string | undefined {
  return [name, `${name}.keyword`].find((candidate) =>
    groups.every((group) => {
      const field = findField(group, candidate);
      return (
        field?.type === "keyword" && field.indexed && !field.hasCustomAnalysis && field.nested === undefined
      );
    }),
  );
}
