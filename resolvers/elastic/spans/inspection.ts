// Inspects a source of spans for `readout check`: the layout of each group of indices, what a layout cannot carry, which
// fields cannot be searched, and whether the tenant filter is exact.
import { requireFirst } from "../../../src/core/collections.ts";
import { isRejection } from "../../../src/core/errors.ts";
import { parseExactIntegers } from "../../../src/core/json/lossless-json.ts";
import { type Instant, selectNewest } from "../../../src/core/time.ts";
import type { SourceInspection } from "../../../src/store/inspection.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import type { ElasticClient } from "../client/client.ts";
import {
  allOf,
  anyOf,
  buildIndicesQuery,
  isRemote,
  matchAll,
  matchNone,
  not,
  type Query,
  restrictToIndices,
} from "../client/query-dsl.ts";
import { describeMisspelt, type PlacedForm, type PlacedForms, placeForms } from "../layout/form-placement.ts";
import { decodeSpan } from "../layout/span-decoder.ts";
import { type EventForm, listTimes, type SpanForm } from "../layout/span-layout.ts";
import { adviseOnCopies } from "../mapping/index-copies.ts";
import { explainIneffectiveExclusions, isNameInPattern } from "../mapping/index-patterns.ts";
import { findField, type IndexMetadata, opaqueMetadata } from "../mapping/mapping.ts";
import { buildCertainlyMissingQuery } from "../query/span-lower-bounds.ts";
import { buildTimeSort, describeTimeProblem, findLossyTime } from "../query/span-times.ts";
import { buildFormQuery, buildIdQuery } from "../query/span-upper-bounds.ts";
import { buildTenantQuery, compileTenantFilter, parseTenantFilter } from "../query/tenant-filter.ts";
import { findRestrictions } from "../search/access-report.ts";
import { addNarrowWindows, addTenantFilterFault, type Findings, printFindings } from "../search/findings.ts";
import { buildLineQuery } from "../search/layout-detection.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import {
  findShardProblem,
  hiddenFieldsProblem,
  listUnreachableProblems,
  needsMapping,
  searchComplete,
} from "../search/search.ts";
import { findSnapshotObstacle } from "../snapshot/snapshot.ts";

