// What `readout init` proposes for one pattern: a source of its log lines, and sources of its spans and their events. Whatever
// an inspection finds a problem with is left out with the reason.
import { z } from "zod";
import { BackendError, isRefusedBySource } from "../../src/core/errors.ts";
import type { FoundSource, SourceInspection } from "../../src/store/inspection.ts";
import type { SpanSource } from "../../src/store/spans.ts";
import { encodePattern, searchOptions } from "./client/query-dsl.ts";
import type { LogLayout } from "./layout/log-layout.ts";
import {
  collapseIndices,
  type IndexPattern,
  listNamespaces,
  narrowPattern,
} from "./mapping/collapsed-patterns.ts";
import { listReached } from "./mapping/index-patterns.ts";
import type { ListedIndex } from "./mapping/listed-indices.ts";
import { findField, type IndexGroup, type IndexMetadata } from "./mapping/mapping.ts";
import {
  type Contents,
  divideMembers,
  findOtherSignal,
  hasLinesAmongSpans,
  placeAllForms,
  type SurveyContext,
} from "./pattern-contents.ts";
import { type Guess, hasMappedMessage, listMappedLayouts } from "./search/layout-detection.ts";
import { formatNames, needsMapping } from "./search/search.ts";
import { inspectSpanSource } from "./spans/inspection.ts";

/** What the server lists: what may be proposed, and what lies under the same patterns but is left out. */
export interface ListedNames {
  readonly proposable: readonly ListedIndex[];
  readonly others: readonly ListedIndex[];
}

/** Spans or events of spans, with the names that hold them. */
export interface FoundTraces extends FoundSource {
  readonly members: readonly ListedIndex[];
}

interface Classification {
  readonly logs: readonly FoundSource[];
  readonly traces: readonly FoundTraces[];
  /** What is left out of it, each with the reason. */
  readonly notes: readonly string[];
}

const nothing: Classification = { logs: [], traces: [], notes: [] };

function leaveOut(index: string, reason: string): Classification {
  return { logs: [], traces: [], notes: [`${index}: ${reason}`] };
}

function joinClassifications(parts: readonly Classification[]): Classification {
  return {
    logs: parts.flatMap(({ logs }) => logs),
    traces: parts.flatMap(({ traces }) => traces),
    notes: parts.flatMap(({ notes }) => notes),
  };
}

/** Leaves out a pattern that the user may not read, or that the server refuses to search. @throws {BackendError} */
export async function classifyPattern(
  pattern: IndexPattern,
  listed: ListedNames,
  context: SurveyContext,
): Promise<Classification> {
  try {
    return await inspectPattern(pattern, listed, context);
  } catch (error) {
    if (!isRefusedBySource(error)) throw error;
    if (error.failure === "denied") return leaveOut(pattern.index, "some of it may not be read by this user");
    return leaveOut(pattern.index, "the server refuses to answer for it");
  }
}

async function inspectPattern(
  pattern: IndexPattern,
  listed: ListedNames,
  context: SurveyContext,
): Promise<Classification> {
  const { mappingCache, signal } = context;
  const { index } = pattern;
  const metadata = await mappingCache.refresh(index, signal);
  if (metadata.opaque) return leaveOut(index, `its mapping may not be read (it ${needsMapping})`);
  if (metadata.indices.size === 0) {
    // Who may list the names may not be allowed to read the mappings.
    const isListed = pattern.members.length > 0;
    return leaveOut(index, isListed ? `its mapping is not shown (it ${needsMapping})` : "no open index");
  }
  const open = narrowToOpen(pattern, metadata);
  if (open !== undefined) {
    const found: Classification[] = [];
    for (const one of open) found.push(await inspectPattern(one, listed, context));
    const closed = metadata.closed.map((name) => leaveOut(name, "closed, so nothing of it can be read"));
    return joinClassifications([...found, ...closed]);
  }
  const forms = await placeAllForms(metadata, context);
  const contents = await divideMembers(pattern, metadata, forms, context);
  const found = await describeContents(pattern, contents, listed, context);
  if (!(await hasLinesAmongSpans(contents, forms, context))) return found;
  const reason = "its log lines: a source of them would show its spans as lines";
  const mixed = found.traces
    .filter(({ holds }) => holds === "spans")
    .map(({ index }) => leaveOut(index, reason));
  return joinClassifications([found, ...mixed]);
}

