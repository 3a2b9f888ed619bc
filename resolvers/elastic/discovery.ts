// What lies in a cluster, for `readout init`: its names as few patterns, and of each whether it holds lines, spans or
// events of spans, by the detection that reading uses. Nothing is proposed that an inspection finds a problem with.
import { z } from "zod";
import { BackendError } from "../../src/core/errors.ts";
import type { SpanSource } from "../../src/store/span-reader.ts";
import type { FoundSource, LogSource, SourceReport, Survey } from "../../src/store/store.ts";
import type { Door } from "./client/client.ts";
import { any, encodePattern, every, inIndices, not, searchOptions } from "./client/query-dsl.ts";
import { type Layout, placeForms, spanProfiles } from "./layout/span-layout.ts";
import { collapse, type Pattern } from "./mapping/index-patterns.ts";
import { findField, type IndexGroup, type Knowledge } from "./mapping/mapping.ts";
import { isOfForm } from "./query/span-upper-bounds.ts";
import { type Guess, mapsMessage, shownBy } from "./search/layout-detection.ts";
import type { Catalog } from "./search/mapping-cache.ts";
import { needsMapping, searchWhole } from "./search/search.ts";
import { copiesIn, reportSpans } from "./spans/inspection.ts";

interface Surroundings {
  readonly backend: string;
  readonly door: Door;
  readonly catalog: Catalog;
  readonly inspect: (source: LogSource) => Promise<SourceReport>;
  readonly signal: AbortSignal;
}

/** Looked at one after another: a mapping may be megabytes. */
const mostPatterns = 100;

const resolved = z.object({
  indices: z.array(z.object({ name: z.string(), data_stream: z.string().optional() })),
  data_streams: z.array(
    z.object({ name: z.string(), backing_indices: z.union([z.string(), z.array(z.string())]).default([]) }),
  ),
});

/** @throws {BackendError} */
export async function surveyIndices(wanted: readonly string[], surroundings: Surroundings): Promise<Survey> {
  const notes: string[] = [];
  const patterns = await findPatterns(wanted, surroundings, notes);
  for (const { index } of patterns.slice(mostPatterns))
    notes.push(`${index}: not looked at; name it with --index`);
  const logs: FoundSource[] = [];
  const traces: FoundSource[] = [];
  for (const pattern of patterns.slice(0, mostPatterns)) {
    const found = await classify(pattern, surroundings);
    if (found.note !== undefined) notes.push(`${pattern.index}: ${found.note}`);
    if (found.logs !== undefined) logs.push(found.logs);
    if (found.traces !== undefined) traces.push(found.traces);
  }
  return { logs, traces, labels: new Map(), kubernetes: [], notes };
}

/** Patterns that were asked for stand as they are; else those of all names. */
async function findPatterns(
  wanted: readonly string[],
  surroundings: Surroundings,
  notes: string[],
): Promise<readonly Pattern[]> {
  const { backend, door, signal } = surroundings;
  if (wanted.length > 0) return wanted.map((index) => ({ index, names: [], gathered: false }));
  const request = { method: "GET", path: "/_resolve/index/*", query: { expand_wildcards: "open" } } as const;
  let answer: unknown;
  try {
    answer = await door.sendJson(request, signal);
  } catch (error) {
    if (!(error instanceof BackendError) || error.failure !== "denied") throw error;
    notes.push("the names of indices may not be listed: name those that may be read with --index");
    return [];
  }
  const { success, data, error } = resolved.safeParse(answer);
  if (!success) throw new BackendError(backend, "malformed", "the list of indices cannot be read", error);
  // A data stream is one name, however often it rolls over.
  const names = data.indices.flatMap(({ name, data_stream }) => (data_stream === undefined ? [name] : []));
  const streamOf = new Map(
    data.data_streams.flatMap(({ name, backing_indices }) =>
      [backing_indices].flat().map((index) => [index, name] as const),
    ),
  );
  return gather([...names, ...data.data_streams.map(({ name }) => name)], streamOf, surroundings);
}

/**
 * A pattern is proposed as what all of it is, so what is gathered by its names alone is looked into, and gathered anew
 * without what is of another kind; what cannot be proposed as a whole stays apart.
 */
async function gather(
  names: readonly string[],
  streamOf: ReadonlyMap<string, string>,
  surroundings: Surroundings,
): Promise<readonly Pattern[]> {
  const streams = new Set(streamOf.values());
  const kinds = new Map<string, string>();
  const looked = new Set<string>();
  for (;;) {
    const patterns = collapse(
      names,
      undefined,
      (name) => kinds.get(name) ?? "",
      (name) => streams.has(name),
    );
    const open = patterns.find(({ gathered, index }) => gathered && !looked.has(index));
    if (open === undefined) return patterns;
    looked.add(open.index);
    const found = await findKinds(open, streamOf, surroundings);
    const [only, ...others] = new Set(open.names.map((name) => found.get(name)));
    const isOne = only !== undefined && others.length === 0;
    if (isOne && (only === strange || (await classify(open, surroundings)).note === undefined)) continue;
    for (const name of open.names) kinds.set(name, (isOne ? undefined : found.get(name)) ?? `alone: ${name}`);
  }
}