/** The report of `readout check` on a source of spans. @throws {BackendError} */
export async function inspectSpanSource(
  backend: string,
  source: SpanSource,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<SourceInspection> {
  if (isRemote(source.index)) {
    const unsearchable = listUnreachableProblems(source.index, opaqueMetadata);
    const remote = `${source.index} names a remote cluster, whose mappings cannot be read; make it a backend of its own`;
    return {
      layout: source.layout,
      limitations: [],
      problems: unsearchable.length > 0 ? unsearchable : [remote],
    };
  }
  const product = await client.detectProduct(signal);
  const metadata = await mappingCache.refresh(source.index, signal);
  const forms = placeForms(metadata, mappingCache.listSpanLayouts(source), product);
  const findings: Findings = { limitations: [], problems: [] };
  const { limitations, problems } = findings;
  reportIndices(source, metadata, forms, findings);
  addNarrowWindows(findings, metadata);
  reportLayouts(metadata, forms, findings);
  for (const placed of forms.spans) reportForm(placed, findings);
  problems.push(...forms.misspeltFields.map(describeMisspelt));
  if (!metadata.opaque) reportTenantFilter(source, forms, findings);
  const obstacle = findSnapshotObstacle(product, [metadata]);
  if (obstacle !== undefined) {
    limitations.push(`${obstacle}, so service maps and slow events read their whole range each time`);
  }
  const unread = await findShardProblem(backend, source.index, metadata, client, signal);
  if (unread !== undefined) problems.push(unread);
  const consequence = "requests that have to filter by them are refused";
  limitations.push(...(await findRestrictions(client, source.index, metadata, consequence, signal)));
  let newest: Instant | undefined;
  if (problems.length === 0) {
    limitations.push(...(await describeUnknownDocuments(backend, source, forms, client, signal)));
    limitations.push(...(await describeTimes(backend, source, forms, client, signal)));
    newest = await findNewestEnd(backend, source, metadata, forms.spans, client, signal);
  }
  return {
    layout: forms.layouts.map(({ name }) => name).join(", ") || source.layout,
    ...(!metadata.opaque && { indices: metadata.indices.size }),
    newest,
    ...printFindings(findings),
  };
}

function reportIndices(
  { index }: SpanSource,
  metadata: IndexMetadata,
  { spans }: PlacedForms,
  { limitations, problems }: Findings,
): void {
  if (metadata.opaque) {
    problems.push(`the mapping may not be read (it ${needsMapping}), so spans cannot be found`);
  } else if (metadata.indices.size === 0) problems.push(`no open index matches ${index}`);
  else if (spans.length === 0) problems.push(`no index of ${index} holds spans of a known layout`);
  problems.push(...listUnreachableProblems(index, metadata));
  limitations.push(...explainIneffectiveExclusions(index, metadata.indices));
  if (metadata.copies.size > 0) {
    const advice = adviseOnCopies(index, metadata.copies, metadata.indices);
    const indices = [...metadata.copies.keys()];
    limitations.push({
      indices,
      text: `copies of other indices, whose spans figures count again; ${advice}`,
    });
  }
}

/** Which groups of indices have which layout, and what each layout lacks there. */
function reportLayouts(metadata: IndexMetadata, forms: PlacedForms, { limitations }: Findings): void {
  const { layouts, spans, events, unrecognised } = forms;
  if (layouts.length > 1) {
    for (const { name } of layouts) {
      const own = spans.filter(({ layout }) => layout === name);
      const indices = own.flatMap(({ group }) => group.indices);
      if (indices.length > 0) limitations.push({ indices, text: `read as ${name}` });
    }
  }
  for (const { name, lacks, events: ownEvents, copies } of layouts) {
    const copied = listCopyIndices(copies, metadata);
    if (copied.length > 0) {
      limitations.push({
        indices: copied,
        text: `copies of other spans, which figures count again; let the pattern end in ,-${copies}`,
      });
    }
    limitations.push(...lacks.map((lack) => `${name}: ${lack}`));
    if (ownEvents.length > 0 && !events.some(({ layout }) => layout === name)) {
      limitations.push(
        `${name}: no index of the pattern holds its events and exceptions, so spans have none`,
      );
    }
  }
  for (const group of unrecognised) {
    // Log lines may lie beside spans.
    if (buildLineQuery(group) === matchNone)
      limitations.push({ indices: group.indices, text: "holds no spans of a known layout" });
  }
}

/** The indices that hold copies of the spans of other indices. */
export function listCopyIndices(
  copies: string | undefined,
  { indices }: Pick<IndexMetadata, "indices">,
): readonly string[] {
  return copies === undefined ? [] : [...indices].filter((name) => isNameInPattern(copies, name)).sort();
}

/** What the mapping of a group of indices does not allow. */
function reportForm(placed: PlacedForm<SpanForm>, { limitations, problems }: Findings): void {
  const { group, form } = placed;
  const { indices } = group;
  if (group.sourceMode === "cut")
    problems.push({ indices, text: `_source is not kept whole, so spans cannot be answered` });
  if (group.hidesFields) problems.push({ indices, text: hiddenFieldsProblem });
  const lossy = findLossyTime(placed);
  if (lossy !== undefined)
    problems.push({
      indices,
      text: `${lossy} is a float and _source is synthetic, so times of spans are lost`,
    });
  if (group.sourceMode === "synthetic") {
    limitations.push({
      indices,
      text: `_source is synthetic: number spelling and array order are the index's`,
    });
  }
  const reason = describeTimeProblem(placed);
  if (reason !== undefined) limitations.push({ indices, text: `${reason}; a range reads every span there` });
  // A query that matches everything shows that the index cannot search the field.
  const canSearch = (names: readonly string[]): boolean =>
    buildIdQuery(group, names, ["0123456789abcdef"]) !== matchAll;
  for (const names of [form.trace_id, form.span_id, form.parent]) {
    if (canSearch(names)) continue;
    limitations.push({
      indices,
      text: `${names.join(", ")} is not a keyword; looking spans up by it reads every span`,
    });
  }
  const { links, duration } = form;
  if (links !== undefined && !canSearch([`${links.at}.${links.span_id}`])) {
    limitations.push({
      indices,
      text: `${links.at} is not searchable; edges read every request to find linked ones`,
    });
  }
  if (duration !== undefined && findField(group, duration.field)?.indexed !== true) {
    limitations.push({
      indices,
      text: `${duration.field} is not searchable; a range reads every span that started before its end`,
    });
  }
}

/** A tenant filter that some group of indices cannot compile exactly is a problem. */
function reportTenantFilter(
  { tenantFilter }: SpanSource,
  { spans, events }: PlacedForms,
  findings: Findings,
): void {
  if (tenantFilter === undefined) return;
  try {
    const filter = parseTenantFilter(tenantFilter);
    for (const { group } of [...spans, ...events]) compileTenantFilter(filter, group);
  } catch (error) {
    addTenantFilterFault(findings, error);
  }
}

/** Unknown documents are counted up to this number. */
const maxCountedUnknown = 10_000;

/**
 * The number of documents in indices of spans that have no known layout and are no log lines. The collector's `elasticsearch`
 * exporter makes such documents, for example: with an `index` it writes events among the spans, and their mapping lacks the
 * fields of events.
 */
async function describeUnknownDocuments(
  backend: string,
  { index, tenantFilter }: SpanSource,
  { spans, events }: PlacedForms,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const known = anyOf(
    [...spans, ...events].map((placed) =>
      allOf([buildIndicesQuery(placed.group.indices), buildFormQuery(placed)]),
    ),
  );
  const groups = [...new Set(spans.map(({ group }) => group))];
  const lines = anyOf(
    restrictToIndices(groups.map((group) => ({ query: buildLineQuery(group), indices: group.indices }))),
  );
  const own = buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const query = allOf([own, buildTenantQuery(tenantFilter, groups), not(known), not(lines)]);
  if (query === matchNone) return [];
  const body = { size: 0, track_total_hits: maxCountedUnknown, query };
  const { total = `over ${maxCountedUnknown}` } = await searchComplete(backend, client, index, body, signal);
  if (total === 0) return [];
  return [
    `documents beside the spans that are neither spans nor events of a known layout nor log lines, not shown: ${total}`,
  ];
}

/** The numbers of documents whose time is that of another field, and of those that have none and so are not shown. */
async function describeTimes(
  backend: string,
  source: SpanSource,
  { spans, events }: PlacedForms,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const byFields = Map.groupBy([...spans, ...events], (placed) => listTimeNames(placed).join(" and "));
  const found: string[] = [];
  for (const [fields, forms] of byFields) {
    const count = (without: (names: readonly string[]) => readonly string[]): Promise<number | string> =>
      countDocuments(backend, source, forms, client, signal, (placed) =>
        allOf(without(listTimeNames(placed)).map((name) => buildCertainlyMissingQuery(placed, name))),
      );
    const [first = "", second] = listTimeNames(requireFirst(forms));
    const untimed = await count((names) => names);
    if (untimed !== 0)
      found.push(`documents without ${fields}, which have no time and are not shown: ${untimed}`);
    const replaced = second === undefined ? 0 : await count((names) => names.slice(0, 1));
    if (replaced !== 0 && replaced !== untimed)
      found.push(`documents without ${first}, whose time is ${second} to the millisecond: ${replaced}`);
  }
  return found;
}

function listTimeNames({ form }: PlacedForm<SpanForm | EventForm>): readonly string[] {
  return listTimes(form.holds === "span" ? (form.end ?? form.start) : form.time).map(({ field }) => field);
}

/** How many documents of these forms behind the tenant filter match a condition: a number, or that there are too many to count. */
async function countDocuments(
  backend: string,
  source: SpanSource,
  forms: readonly PlacedForm<SpanForm | EventForm>[],
  client: ElasticClient,
  signal: AbortSignal,
  condition: (placed: PlacedForm<SpanForm | EventForm>) => Query,
): Promise<number | string> {
  const query = buildFormsQuery(source, forms, condition);
  if (query === matchNone) return 0;
  const body = { size: 0, track_total_hits: maxCountedUnknown, query };
  const { total } = await searchComplete(backend, client, source.index, body, signal);
  return total ?? `over ${maxCountedUnknown}`;
}

/** The end of the span that started last, as `inspectSpanSource` finds it. @throws {BackendError} */
export async function findNewestSpan(
  backend: string,
  source: SpanSource,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const product = await client.detectProduct(signal);
  const metadata = await mappingCache.read(source.index, source.tenantFilter !== undefined, signal);
  const { spans } = placeForms(metadata, mappingCache.listSpanLayouts(source), product);
  return findNewestEnd(backend, source, metadata, spans, client, signal);
}

/** The end of the span that started last. Undefined without spans, and where the server cannot sort them. */
async function findNewestEnd(
  backend: string,
  source: SpanSource,
  metadata: IndexMetadata,
  placed: readonly PlacedForm<SpanForm>[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const ends: (Instant | undefined)[] = [];
  const timed = placed.flatMap((own) => listTimes(own.form.start).map((time) => ({ time, own })));
  for (const entries of Map.groupBy(timed, ({ time }) => `${time.unit} ${time.field}`).values()) {
    const forms = entries.map(({ own }) => own);
    const { time } = requireFirst(entries);
    const query = buildFormsQuery(source, forms, () => ({ exists: { field: time.field } }));
    if (query === matchNone) continue;
    const body = { size: 1, track_total_hits: false, query, sort: buildTimeSort(forms, time, "desc") };
    const [hit] = await searchSorted(backend, client, source.index, body, signal);
    if (hit === undefined || !metadata.indices.has(hit.index)) continue;
    const document = parseExactIntegers(hit.source);
    for (const { form } of forms.filter(({ group }) => group.indices.includes(hit.index))) {
      ends.push(decodeSpan(document, form, source)?.end);
    }
  }
  return selectNewest(ends);
}

/** The hits of a search; none where an index has the field to sort by as a type that cannot be sorted. */
async function searchSorted(
  backend: string,
  client: ElasticClient,
  index: string,
  body: object,
  signal: AbortSignal,
): Promise<Awaited<ReturnType<typeof searchComplete>>["hits"]> {
  try {
    return (await searchComplete(backend, client, index, body, signal)).hits;
  } catch (error) {
    if (isRejection(error)) return [];
    throw error;
  }
}

/** Documents of these forms behind the tenant filter that match a condition. */
function buildFormsQuery<Form extends SpanForm | EventForm>(
  { tenantFilter: text }: SpanSource,
  forms: readonly PlacedForm<Form>[],
  condition: (placed: PlacedForm<Form>) => Query,
): Query {
  const tenantFilter = text === undefined ? undefined : parseTenantFilter(text);
  return anyOf(
    forms.map((placed) => {
      const filter = tenantFilter === undefined ? matchAll : compileTenantFilter(tenantFilter, placed.group);
      return allOf([
        buildIndicesQuery(placed.group.indices),
        buildFormQuery(placed),
        filter,
        condition(placed),
      ]);
    }),
  );
}
