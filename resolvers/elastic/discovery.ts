// What lies in a cluster, for `readout init`: its names as few patterns, and of each whether it holds lines, spans or
// events of spans, by the detection that reading uses. Nothing is proposed that an inspection finds a problem with.
import { z } from "zod";
import { BackendError } from "../../src/core/errors.ts";
import type { SpanSource } from "../../src/store/span-reader.ts";
import type { FoundSource, LogSource, SourceInspection, Survey } from "../../src/store/store.ts";
import type { ElasticClient } from "./client/client.ts";
import { allOf, anyOf, buildIndicesQuery, encodePattern, not, searchOptions } from "./client/query-dsl.ts";
import { type PlacedForms, placeForms } from "./layout/form-placement.ts";
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
  readonly catalog: MappingCache;
  readonly inspect: (source: LogSource) => Promise<SourceInspection>;
  readonly signal: AbortSignal;
}

/** Looked at one after another: a mapping may be megabytes. */
const maxPatterns = 100;

const resolveResponseSchema = z.object({
  indices: z.array(z.object({ name: z.string(), data_stream: z.string().optional() })),
  data_streams: z.array(
    z.object({ name: z.string(), backing_indices: z.union([z.string(), z.array(z.string())]).default([]) }),
  ),
});

/** @throws {BackendError} */
export async function surveyIndices(wanted: readonly string[], surroundings: SurveyContext): Promise<Survey> {
  const notes: string[] = [];
  const patterns = await findPatterns(wanted, surroundings, notes);
  for (const { index } of patterns.slice(maxPatterns))
    notes.push(`${index}: not looked at; name it with --index`);
  const logs: FoundSource[] = [];
  const traces: FoundSource[] = [];
  for (const pattern of patterns.slice(0, maxPatterns)) {
    const found = await classifyPattern(pattern, surroundings);
    if (found.note !== undefined) notes.push(`${pattern.index}: ${found.note}`);
    if (found.logs !== undefined) logs.push(found.logs);
    if (found.traces !== undefined) traces.push(found.traces);
  }
  return { logs, traces, labels: new Map(), kubernetes: [], notes };
}

/** Patterns that were asked for stand as they are; else those of all names. */
async function findPatterns(
  wanted: readonly string[],
  surroundings: SurveyContext,
  notes: string[],
): Promise<readonly IndexPattern[]> {
  const { backend, client: door, signal } = surroundings;
  if (wanted.length > 0) return wanted.map((index) => ({ index, names: [], merged: false }));
  const request = { method: "GET", path: "/_resolve/index/*", query: { expand_wildcards: "open" } } as const;
  let answer: unknown;
  try {
    answer = await door.sendJson(request, signal);
  } catch (error) {
    if (!(error instanceof BackendError) || error.failure !== "denied") throw error;
    notes.push("the names of indices may not be listed: name those that may be read with --index");
    return [];
  }
  const { success, data, error } = resolveResponseSchema.safeParse(answer);
  if (!success) throw new BackendError(backend, "malformed", "the list of indices cannot be read", error);
  // A data stream is one name, however often it rolls over.
  const names = data.indices.flatMap(({ name, data_stream }) => (data_stream === undefined ? [name] : []));
  const streamOf = new Map(
    data.data_streams.flatMap(({ name, backing_indices }) =>
      [backing_indices].flat().map((index) => [index, name] as const),
    ),
  );
  return gatherPatterns([...names, ...data.data_streams.map(({ name }) => name)], streamOf, surroundings);
}

/**
 * A pattern is proposed as what all of it is, so what is gathered by its names alone is looked into, and gathered anew
 * without what is of another kind; what cannot be proposed as a whole stays apart.
 */
async function gatherPatterns(
  names: readonly string[],
  streamOf: ReadonlyMap<string, string>,
  surroundings: SurveyContext,
): Promise<readonly IndexPattern[]> {
  const streams = new Set(streamOf.values());
  const kinds = new Map<string, string>();
  const looked = new Set<string>();
  for (;;) {
    const patterns = collapseIndexNames(
      names,
      undefined,
      (name) => kinds.get(name) ?? "",
      (name) => streams.has(name),
    );
    const open = patterns.find(({ merged: gathered, index }) => gathered && !looked.has(index));
    if (open === undefined) return patterns;
    looked.add(open.index);
    const found = await findKinds(open, streamOf, surroundings);
    const [only, ...others] = new Set(open.names.map((name) => found.get(name)));
    const isOne = only !== undefined && others.length === 0;
    if (isOne && (only === unrecognised || (await classifyPattern(open, surroundings)).note === undefined))
      continue;
    for (const name of open.names) kinds.set(name, (isOne ? undefined : found.get(name)) ?? `alone: ${name}`);
  }
}