const strange = "neither lines nor spans";

/** What each name of a pattern holds, and in which layout; nothing of those that are not shown. @throws {BackendError} */
async function findKinds(
  { index, names }: Pattern,
  streamOf: ReadonlyMap<string, string>,
  { door, catalog, signal }: Surroundings,
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, Set<string>>();
  try {
    const knowledge = await catalog.refresh(index, signal);
    const layout = placeForms(knowledge, [...spanProfiles.values()], await door.product(signal));
    const copies = new Set(layout.profiles.flatMap((profile) => copiesIn(profile.copies, knowledge)));
    const source = { id: "", index, profile: "auto" };
    const parts = await catalog.parts(source, knowledge, signal);
    const guesses = await catalog.guesses(source, knowledge, signal);
    const likely = new Set(guesses.flatMap(({ plausible, groups }) => (plausible ? groups : [])));
    for (const { profile, groups } of parts) {
      for (const group of groups) {
        const namesIn = (placed: Layout["spans" | "events"]) =>
          placed.filter((one) => one.group === group).map((one) => one.profile);
        const [spans] = namesIn(layout.spans);
        const isLines =
          likely.has(group) || (shownBy(group, [profile]).length > 0 && mapsMessage(group, profile));
        for (const one of group.indices) {
          const name = streamOf.get(one) ?? one;
          const lines = isLines && otherThanLines(name) === undefined ? `lines of ${profile.name}` : strange;
          const kind = spans === undefined ? [...namesIn(layout.events), lines].join() : `spans of ${spans}`;
          found.set(name, (found.get(name) ?? new Set()).add(copies.has(one) ? strange : kind));
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

interface Found {
  readonly logs?: FoundSource;
  readonly traces?: FoundSource;
  /** Why it is left out, or only partly proposed. */
  readonly note?: string;
}

/** What may not be looked at is left out, and keeps nothing else from being found. @throws {BackendError} */
async function classify(pattern: Pattern, surroundings: Surroundings): Promise<Found> {
  try {
    return await look(pattern, surroundings);
  } catch (error) {
    if (!isUnreadable(error)) throw error;
    if (error.failure === "denied") return { note: "some of it may not be read by this user" };
    return { note: "the server refuses to answer for it" };
  }
}

function isUnreadable(error: unknown): error is BackendError {
  return error instanceof BackendError && (error.failure === "denied" || error.failure === "rejected");
}

async function look(pattern: Pattern, surroundings: Surroundings): Promise<Found> {
  const { door, catalog, signal } = surroundings;
  const { index } = pattern;
  const knowledge = await catalog.refresh(index, signal);
  if (knowledge.opaque) return { note: `its mapping may not be read (it ${needsMapping})` };
  if (knowledge.indices.size === 0) {
    // Names are listed to whoever may read them, mappings are not.
    return {
      note: pattern.names.length > 0 ? `its mapping is not shown (it ${needsMapping})` : "no open index",
    };
  }
  const layout = placeForms(knowledge, [...spanProfiles.values()], await door.product(signal));
  const copied = layout.profiles.flatMap(({ copies }) => copiesIn(copies, knowledge));
  if (copied.length > 0 && copied.length === knowledge.indices.size)
    return { note: "copies of spans that other indices hold" };
  const holdsTraces = layout.spans.length > 0 || layout.events.length > 0;
  const traces = holdsTraces ? await describeSpans(pattern, layout, knowledge, surroundings) : {};
  if (layout.spans.length > 0) return traces;
  // Events of spans may be log lines, as those of OpenTelemetry, or lie alone, as the errors of APM.
  if (layout.events.length > 0 && !(await holdsMore(index, layout, surroundings))) return traces;
  return { ...traces, ...(await describeLines(pattern, knowledge, surroundings)) };
}

async function describeSpans(
  { index, names }: Pattern,
  layout: Layout,
  { indices }: Knowledge,
  { backend, door, catalog, signal }: Surroundings,
): Promise<Found> {
  const profile = layout.profiles.map(({ name }) => name).join(", ");
  const common = { index, profile, indices: indices.size, namespace: namespaceOf(names) };
  if (layout.spans.length === 0) return { traces: { holds: "events", ...common, limitations: [] } };
  const source: SpanSource = {
    ...{ site: "", index, profile: "auto", tagPrefixes: [] },
    ...{ namespaceAttribute: "", actionAttribute: "" },
  };
  const { problems, newest } = await reportSpans(backend, source, door, catalog, signal);
  if (problems.length > 0) return { note: problems.join("; ") };
  return { traces: { holds: "spans", ...common, newest, limitations: [] } };
}

/** Whether some document is no event of a span. */
async function holdsMore(
  index: string,
  { events }: Layout,
  { backend, door, signal }: Surroundings,
): Promise<boolean> {
  const event = any(events.map((placed) => every([inIndices(placed.group.indices), isOfForm(placed)])));
  const body = { size: 1, track_total_hits: false, query: not(event) };
  return (await searchWhole(backend, door, index, body, signal)).hits.length > 0;
}

async function describeLines(
  { index, names }: Pattern,
  knowledge: Knowledge,
  surroundings: Surroundings,
): Promise<Found> {
  const other = names.map(otherThanLines);
  const [kind] = other;
  if (kind !== undefined && other.every((one) => one === kind))
    return { note: `its name begins with ${kind}, which is no log` };
  const source = { id: "", index, profile: "auto" };
  const parts = await surroundings.catalog.parts(source, knowledge, surroundings.signal);
  const known = parts.filter(({ profile, groups }) =>
    groups.some((group) => shownBy(group, [profile]).length > 0),
  );
  const [first] = known;
  let guess: Guess | undefined;
  if (first === undefined) {
    const guesses = await surroundings.catalog.guesses(source, knowledge, surroundings.signal);
    [guess] = guesses;
    if (guess === undefined) return { note: noLayout };
    if (!guesses.every(({ plausible }) => plausible)) return { note: guessed(guess) };
  } else if (!known.some(({ profile, groups }) => groups.some((group) => mapsMessage(group, profile)))) {
    const { name, message } = first.profile;
    return { note: `looks like ${name}, but has no ${message.join(" or ")}` };
  }
  const report = await surroundings.inspect(source);
  if (report.problems.length > 0)
    return { note: [...(guess === undefined ? [] : [guessed(guess)]), ...report.problems].join("; ") };
  return {
    logs: {
      holds: "lines",
      ...{ index, profile: report.profile, indices: knowledge.indices.size, newest: report.newest },
      guess: guess?.reason,
      namespace: namespaceOf(names),
      services: await findServices(index, knowledge, surroundings),
      limitations: report.limitations,
    },
  };
}

const noLayout = "no known layout of lines or spans";
const guessed = ({ reason }: Guess): string => `${noLayout}; a source of it is ${reason}`;

/** The word by which names say that they hold no lines. */
function otherThanLines(name: string): string | undefined {
  return /^(?:metric|trace|synthetic|profiling|heartbeat)[a-z]*(?=[-._])/.exec(name)?.[0];
}

/** `<type>-<dataset>-<namespace>`, where all names are of one. */
function namespaceOf(names: readonly string[]): string | undefined {
  const found = names.map((name) => /^(?:logs|traces|metrics)-[^-]+-([^-]+)$/.exec(name)?.[1]);
  return found.every((one) => one === found[0]) ? found[0] : undefined;
}

/** Where layouts name the service of a document. */
const serviceNames = [
  ...["service.name", "resource.attributes.service.name", "resource.service.name", "serviceName"],
  ...["kubernetes.labels.app", "kubernetes.container_name"],
];

const buckets = z.object({
  aggregations: z.object({ services: z.object({ buckets: z.array(z.object({ key: z.string() })) }) }),
});

/** A suggestion, counted roughly: a cluster that does not answer it is proposed all the same. */
async function findServices(
  index: string,
  { groups }: Knowledge,
  { door, signal }: Surroundings,
): Promise<FoundSource["services"]> {
  const [field] = serviceNames.flatMap((name) => keywordOf(name, groups) ?? []);
  if (field === undefined) return undefined;
  const body = JSON.stringify({ size: 0, aggs: { services: { terms: { field, size: 8 } } } });
  const path = `/${encodePattern(index)}/_search`;
  try {
    const answer = await door.sendJson({ method: "POST", path, query: searchOptions, body }, signal);
    const names = buckets.parse(answer).aggregations.services.buckets.map(({ key }) => key);
    return names.length === 0 ? undefined : { field, names };
  } catch (error) {
    if (error instanceof BackendError || error instanceof z.ZodError) return undefined;
    throw error;
  }
}

/** The field, or its multi-field, by which a `where` may part all of these indices. */
function keywordOf(name: string, groups: readonly IndexGroup[]): string | undefined {
  return [name, `${name}.keyword`].find((candidate) =>
    groups.every((group) => {
      const field = findField(group, candidate);
      return field?.type === "keyword" && field.indexed && !field.rewritten && field.nested === undefined;
    }),
  );
}
