// What `readout check` tells of a source of spans: the layout of each group of indices, what a layout cannot carry, what
// these indices cannot narrow, and whether the wall holds.

import type { Instant } from "../../../src/core/time.ts";
import type { SpanSource } from "../../../src/store/span-reader.ts";
import type { SourceReport } from "../../../src/store/store.ts";
import type { Door } from "../client/client.ts";
import { all, any, every, inIndices, isRemote, none, not } from "../client/query-dsl.ts";
import { parseExact } from "../document/flatten.ts";
import { readSpan } from "../layout/span-decoder.ts";
import {
  describeMisspelt,
  type Layout,
  type Placed,
  placeForms,
  type SpanForm,
} from "../layout/span-layout.ts";
import { covers, keptStreams } from "../mapping/index-patterns.ts";
import { findField, type Knowledge, nameGroup, opaqueKnowledge } from "../mapping/mapping.ts";
import { holdsId, isOfForm, timelessness } from "../query/span-upper-bounds.ts";
import { compileWhere, parseWhere, WhereError } from "../query/tenant-filter.ts";
import { findRestrictions } from "../search/access-restrictions.ts";
import type { Catalog } from "../search/mapping-cache.ts";
import { findShardProblem, needsMapping, searchWhole, unreachableProblems } from "../search/search.ts";

/** @throws {BackendError} */
export async function reportSpans(
  backend: string,
  source: SpanSource,
  door: Door,
  catalog: Catalog,
  signal: AbortSignal,
): Promise<SourceReport> {
  if (isRemote(source.index)) {
    const problems = unreachableProblems(source.index, opaqueKnowledge);
    return { profile: source.profile, limitations: [], problems };
  }
  const product = await door.product(signal);
  const knowledge = await catalog.refresh(source.index, signal);
  const layout = placeForms(knowledge, catalog.spanProfiles(source), product);
  const profile = layout.profiles.map(({ name }) => name).join(", ") || source.profile;
  const indices = knowledge.indices.size;
  const limitations: string[] = [];
  const problems: string[] = [];
  if (knowledge.opaque) {
    problems.push(`the mapping may not be read (it ${needsMapping}), so spans cannot be found`);
  } else if (indices === 0) problems.push(`no open index matches ${source.index}`);
  else if (layout.spans.length === 0)
    problems.push(`no index of ${source.index} holds spans of a known layout`);
  problems.push(...unreachableProblems(source.index, knowledge));
  limitations.push(...keptStreams(source.index, knowledge.indices));
  if (layout.profiles.length > 1) {
    for (const { name } of layout.profiles) {
      const own = [
        ...new Set(
          layout.spans.filter(({ profile }) => profile === name).map(({ group }) => nameGroup(group)),
        ),
      ];
      if (own.length > 0) limitations.push(`${own.join(", ")}: read as ${name}`);
    }
  }
  for (const { name, lacks, events, copies } of layout.profiles) {
    const held = copiesIn(copies, knowledge);
    if (held.length > 0) {
      const advice = `let the pattern end in ,-${copies}`;
      limitations.push(`${held.join(", ")}: copies of other spans, which figures count again; ${advice}`);
    }
    limitations.push(...lacks.map((lack) => `${name}: ${lack}`));
    if (events.length > 0 && !layout.events.some((placed) => placed.profile === name)) {
      limitations.push(
        `${name}: no index of the pattern holds its events and exceptions, so spans have none`,
      );
    }
  }
  for (const group of layout.strange)
    limitations.push(`${nameGroup(group)}: holds no spans of a known layout`);
  for (const placed of layout.spans) describe(placed, limitations, problems);
  problems.push(...layout.misspelt.map(describeMisspelt));
  if (source.where !== undefined && !knowledge.opaque) {
    try {
      const wall = parseWhere(source.where);
      for (const { group } of [...layout.spans, ...layout.events]) compileWhere(wall, group);
    } catch (error) {
      if (!(error instanceof WhereError)) throw error;
      problems.push(error.message);
    }
  }
  const unread = await findShardProblem(backend, source.index, knowledge, door, signal);
  if (unread !== undefined) problems.push(unread);
  const consequence = "requests that have to filter by them are refused";
  limitations.push(...(await findRestrictions(door, source.index, knowledge, consequence, signal)));
  if (problems.length === 0)
    limitations.push(...(await findStrangers(backend, source, layout, door, signal)));
  const newest =
    problems.length > 0
      ? undefined
      : await newestSpan(backend, source, knowledge, layout.spans, door, signal);
  return {
    profile,
    ...(!knowledge.opaque && { indices }),
    newest,
    limitations: [...new Set(limitations)],
    problems: [...new Set(problems)],
  };
}