const unrecognised = "neither lines nor spans";

/** What each name of a pattern holds, and in which layout; nothing of those that are not shown. @throws {BackendError} */
async function findKinds(
  { index, names }: IndexPattern,
  streamOf: ReadonlyMap<string, string>,
  { client: door, catalog, signal }: SurveyContext,
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, Set<string>>();
  try {
    const knowledge = await catalog.refresh(index, signal);
    const forms = placeForms(knowledge, [...spanLayouts.values()], await door.detectProduct(signal));
    const copies = new Set(forms.layouts.flatMap((layout) => listCopyIndices(layout.copies, knowledge)));
    const source = { id: "", index, layout: "auto" };
    const parts = await catalog.readLayoutGroups(source, knowledge, signal);
    const guesses = await catalog.listGuesses(source, knowledge, signal);
    const likely = new Set(guesses.flatMap(({ plausible, groups }) => (plausible ? groups : [])));
    for (const { layout, groups } of parts) {
      for (const group of groups) {
        const namesIn = (placed: PlacedForms["spans" | "events"]) =>
          placed.filter((one) => one.group === group).map((one) => one.layout);
        const [spans] = namesIn(forms.spans);
        const isLines =
          likely.has(group) ||
          (listMappedLayouts(group, [layout]).length > 0 && hasMappedMessage(group, layout));
        for (const one of group.indices) {
          const name = streamOf.get(one) ?? one;
          const lines =
            isLines && findOtherSignal(name) === undefined ? `lines of ${layout.name}` : unrecognised;
          const kind = spans === undefined ? [...namesIn(forms.events), lines].join() : `spans of ${spans}`;
          found.set(name, (found.get(name) ?? new Set()).add(copies.has(one) ? unrecognised : kind));
        }
      }
    }
  } catch (error) {
    if (!isUnreadable(error)) throw error;
  }
  return new Map(
    names.flatMap((name) => {
      const kind = [...(found.get(name) ?? [])].sort().join(", ");
      return kind === "" ? [] : [[name, kind] as const];
    }),
  );
}

interface Classification {
  readonly logs?: FoundSource;
  readonly traces?: FoundSource;
  /** Why it is left out, or only partly proposed. */
  readonly note?: string;
}

/** What may not be looked at is left out, and keeps nothing else from being found. @throws {BackendError} */
async function classifyPattern(pattern: IndexPattern, surroundings: SurveyContext): Promise<Classification> {
  try {
    return await inspectPattern(pattern, surroundings);
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    if (error.failure === "denied") return { note: "some of it may not be read by this user" };
    return { note: "the server refuses to answer for it" };
  }
}

function isUnreadable(error: unknown): error is BackendError {
  return error instanceof BackendError && (error.failure === "denied" || error.failure === "rejected");
}

async function inspectPattern(pattern: IndexPattern, surroundings: SurveyContext): Promise<Classification> {
  const { client: door, catalog, signal } = surroundings;
  const { index } = pattern;
  const knowledge = await catalog.refresh(index, signal);
  if (knowledge.opaque) return { note: `its mapping may not be read (it ${needsMapping})` };
  if (knowledge.indices.size === 0) {
    // Names are listed to whoever may read them, mappings are not.
    return {
      note: pattern.names.length > 0 ? `its mapping is not shown (it ${needsMapping})` : "no open index",
    };
  }
  const layout = placeForms(knowledge, [...spanLayouts.values()], await door.detectProduct(signal));
  const copied = layout.layouts.flatMap(({ copies }) => listCopyIndices(copies, knowledge));
  if (copied.length > 0 && copied.length === knowledge.indices.size)
    return { note: "copies of spans that other indices hold" };
  const holdsTraces = layout.spans.length > 0 || layout.events.length > 0;
  const traces = holdsTraces ? await describeSpans(pattern, layout, knowledge, surroundings) : {};
  if (layout.spans.length > 0) return traces;
  // Events of spans may be log lines, as those of OpenTelemetry, or lie alone, as the errors of APM.
  if (layout.events.length > 0 && !(await hasOtherDocuments(index, layout, surroundings))) return traces;
  return { ...traces, ...(await describeLines(pattern, knowledge, surroundings)) };
}

async function describeSpans(
  { index, names }: IndexPattern,
  forms: PlacedForms,
  { indices }: IndexMetadata,
  { backend, client: door, catalog, signal }: SurveyContext,
): Promise<Classification> {
  const layout = forms.layouts.map(({ name }) => name).join(", ");
  const common = { index, layout, indices: indices.size, namespace: deriveNamespace(names) };
  if (forms.spans.length === 0) return { traces: { holds: "events", ...common, limitations: [] } };
  const source: SpanSource = {
    ...{ site: "", index, layout: "auto", tagPrefixes: [] },
    ...{ namespaceAttribute: "", actionAttribute: "" },
  };
  const { problems, newest } = await inspectSpanSource(backend, source, door, catalog, signal);
  if (problems.length > 0) return { note: problems.join("; ") };
  return { traces: { holds: "spans", ...common, newest, limitations: [] } };
}

