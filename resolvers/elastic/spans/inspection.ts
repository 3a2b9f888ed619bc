// What `readout check` tells of a source of spans: the layout of each group of indices, what a layout cannot carry, what
// these indices cannot narrow, and whether the wall holds.

import type { Instant } from "../../../src/core/time.ts";
import type { SourceInspection } from "../../../src/store/inspection.ts";
import type { SpanSource } from "../../../src/store/spans.ts";
import type { ElasticClient } from "../client/client.ts";
import { allOf, anyOf, buildIndicesQuery, isRemote, matchAll, matchNone, not } from "../client/query-dsl.ts";
import { parseExactIntegers } from "../document/flatten.ts";
import { describeMisspelt, type PlacedForm, type PlacedForms, placeForms } from "../layout/form-placement.ts";
import { decodeSpan } from "../layout/span-decoder.ts";
import type { SpanForm } from "../layout/span-layout.ts";
import { isNameInPattern, listKeptStreams } from "../mapping/index-patterns.ts";
import { findField, type IndexMetadata, opaqueMetadata, summariseIndices } from "../mapping/mapping.ts";
import { buildFormQuery, buildIdQuery, describeTimeProblem } from "../query/span-upper-bounds.ts";
import { compileTenantFilter, parseTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";
import { findRestrictions } from "../search/access-restrictions.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { findShardProblem, listUnreachableProblems, needsMapping, searchComplete } from "../search/search.ts";

/** @throws {BackendError} */
export async function inspectSpanSource(
  backend: string,
  source: SpanSource,
  client: ElasticClient,
  catalog: MappingCache,
  signal: AbortSignal,
): Promise<SourceInspection> {
  if (isRemote(source.index)) {
    const problems = listUnreachableProblems(source.index, opaqueMetadata);
    return { layout: source.layout, limitations: [], problems };
  }
  const product = await client.detectProduct(signal);
  const knowledge = await catalog.refresh(source.index, signal);
  const forms = placeForms(knowledge, catalog.listSpanLayouts(source), product);
  const layout = forms.layouts.map(({ name }) => name).join(", ") || source.layout;
  const indices = knowledge.indices.size;
  const limitations: string[] = [];
  const problems: string[] = [];
  if (knowledge.opaque) {
    problems.push(`the mapping may not be read (it ${needsMapping}), so spans cannot be found`);
  } else if (indices === 0) problems.push(`no open index matches ${source.index}`);
  else if (forms.spans.length === 0)
    problems.push(`no index of ${source.index} holds spans of a known layout`);
  problems.push(...listUnreachableProblems(source.index, knowledge));
  limitations.push(...listKeptStreams(source.index, knowledge.indices));
  if (forms.layouts.length > 1) {
    for (const { name } of forms.layouts) {
      const own = [
        ...new Set(
          forms.spans.filter(({ layout }) => layout === name).map(({ group }) => summariseIndices(group)),
        ),
      ];
      if (own.length > 0) limitations.push(`${own.join(", ")}: read as ${name}`);
    }
  }
  for (const { name, lacks, events, copies } of forms.layouts) {
    const held = listCopyIndices(copies, knowledge);
    if (held.length > 0) {
      const advice = `let the pattern end in ,-${copies}`;
      limitations.push(`${held.join(", ")}: copies of other spans, which figures count again; ${advice}`);
    }
    limitations.push(...lacks.map((lack) => `${name}: ${lack}`));
    if (events.length > 0 && !forms.events.some((placed) => placed.layout === name)) {
      limitations.push(
        `${name}: no index of the pattern holds its events and exceptions, so spans have none`,
      );
    }
  }
  for (const group of forms.unrecognised)
    limitations.push(`${summariseIndices(group)}: holds no spans of a known layout`);
  for (const placed of forms.spans) reportIndexGroup(placed, limitations, problems);
  problems.push(...forms.misspeltFields.map(describeMisspelt));
  if (source.where !== undefined && !knowledge.opaque) {
    try {
      const tenantFilter = parseTenantFilter(source.where);
      for (const { group } of [...forms.spans, ...forms.events]) compileTenantFilter(tenantFilter, group);
    } catch (error) {
      if (!(error instanceof TenantFilterError)) throw error;
      problems.push(error.message);
    }
  }
  const unread = await findShardProblem(backend, source.index, knowledge, client, signal);
  if (unread !== undefined) problems.push(unread);
  const consequence = "requests that have to filter by them are refused";
  limitations.push(...(await findRestrictions(client, source.index, knowledge, consequence, signal)));
  if (problems.length === 0)
    limitations.push(...(await describeUnknownDocuments(backend, source, forms, client, signal)));
  const newest =
    problems.length > 0
      ? undefined
      : await findNewestEnd(backend, source, knowledge, forms.spans, client, signal);
  return {
    layout,
    ...(!knowledge.opaque && { indices }),
    newest,
    limitations: [...new Set(limitations)],
    problems: [...new Set(problems)],
  };
}

/** The indices that hold the spans of others a second time. */
export function listCopyIndices(copies: string | undefined, { indices }: IndexMetadata): readonly string[] {
  return copies === undefined
    ? []
    : [...indices.keys()].filter((name) => isNameInPattern(copies, name)).sort();
}

function reportIndexGroup(placed: PlacedForm<SpanForm>, limitations: string[], problems: string[]): void {
  const { group, form } = placed;
  const where = summariseIndices(group);
  if (group.sourceMode === "cut")
    problems.push(`${where}: _source is not kept whole, so spans cannot be answered`);
  if (group.sourceMode === "synthetic") {
    limitations.push(`${where}: _source is synthetic: number spelling and array order are the index's`);
  }
  const reason = describeTimeProblem(placed);
  if (reason !== undefined) problems.push(`${where}: ${reason}, so spans cannot be bounded by time`);
  const probe = ["0123456789abcdef"];
  for (const names of [form.trace_id, form.span_id, form.parent]) {
    if (buildIdQuery(group, names, probe) !== matchAll) continue;
    limitations.push(
      `${where}: ${names.join(", ")} is not a keyword; looking spans up by it reads every span`,
    );
  }
  const { links } = form;
  if (links !== undefined && buildIdQuery(group, [`${links.at}.${links.span_id}`], probe) === matchAll) {
    limitations.push(`${where}: ${links.at} is not searchable; edges read every request to find linked ones`);
  }
  const length = form.duration;
  if (length !== undefined && findField(group, length.field)?.indexed !== true) {
    limitations.push(
      `${where}: ${length.field} is not searchable; a range reads every span that started before its end`,
    );
  }
}

/**
 * Documents beside the spans that no layout knows: events, for example, that the collector's `elasticsearch` exporter
 * writes into the index of the spans where a configuration names it, and whose names the mapping there lacks.
 */
async function describeUnknownDocuments(
  backend: string,
  { index }: SpanSource,
  { spans, events }: PlacedForms,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<string[]> {
  const known = anyOf(
    [...spans, ...events].map((placed) =>
      allOf([buildIndicesQuery(placed.group.indices), buildFormQuery(placed)]),
    ),
  );
  const beside = allOf([buildIndicesQuery(spans.flatMap(({ group }) => group.indices)), not(known)]);
  if (beside === matchNone) return [];
  const body = { size: 0, track_total_hits: maxCountedUnknown, query: beside };
  const { total = `over ${maxCountedUnknown}` } = await searchComplete(backend, client, index, body, signal);
  if (total === 0) return [];
  return [
    `documents beside the spans that are neither spans nor events of a known layout, not shown: ${total}`,
  ];
}
const maxCountedUnknown = 10_000;

/** The end of the span that started last. */
async function findNewestEnd(
  backend: string,
  source: SpanSource,
  knowledge: IndexMetadata,
  placed: readonly PlacedForm<SpanForm>[],
  client: ElasticClient,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const tenantFilter = source.where === undefined ? undefined : parseTenantFilter(source.where);
  let newest: Instant | undefined;
  for (const { field } of new Map(placed.map(({ form }) => [form.start.field, form.start])).values()) {
    const own = placed.filter(({ form }) => form.start.field === field);
    const query = anyOf(
      own.map((one) => {
        const walled = tenantFilter === undefined ? matchAll : compileTenantFilter(tenantFilter, one.group);
        return allOf([buildIndicesQuery(one.group.indices), buildFormQuery(one), walled]);
      }),
    );
    if (query === matchNone) continue;
    const dates = own.some(({ form }) => form.start.unit === "date");
    const typed = dates ? { unmapped_type: "date", numeric_type: "date" } : { unmapped_type: "long" };
    const sort = { [field]: { order: "desc", ...typed } };
    const body = { size: 1, track_total_hits: false, query, sort: [sort] };
    const answer = await searchComplete(backend, client, source.index, body, signal);
    const [hit] = answer.hits;
    if (hit === undefined || !knowledge.indices.has(hit.index)) continue;
    const document = parseExactIntegers(hit.source);
    for (const { group, form } of own) {
      const span = group.indices.includes(hit.index) ? decodeSpan(document, form, source) : undefined;
      if (span !== undefined && (newest === undefined || span.end > newest)) newest = span.end;
    }
  }
  return newest;
}