/** The pattern without its closed indices; undefined where there are none or too many, or no exclusion keeps them out. */
function narrowToOpen(
  { index, members }: IndexPattern,
  { closed }: IndexMetadata,
): readonly IndexPattern[] | undefined {
  if (closed.length === 0 || closed.length > maxExcluded || members.length === 0) return undefined;
  const listed = closed.map((name) => ({ name, own: name, aliases: [], isStream: false, indices: [name] }));
  const open = narrowPattern(index, members, [...members, ...listed]);
  const isKeptOut = (one: ListedIndex) => open.every((own) => listReached(own.index, one).length === 0);
  return listed.every(isKeptOut) ? open : undefined;
}

async function describeContents(
  pattern: IndexPattern,
  { all, lines, unknown, traces, copies }: Contents,
  listed: ListedNames,
  context: SurveyContext,
): Promise<Classification> {
  const others = [...listed.proposable, ...listed.others];
  /** Patterns for these members alone, by their own names. */
  const collapse = (members: readonly ListedIndex[]): readonly IndexPattern[] => {
    const names = new Set(members.map(({ name }) => name));
    const rest = [...all, ...others].filter(({ name }) => !names.has(name));
    return collapseIndices(members, { limit: Number.POSITIVE_INFINITY, others: rest });
  };
  /** The pattern without what else is in it. */
  const narrow = (members: readonly ListedIndex[]): readonly IndexPattern[] => {
    if (members.length === all.length) return [pattern];
    return members.length === 0 ? [] : narrowPattern(pattern.index, members, all);
  };
  const parts: Classification[] = [];
  const waiting = [...narrow(lines)];
  for (let own = waiting.shift(); own !== undefined; own = waiting.shift()) {
    const found = await describeLines(own, context);
    if ("logs" in found) {
      parts.push({ ...nothing, logs: [found.logs] });
      continue;
    }
    const separated = separateFaulty(own, found.faulty);
    if (separated !== undefined) {
      waiting.unshift(...separated);
      continue;
    }
    const isNamed = own.members.length === all.length || own.members.some(({ name }) => name === own.index);
    const left = isNamed ? [own] : collapse(own.members);
    parts.push(...left.map(({ index }) => leaveOut(index, found.note)));
  }
  // Beside lines, which keep the pattern, the spans get patterns of their own.
  const hasLines = parts.some(({ logs }) => logs.length > 0);
  for (const own of collapse(unknown)) {
    const found = await describeLines(own, context);
    parts.push(leaveOut(own.index, "note" in found ? found.note : noLayout));
  }
  for (const own of hasLines ? collapse(traces) : narrow(traces))
    parts.push(await describeSpans(own, lines, context));
  for (const { index } of collapse(copies))
    parts.push(leaveOut(index, "copies of spans that other indices hold"));
  return joinClassifications(parts);
}

/** So many names at most are excluded from a pattern, which is a part of an address. */
const maxExcluded = 20;

/**
 * The pattern without its members with faults, and each of these alone, which has its own reason then. Undefined where all have
 * faults, or too many.
 */
function separateFaulty(
  { index, members }: IndexPattern,
  faulty: readonly string[] = [],
): readonly IndexPattern[] | undefined {
  const isFaulty = ({ indices }: ListedIndex) => indices.some((one) => faulty.includes(one));
  const apart = members.filter(isFaulty);
  if (apart.length === 0 || apart.length === members.length || apart.length > maxExcluded) return undefined;
  const sound = members.filter((one) => !isFaulty(one));
  const alone = apart.map((one) => ({ index: one.name, members: [one], isMerged: false }));
  return [...narrowPattern(index, sound, members), ...alone];
}

/** The problems of a pattern. Where it is the name of one index, they need not name it. */
function joinProblems(index: string, { problems }: SourceInspection): string {
  const own = `${index}: `;
  return problems.map((text) => (text.startsWith(own) ? text.slice(own.length) : text)).join("; ");
}