/** The indices that hold the spans of others a second time. */
export function copiesIn(copies: string | undefined, { indices }: Knowledge): readonly string[] {
  return copies === undefined ? [] : [...indices.keys()].filter((name) => covers(copies, name)).sort();
}

function describe(placed: Placed<SpanForm>, limitations: string[], problems: string[]): void {
  const { group, form } = placed;
  const where = nameGroup(group);
  if (group.source === "cut")
    problems.push(`${where}: _source is not kept whole, so spans cannot be answered`);
  if (group.source === "synthetic") {
    limitations.push(`${where}: _source is synthetic: number spelling and array order are the index's`);
  }
  const reason = timelessness(placed);
  if (reason !== undefined) problems.push(`${where}: ${reason}, so spans cannot be bounded by time`);
  const probe = ["0123456789abcdef"];
  for (const names of [form.trace_id, form.span_id, form.parent]) {
    if (holdsId(group, names, probe) !== all) continue;
    limitations.push(
      `${where}: ${names.join(", ")} is not a keyword; looking spans up by it reads every span`,
    );
  }
  const { links } = form;
  if (links !== undefined && holdsId(group, [`${links.at}.${links.span_id}`], probe) === all) {
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
async function findStrangers(
  backend: string,
  { index }: SpanSource,
  { spans, events }: Layout,
  door: Door,
  signal: AbortSignal,
): Promise<string[]> {
  const known = any(
    [...spans, ...events].map((placed) => every([inIndices(placed.group.indices), isOfForm(placed)])),
  );
  const beside = every([inIndices(spans.flatMap(({ group }) => group.indices)), not(known)]);
  if (beside === none) return [];
  const body = { size: 0, track_total_hits: mostCounted, query: beside };
  const { total = `over ${mostCounted}` } = await searchWhole(backend, door, index, body, signal);
  if (total === 0) return [];
  return [
    `documents beside the spans that are neither spans nor events of a known layout, not shown: ${total}`,
  ];
}
const mostCounted = 10_000;

/** The end of the span that started last. */
async function newestSpan(
  backend: string,
  source: SpanSource,
  knowledge: Knowledge,
  placed: readonly Placed<SpanForm>[],
  door: Door,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const wall = source.where === undefined ? undefined : parseWhere(source.where);
  let newest: Instant | undefined;
  for (const { field } of new Map(placed.map(({ form }) => [form.start.field, form.start])).values()) {
    const own = placed.filter(({ form }) => form.start.field === field);
    const query = any(
      own.map((one) => {
        const walled = wall === undefined ? all : compileWhere(wall, one.group);
        return every([inIndices(one.group.indices), isOfForm(one), walled]);
      }),
    );
    if (query === none) continue;
    const dates = own.some(({ form }) => form.start.unit === "date");
    const typed = dates ? { unmapped_type: "date", numeric_type: "date" } : { unmapped_type: "long" };
    const sort = { [field]: { order: "desc", ...typed } };
    const body = { size: 1, track_total_hits: false, query, sort: [sort] };
    const answer = await searchWhole(backend, door, source.index, body, signal);
    const [hit] = answer.hits;
    if (hit === undefined || !knowledge.indices.has(hit.index)) continue;
    const document = parseExact(hit.source);
    for (const { group, form } of own) {
      const span = group.indices.includes(hit.index) ? readSpan(document, form, source) : undefined;
      if (span !== undefined && (newest === undefined || span.end > newest)) newest = span.end;
    }
  }
  return newest;
}
