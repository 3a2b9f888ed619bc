// What `readout check` tells of a source of log lines: the layout of each group of indices, what a layout cannot carry, by
// which fields these indices cannot narrow, and whether the wall holds.

import { fromMillis, type Instant } from "../../../src/core/time.ts";
import type { LogSource, SourceInspection } from "../../../src/store/store.ts";
import type { ElasticClient } from "../client/client.ts";
import type { Product } from "../client/product.ts";
import { allOf, anyOf, buildIndicesQuery, isRemote, matchAll, not, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import type { LogLayout } from "../layout/log-layout.ts";
import { listKeptStreams } from "../mapping/index-patterns.ts";
import { isDateType } from "../mapping/indexed-field.ts";
import {
  findField,
  type IndexGroup,
  type IndexMetadata,
  isDynamicallyIndexed,
  isUnindexed,
  isUnsortable,
  opaqueMetadata,
  summariseIndices,
} from "../mapping/mapping.ts";
import { isNumeric } from "../query/comparison-compiler.ts";
import { compileTenantFilter, parseTenantFilter, TenantFilterError } from "../query/tenant-filter.ts";
import { createNumberColumn } from "../query/time-field.ts";
import { findRestrictions } from "../search/access-restrictions.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { hasOnlyUntimedDocuments, listTimeFields } from "../search/missing-time.ts";
import {
  findShardProblem,
  formatNames,
  listUnreachableProblems,
  needsMapping,
  searchComplete,
} from "../search/search.ts";

/** @throws {BackendError} */
export async function inspectLogSource(
  backend: string,
  source: LogSource,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<SourceInspection> {
  const limitations: string[] = [];
  const problems: string[] = [];
  if (isRemote(source.index)) {
    problems.push(...listUnreachableProblems(source.index, opaqueMetadata));
    return { layout: source.layout, limitations, problems };
  }
  const product = await client.detectProduct(signal);
  const metadata = await mappingCache.refresh(source.index, signal);
  const parts = await mappingCache.readLayoutGroups(source, metadata, signal);
  const names = [...new Set(parts.map(({ layout }) => layout.name))];
  if (metadata.opaque) {
    limitations.push(
      `the mapping may not be read (it ${needsMapping}), so every query reads all lines of its range`,
    );
  } else if (metadata.indices.size === 0) {
    problems.push(`no open index matches ${source.index}`);
  }
  problems.push(...listUnreachableProblems(source.index, metadata));
  limitations.push(...listKeptStreams(source.index, metadata.indices));
  for (const { indices, reason } of await mappingCache.listGuesses(source, metadata, signal))
    limitations.push(`${indices}: no known layout is recognised; ${reason}`);
  if (parts.length > 1) {
    for (const { layout, groups } of parts)
      limitations.push(`${formatGroupNames(groups)}: read as ${layout.name}`);
  }
  for (const layout of new Set(parts.map((part) => part.layout))) {
    limitations.push(...layout.lacks.map((lack) => `${layout.name}: ${lack}`));
  }
  for (const part of parts) {
    for (const group of part.groups) describeGroup(group, part, product, limitations, problems);
  }
  if (source.where !== undefined) {
    try {
      const tenantFilter = parseTenantFilter(source.where);
      if (metadata.opaque)
        throw new TenantFilterError("where: the mapping may not be read, so the wall cannot be proved");
      for (const group of metadata.groups) compileTenantFilter(tenantFilter, group);
    } catch (error) {
      if (!(error instanceof TenantFilterError)) throw error;
      problems.push(error.message);
    }
  }
  const unread = await findShardProblem(backend, source.index, metadata, client, signal);
  if (unread !== undefined) problems.push(unread);
  if (await hasOnlyUntimedDocuments(backend, source.index, parts, client, signal)) {
    const times = formatNames(listTimeFields(parts));
    problems.push(
      `no document of ${source.index} shows ${times}, so its lines are in no range: another profile, or hidden from this user`,
    );
  }
  const consequence = "filters on them read every line of the range";
  limitations.push(...(await findRestrictions(client, source.index, metadata, consequence, signal)));
  let newest: Instant | undefined;
  if (problems.length === 0) {
    for (const part of parts) {
      const tenantFilter = buildTenantQuery(source, part);
      const found = await findNewestLine(backend, source, part, tenantFilter, client, signal);
      if (found !== undefined && (newest === undefined || found > newest)) newest = found;
      const untimed = await countUntimed(backend, source, part, tenantFilter, metadata, client, signal);
      if (untimed > 0) {
        limitations.push(
          `${untimed} documents have no ${part.time} and are in no range (profile ${part.layout.name})`,
        );
      }
    }
  }
  return {
    layout: names.join(", "),
    ...(!metadata.opaque && { indices: metadata.indices.size }),
    newest,
    limitations,
    problems,
  };
}

function formatGroupNames(groups: readonly IndexGroup[]): string {
  return formatNames(groups.map(summariseIndices));
}

function describeGroup(
  group: IndexGroup,
  { layout, time: timeName, unit }: LayoutGroup,
  product: Product,
  limitations: string[],
  problems: string[],
): void {
  const where = summariseIndices(group);
  if (group.sourceMode === "cut")
    problems.push(`${where}: _source is not kept whole, so lines cannot be answered`);
  if (group.sourceMode === "synthetic") {
    limitations.push(
      `${where}: _source is synthetic: key order, number spelling and array order are the index's`,
    );
  }
  const time = group.fields.get(timeName);
  if (time === undefined)
    limitations.push(`${where}: ${timeName} is not mapped; its documents are never in a range`);
  else if (unit === undefined && !isDateType(time.type)) {
    problems.push(`${where}: ${timeName} is of type ${time.type}, not date or date_nanos`);
  } else if (isUnsortable(group, timeName)) {
    problems.push(`${where}: ${timeName} has no doc_values, so lines cannot be sorted by it`);
  } else if (isUnindexed(group, timeName) && !product.searchesDocValues) {
    problems.push(
      `${where}: ${timeName} is not indexed, and ${product.name} ${product.version} finds nothing by it`,
    );
  }
  const severity = layout.severity.map(({ field }) => field);
  for (const [part, names] of Object.entries({ ...pickLineFields(layout), severity })) {
    const [field] = names.flatMap((name) => findField(group, name) ?? []);
    if (field === undefined) {
      if (names.every((name) => isDynamicallyIndexed(group, name))) continue;
      limitations.push(
        `${where}: ${part} (${names.join(", ")}) is not mapped; filters on it read every line of the range`,
      );
    } else if (!field.indexed) {
      limitations.push(
        `${where}: ${field.name} is not searchable; filters on ${part} read every line of the range`,
      );
    } else if (part !== "severity" && field.type === "keyword" && !product.listsIgnored) {
      const dropped = Number.isFinite(field.ignoreAbove)
        ? `drops values over ${field.ignoreAbove} characters`
        : "may have dropped long values while it had an ignore_above";
      limitations.push(
        `${where}: ${field.name} ${dropped}, and ${product.name} does not list them; ${part}: (contains) reads every line of the range`,
      );
    }
  }
  const told = layout.severity.filter(({ field }) => findField(group, field) !== undefined);
  const silent = told.filter(({ field: name, at_least, values }) => {
    const field = findField(group, name);
    return at_least === undefined && values === undefined && field !== undefined && isNumeric(field);
  });
  if (told.length > 0 && silent.length === told.length) {
    const names = silent.map(({ field }) => field);
    limitations.push(
      `${where}: ${formatNames(names)} holds numbers, which say nothing of the severity in the layout ${layout.name}; a profile of your own can (at_least)`,
    );
  }
  // The time is bounded by its column.
  const blind = listUnsearchable(group).filter((name) => name !== timeName);
  if (blind.length > 0) {
    limitations.push(
      `${where}: ${formatNames(blind)} cannot be searched; filters on them read every line of the range`,
    );
  }
  const rooted = listFlatRoots(group, product);
  if (rooted.length > 0) {
    limitations.push(
      `${where}: ${formatNames(rooted)} is flat_object; filters on its keys read every line that has any`,
    );
  }
}

const pickLineFields = ({ message, hostname, group }: LogLayout) => ({ message, hostname, group });

/** The topmost of what the mapping keeps out of the index, and what it leaves to chance below them. */
function listUnsearchable({ fields }: IndexGroup): readonly string[] {
  const blind = [...fields.values()].filter(
    (field) => field.aliasOf === undefined && (!field.indexed || field.dynamic === "false"),
  );
  const names = new Set(blind.map(({ name }) => name));
  return [...names].filter((name) => ![...names].some((other) => name.startsWith(`${other}.`)));
}

function listFlatRoots({ fields }: IndexGroup, product: Product): readonly string[] {
  if (product.name !== "OpenSearch") return [];
  return [...fields.values()].filter(({ type }) => type === "flat_object").map(({ name }) => name);
}

/** @throws {TenantFilterError} */
function buildTenantQuery({ where }: LogSource, { groups }: LayoutGroup): Query {
  if (where === undefined) return matchAll;
  const tenantFilter = parseTenantFilter(where);
  return anyOf(
    groups.map((group) =>
      allOf([buildIndicesQuery(group.indices), compileTenantFilter(tenantFilter, group)]),
    ),
  );
}

async function findNewestLine(
  backend: string,
  source: LogSource,
  { time, unit, groups }: LayoutGroup,
  tenantFilter: Query,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const own = groups.length === 0 ? matchAll : buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const body = {
    size: 1,
    track_total_hits: false,
    query: allOf([{ exists: { field: time } }, own, tenantFilter]),
    sort: [
      {
        [time]: { order: "desc", unmapped_type: "date", ...(unit === undefined && { numeric_type: "date" }) },
      },
    ],
  };
  const answer = await searchComplete(backend, client, source.index, body, signal);
  const sort = answer.hits[0]?.sort;
  if (sort === undefined) return undefined;
  return unit === undefined ? fromMillis(Number(sort)) : createNumberColumn(time, unit).toInstant(sort);
}

async function countUntimed(
  backend: string,
  source: LogSource,
  { time, groups }: LayoutGroup,
  tenantFilter: Query,
  { opaque }: IndexMetadata,
  client: ElasticClient,
  signal: AbortSignal,
): Promise<number> {
  if (opaque) return 0;
  const own = buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const query = allOf([not({ exists: { field: time } }), own, tenantFilter]);
  const body = { size: 0, track_total_hits: true, query };
  return (await searchComplete(backend, client, source.index, body, signal)).total ?? 0;
}