/** Whether some document is no event of a span. */
async function hasOtherDocuments(
  index: string,
  { events }: PlacedForms,
  { backend, client: door, signal }: SurveyContext,
): Promise<boolean> {
  const event = anyOf(
    events.map((placed) => allOf([buildIndicesQuery(placed.group.indices), buildFormQuery(placed)])),
  );
  const body = { size: 1, track_total_hits: false, query: not(event) };
  return (await searchComplete(backend, door, index, body, signal)).hits.length > 0;
}

async function describeLines(
  { index, names }: IndexPattern,
  knowledge: IndexMetadata,
  surroundings: SurveyContext,
): Promise<Classification> {
  const other = names.map(findOtherSignal);
  const [kind] = other;
  if (kind !== undefined && other.every((one) => one === kind))
    return { note: `its name begins with ${kind}, which is no log` };
  const source = { id: "", index, layout: "auto" };
  const parts = await surroundings.catalog.readLayoutGroups(source, knowledge, surroundings.signal);
  const known = parts.filter(({ layout, groups }) =>
    groups.some((group) => listMappedLayouts(group, [layout]).length > 0),
  );
  const [first] = known;
  let guess: Guess | undefined;
  if (first === undefined) {
    const guesses = await surroundings.catalog.listGuesses(source, knowledge, surroundings.signal);
    [guess] = guesses;
    if (guess === undefined) return { note: noLayout };
    if (!guesses.every(({ plausible }) => plausible)) return { note: explainGuess(guess) };
  } else if (!known.some(({ layout, groups }) => groups.some((group) => hasMappedMessage(group, layout)))) {
    const { name, message } = first.layout;
    return { note: `looks like ${name}, but has no ${message.join(" or ")}` };
  }
  const report = await surroundings.inspect(source);
  if (report.problems.length > 0)
    return { note: [...(guess === undefined ? [] : [explainGuess(guess)]), ...report.problems].join("; ") };
  return {
    logs: {
      holds: "lines",
      ...{ index, layout: report.layout, indices: knowledge.indices.size, newest: report.newest },
      guess: guess?.reason,
      namespace: deriveNamespace(names),
      services: await findServices(index, knowledge, surroundings),
      limitations: report.limitations,
    },
  };
}

const noLayout = "no known layout of lines or spans";
const explainGuess = ({ reason }: Guess): string => `${noLayout}; a source of it is ${reason}`;

/** The word by which names say that they hold no lines. */
function findOtherSignal(name: string): string | undefined {
  return /^(?:metric|trace|synthetic|profiling|heartbeat)[a-z]*(?=[-._])/.exec(name)?.[0];
}

/** `<type>-<dataset>-<namespace>`, where all names are of one. */
function deriveNamespace(names: readonly string[]): string | undefined {
  const found = names.map((name) => /^(?:logs|traces|metrics)-[^-]+-([^-]+)$/.exec(name)?.[1]);
  return found.every((one) => one === found[0]) ? found[0] : undefined;
}

/** Where layouts name the service of a document. */
const serviceNames = [
  ...["service.name", "resource.attributes.service.name", "resource.service.name", "serviceName"],
  ...["kubernetes.labels.app", "kubernetes.container_name"],
];

const servicesResponseSchema = z.object({
  aggregations: z.object({ services: z.object({ buckets: z.array(z.object({ key: z.string() })) }) }),
});

/** A suggestion, counted roughly: a cluster that does not answer it is proposed all the same. */
async function findServices(
  index: string,
  { groups }: IndexMetadata,
  { client: door, signal }: SurveyContext,
): Promise<FoundSource["services"]> {
  const [field] = serviceNames.flatMap((name) => findKeywordField(name, groups) ?? []);
  if (field === undefined) return undefined;
  const body = JSON.stringify({ size: 0, aggs: { services: { terms: { field, size: 8 } } } });
  const path = `/${encodePattern(index)}/_search`;
  try {
    const answer = await door.sendJson({ method: "POST", path, query: searchOptions, body }, signal);
    const names = servicesResponseSchema.parse(answer).aggregations.services.buckets.map(({ key }) => key);
    return names.length === 0 ? undefined : { field, names };
  } catch (error) {
    if (error instanceof BackendError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}

/** The field, or its multi-field, by which a `where` may part all of these indices. */
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
