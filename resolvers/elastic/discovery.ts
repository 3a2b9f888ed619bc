// Surveys a cluster for `readout init`: collapses its index names into few patterns, and finds whether each pattern holds log
// lines, spans or events of spans, by the same detection as reading. Sources for which an inspection finds a problem are left out.
import { areEnvironments } from "../../src/core/environments.ts";
import { isRefusedBySource } from "../../src/core/errors.ts";
import type { FoundSource, Survey } from "../../src/store/inspection.ts";
import { classifyPattern, type FoundTraces, type ListedNames } from "./found-sources.ts";
import {
  collapseIndices,
  excludeOthers,
  type IndexPattern,
  narrowPattern,
} from "./mapping/collapsed-patterns.ts";
import { listReached } from "./mapping/index-patterns.ts";
import type { ListedIndex } from "./mapping/listed-indices.ts";
import { readKinds, type SurveyContext, unrecognised } from "./pattern-contents.ts";
import { listCopies, listIndices } from "./search/index-listing.ts";
import { formatNames } from "./search/search.ts";

/** Patterns are inspected one after another, since a mapping may have megabytes. Those that are requested all are. */
const maxPatterns = 100;

/** Proposes sources for the requested patterns, or without any for all indices. @throws {BackendError} */
export async function surveyIndices(
  requested: readonly string[],
  access: Omit<SurveyContext, "isRequested">,
): Promise<Survey> {
  const context = { ...access, isRequested: requested.length > 0 };
  const notes: string[] = [];
  const listed = await listNames(requested, context, notes);
  const patterns =
    requested.length > 0 ? dividePatterns(requested, listed, notes) : await gatherPatterns(listed, context);
  const most = context.isRequested ? patterns.length : maxPatterns;
  for (const { index } of patterns.slice(most))
    notes.push(`${index}: not among the first ${maxPatterns} patterns; name it with --index`);
  const logs: FoundSource[] = [];
  const traces: FoundTraces[] = [];
  for (const pattern of patterns.slice(0, most)) {
    const found = await classifyPattern(pattern, listed, context);
    notes.push(...found.notes);
    logs.push(...found.logs);
    traces.push(...found.traces);
  }
  // A pattern with several namespaces makes all one site.
  const isOneSite = [...logs, ...traces].some(({ namespaces = [] }) => namespaces.length > 1);
  const proposed = removeRivalExclusions(traces, listed, isOneSite);
  return { logs, traces: proposed, labels: new Map(), kubernetes: [], notes };
}

/**
 * The `traces` of a site name the patterns of all of its spans in one list, where an exclusion takes away what stands before it.
 * So a pattern does not exclude the members of another one of the same site.
 */
function removeRivalExclusions(
  traces: readonly FoundTraces[],
  listed: ListedNames,
  isOneSite: boolean,
): readonly FoundSource[] {
  const all = new Set(traces.flatMap(({ namespaces = [] }) => namespaces));
  const areAllBeside = isOneSite || !areEnvironments([...all]);
  return traces.map(({ members: _, ...source }) => {
    const beside = traces.filter(
      ({ namespaces }) => areAllBeside || namespaces?.[0] === source.namespaces?.[0],
    );
    const members = [...new Set(beside.flatMap((one) => one.members))];
    const isHarmless = beside.every((other) =>
      other.members.every((one) => listReached(`${other.index},${source.index}`, one).length > 0),
    );
    if (isHarmless) return source;
    const included = source.index.split(",").filter((part) => !part.startsWith("-"));
    const others = [...listed.proposable, ...listed.others].filter((one) => !members.includes(one));
    return { ...source, index: excludeOthers(included.join(","), members, others) };
  });
}