async function describeSpans(
  pattern: IndexPattern,
  lines: readonly ListedIndex[],
  context: SurveyContext,
): Promise<Classification> {
  const { backend, client, mappingCache, signal } = context;
  const { index, members } = pattern;
  const metadata = await mappingCache.refresh(index, signal);
  const forms = await placeAllForms(metadata, context);
  const layout = forms.layouts.map(({ name }) => name).join(", ");
  const namespaces = listNamespaces(members);
  const common = { index, layout, indices: metadata.indices.size, namespaces, limitations: [], members };
  if (forms.spans.length === 0) {
    const areLines = members.every((one) => lines.includes(one));
    return { ...nothing, traces: [{ holds: "events", areLines, ...common }] };
  }
  const source: SpanSource = {
    site: "",
    index,
    layout: "auto",
    tenantFilter: undefined,
    tagPrefixes: [],
    namespaceAttribute: "",
    actionAttribute: "",
  };
  const report = await inspectSpanSource(backend, source, client, mappingCache, signal);
  if (report.problems.length === 0)
    return { ...nothing, traces: [{ holds: "spans", ...common, newest: report.newest }] };
  const parts: Classification[] = [];
  for (const part of separateFaulty(pattern, report.faultyIndices) ?? [])
    parts.push(await describeSpans(part, lines, context));
  return parts.length > 0 ? joinClassifications(parts) : leaveOut(index, joinProblems(index, report));
}

/** A source of lines, or why there is none. */
type FoundLines =
  | { readonly logs: FoundSource }
  | {
      readonly note: string;
      /** The indices that it is about, where not all are. */
      readonly faulty?: readonly string[] | undefined;
    };

async function describeLines({ index, members }: IndexPattern, context: SurveyContext): Promise<FoundLines> {
  const [signal, ...otherSignals] = new Set(members.map(({ name }) => findOtherSignal(name)));
  if (signal !== undefined && otherSignals.length === 0 && !context.isRequested)
    return { note: `its name begins with ${signal}, which is no log` };
  const metadata = await context.mappingCache.refresh(index, context.signal);
  const source = { id: "", index, layout: "auto", tenantFilter: undefined };
  const detection = await context.mappingCache.detectLayouts(source, metadata, context.signal);
  const { layoutGroups, shown } = detection;
  const isMapped = (group: IndexGroup, layout: LogLayout) => listMappedLayouts(group, [layout]).length > 0;
  const known = layoutGroups.filter(({ layout, groups }) =>
    groups.some((group) => shown.has(group) || isMapped(group, layout)),
  );
  const isReadable = (group: IndexGroup, layout: LogLayout) =>
    shown.has(group) || hasMappedMessage(group, layout);
  const [first] = known;
  const guesses = first === undefined ? detection.guesses : [];
  const implausible = guesses.filter(({ plausible }) => !plausible);
  if (first === undefined) {
    if (guesses.length === 0) return { note: noLayout };
    if (implausible.length > 0) return { note: explainGuesses(implausible, guesses) };
  } else if (!known.some(({ layout, groups }) => groups.some((group) => isReadable(group, layout)))) {
    const { name, message } = first.layout;
    return { note: `looks like ${name}, but no field is mapped for its message (${message.join(", ")})` };
  }
  const isShownByMapping = known.some(({ layout, groups }) =>
    groups.some((group) => isMapped(group, layout)),
  );
  const report = await context.inspect(source);
  if (report.problems.length > 0) {
    const problems = joinProblems(index, report);
    const note = guesses.length === 0 ? problems : `${explainGuesses(guesses, guesses)}; ${problems}`;
    return { note, faulty: report.faultyIndices };
  }
  return {
    logs: {
      holds: "lines",
      index,
      layout: report.layout,
      shownBy: isShownByMapping ? undefined : "documents",
      indices: metadata.indices.size,
      newest: report.newest,
      guess: guesses.length === 0 ? undefined : describeGuesses(guesses, guesses),
      namespaces: listNamespaces(members),
      services: await findServices(index, metadata, context),
      limitations: report.limitations,
    },
  };
}

const noLayout = "no known layout of lines or spans";

function explainGuesses(guesses: readonly Guess[], all: readonly Guess[]): string {
  return `${noLayout}; a source of it is ${describeGuesses(guesses, all)}`;
}

/** The reasons of some guesses, each with its indices where the pattern has others. */
function describeGuesses(guesses: readonly Guess[], all: readonly Guess[]): string {
  const describe = ({ reason, groups }: Guess) =>
    all.length === 1 ? reason : `${reason} (${formatNames(groups.flatMap(({ indices }) => indices))})`;
  return guesses.map(describe).join("; ");
}

/** The names at which layouts have the service of a document. */
const serviceNames = [
  "service.name",
  "resource.attributes.service.name",
  "resource.service.name",
  "serviceName",
  "kubernetes.labels.app",
  "kubernetes.container_name",
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
    const { services } = servicesResponseSchema.parse(answer).aggregations;
    // A document with an empty text is of no service.
    const names = services.buckets.map(({ key }) => key).filter((key) => key !== "");
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