/** Leaves out copies of other indices, and the servers' own indices unless they are requested. */
async function listNames(
  requested: readonly string[],
  { backend, client, signal }: SurveyContext,
  notes: string[],
): Promise<ListedNames> {
  const listed = await listIndices(backend, client, "*", signal);
  if (listed === undefined) {
    if (requested.length === 0)
      notes.push("the names of indices may not be listed: name those that may be read with --index");
    return { proposable: [], others: [] };
  }
  const isRequested = (one: ListedIndex) =>
    requested.length === 0
      ? !one.name.startsWith(".")
      : requested.some((pattern) => listReached(pattern, one).length > 0);
  const copies = await listCopies(backend, client, signal);
  const isCopy = (one: ListedIndex) => one.indices.every((index) => copies.has(index));
  const proposable = listed.filter((one) => isRequested(one) && !isCopy(one));
  const ownCopies = listed.filter((one) => isRequested(one) && isCopy(one));
  for (const { index, members } of collapseIndices(ownCopies, { others: proposable })) {
    const originals = new Set(members.flatMap(({ indices }) => indices.map((one) => copies.get(one) ?? one)));
    notes.push(`${index}: copies of indices that are there (${formatNames([...originals].sort())})`);
  }
  const hidden = listed.filter((one) => requested.length === 0 && one.name.startsWith("."));
  if (hidden.length > 0)
    notes.push(`.*: ${hidden.length} names that begin with a dot, as those of the servers' own indices do`);
  return { proposable, others: listed.filter((one) => !proposable.includes(one)) };
}

/** The requested patterns, each without the indices that a narrower one of them reaches, and without copies. */
function dividePatterns(
  requested: readonly string[],
  { proposable, others }: ListedNames,
  notes: string[],
): readonly IndexPattern[] {
  const patterns = [...new Set(requested)].map((index) => ({
    index,
    reached: proposable.filter((one) => listReached(index, one).length > 0),
  }));
  const order = patterns.toSorted((a, b) => a.reached.length - b.reached.length);
  return patterns.flatMap(({ index, reached }): readonly IndexPattern[] => {
    const narrower = order.slice(
      0,
      order.findIndex((one) => one.index === index),
    );
    const members = reached.filter((one) => !narrower.some((other) => other.reached.includes(one)));
    if (members.length === 0 && reached.length > 0) {
      notes.push(`${index}: all of its indices are in other patterns`);
      return [];
    }
    return narrowPattern(index, members, [...proposable, ...others]);
  });
}

/**
 * A pattern is proposed with one kind of content, so patterns that were merged by their names are inspected, and merged again
 * without names of another kind. Names that cannot be proposed as one pattern stay separate. Stops at as many patterns as are
 * inspected in all: what is in the others is told apart when they are named.
 */
async function gatherPatterns(listed: ListedNames, context: SurveyContext): Promise<readonly IndexPattern[]> {
  const kinds = new Map<string, string>();
  const inspected = new Set<string>();
  for (;;) {
    const readKind = (name: string) => kinds.get(name) ?? "";
    const patterns = collapseIndices(listed.proposable, { readKind, others: listed.others });
    const pattern = patterns.find(({ isMerged, index }) => isMerged && !inspected.has(index));
    if (pattern === undefined || inspected.size === maxPatterns) return patterns;
    inspected.add(pattern.index);
    const found = await findKinds(pattern, context);
    const names = pattern.members.map(({ name }) => name);
    const [only, ...others] = new Set(names.map((name) => found.get(name)));
    const isOneKind = only !== undefined && others.length === 0;
    if (
      isOneKind &&
      (only === unrecognised || (await classifyPattern(pattern, listed, context)).notes.length === 0)
    )
      continue;
    for (const name of names) {
      const kind = isOneKind ? undefined : found.get(name);
      kinds.set(name, kind ?? `separate: ${name}`);
    }
  }
}

/** What each name of a pattern holds, and in which layout. Lacks names whose mapping is not shown. @throws {BackendError} */
async function findKinds(
  { index, members }: IndexPattern,
  context: SurveyContext,
): Promise<ReadonlyMap<string, string>> {
  try {
    const metadata = await context.mappingCache.refresh(index, context.signal);
    const found = await readKinds(index, members, metadata, context);
    return new Map([...found].map(([name, kinds]) => [name, [...kinds].sort().join(", ")] as const));
  } catch (error) {
    if (!isRefusedBySource(error)) throw error;
    return new Map();
  }
}
