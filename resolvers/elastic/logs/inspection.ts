// What `readout check` reports about a source of log lines: the layout of each group of indices, what a layout cannot express,
// the fields by which the indices cannot narrow, and whether the tenant filter is exact.
import { fromMillis, type Instant, selectNewest } from "../../../src/core/time.ts";
import type { SourceInspection } from "../../../src/store/inspection.ts";
import type { LogSource } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import { allOf, anyOf, buildIndicesQuery, isRemote, matchAll, not, type Query } from "../client/query-dsl.ts";
import type { LayoutGroup } from "../layout/layout-groups.ts";
import { listSeverityFields } from "../layout/log-layout.ts";
import { adviseOnCopies } from "../mapping/index-copies.ts";
import { explainIneffectiveExclusions } from "../mapping/index-patterns.ts";
import { findField, type IndexMetadata, opaqueMetadata } from "../mapping/mapping.ts";
import { isNumeric } from "../query/comparison-compiler.ts";
import {
  buildTenantQuery,
  compileTenantFilter,
  parseTenantFilter,
  TenantFilterError,
} from "../query/tenant-filter.ts";
import { createNumberColumn } from "../query/time-field.ts";
import { findRestrictions } from "../search/access-report.ts";
import { addNarrowWindows, addTenantFilterFault, type Findings, printFindings } from "../search/findings.ts";
import type { MappingCache } from "../search/mapping-cache.ts";
import { hasOnlyUntimedDocuments, listTimeFields } from "../search/missing-time.ts";
import {
  findShardProblem,
  formatNames,
  listUnreachableProblems,
  needsMapping,
  searchComplete,
} from "../search/search.ts";
import { inspectIndexGroup } from "./group-inspection.ts";

interface InspectionContext {
  readonly backend: string;
  readonly client: ElasticClient;
  readonly source: LogSource;
  readonly metadata: IndexMetadata;
  readonly layoutGroups: readonly LayoutGroup[];
  readonly findings: Findings;
  readonly signal: AbortSignal;
}

/** @throws {BackendError} */
export async function inspectLogSource(
  backend: string,
  source: LogSource,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<SourceInspection> {
  const findings: Findings = { limitations: [], problems: [] };
  findings.problems.push(...listUnreachableProblems(source.index, opaqueMetadata));
  if (findings.problems.length > 0) return { layout: source.layout, ...printFindings(findings) };
  const product = await client.detectProduct(signal);
  const metadata = await mappingCache.refresh(source.index, signal);
  const layoutGroups = await mappingCache.readLayoutGroups(source, metadata, signal);
  const context: InspectionContext = {
    backend,
    client,
    source,
    metadata,
    layoutGroups,
    findings,
    signal,
  };
  inspectIndices(context);
  for (const { groups, reason } of (await mappingCache.detectLayouts(source, metadata, signal)).guesses) {
    const indices = groups.flatMap((group) => group.indices);
    findings.limitations.push({
      indices: indices.length > 0 ? indices : [source.index],
      text: `no known layout is recognised; ${reason}`,
    });
  }
  inspectLayouts(context);
  for (const group of layoutGroups) {
    for (const indices of group.groups) inspectIndexGroup(indices, group, product, findings);
  }
  inspectTenantFilter(context);
  await inspectAccess(context);
  const newest = findings.problems.length === 0 ? await inspectDocuments(context) : undefined;
  return {
    layout: [...new Set(layoutGroups.map(({ layout }) => layout.name))].join(", "),
    ...(!metadata.opaque && { indices: metadata.indices.size }),
    newest,
    ...printFindings(findings),
  };
}

function inspectIndices({ source, metadata, findings }: InspectionContext): void {
  const { limitations, problems } = findings;
  if (metadata.opaque) {
    const reason = isRemote(source.index)
      ? "mappings of remote clusters cannot be read (those of a backend of its own can)"
      : `the mapping may not be read (it ${needsMapping})`;
    limitations.push(`${reason}, so every query reads all lines of its range`);
  } else if (metadata.indices.size === 0) {
    problems.push(`no open index matches ${source.index}`);
  }
  problems.push(...listUnreachableProblems(source.index, metadata));
  limitations.push(...explainIneffectiveExclusions(source.index, metadata.indices));
  addNarrowWindows(findings, metadata);
  if (metadata.copies.size > 0) {
    const advice = adviseOnCopies(source.index, metadata.copies, metadata.indices);
    const indices = [...metadata.copies.keys()];
    limitations.push({ indices, text: `copies of other indices, whose lines are shown twice; ${advice}` });
  }
}

function inspectLayouts({ layoutGroups, findings }: InspectionContext): void {
  const { limitations } = findings;
  if (layoutGroups.length > 1) {
    for (const { layout, groups } of layoutGroups) {
      const indices = groups.flatMap((group) => group.indices);
      limitations.push({ indices, text: `read as ${layout.name}` });
    }
  }
  for (const layout of new Set(layoutGroups.map((group) => group.layout))) {
    limitations.push(...layout.lacks.map((lack) => `${layout.name}: ${lack}`));
  }
}

function inspectTenantFilter({ source, metadata, findings }: InspectionContext): void {
  if (source.tenantFilter === undefined) return;
  try {
    const filter = parseTenantFilter(source.tenantFilter);
    if (metadata.opaque)
      throw new TenantFilterError("the mapping may not be read, so the filter cannot be proved exact");
    for (const group of metadata.groups) compileTenantFilter(filter, group);
  } catch (error) {
    addTenantFilterFault(findings, error);
  }
}

/** What the credentials may not read, and what security hides. */
async function inspectAccess(context: InspectionContext): Promise<void> {
  const { backend, client, source, metadata, layoutGroups, findings, signal } = context;
  const { limitations, problems } = findings;
  const shardProblem = await findShardProblem(backend, source.index, metadata, client, signal);
  if (shardProblem !== undefined) problems.push(shardProblem);
  // The documents of the tenant are not known where its filter does not hold.
  const isTenantKnown = findings.tenantFilterFault === undefined;
  if (isTenantKnown && (await hasOnlyUntimedDocuments(client, source, layoutGroups, signal))) {
    const times = formatNames(listTimeFields(layoutGroups));
    problems.push(
      `no document in ${source.index} has a readable time field (${times}): wrong layout, or hidden by field-level security`,
    );
  }
  const consequence = "filters on them read every line of the range";
  limitations.push(...(await findRestrictions(client, source.index, metadata, consequence, signal)));
}

/** Returns the time of the newest line, and reports documents without a time or without a severity that is read. */
async function inspectDocuments(context: InspectionContext): Promise<Instant | undefined> {
  const { source, layoutGroups, findings } = context;
  const newest: (Instant | undefined)[] = [];
  for (const group of layoutGroups) {
    const tenantQuery = buildTenantQuery(source.tenantFilter, group.groups);
    newest.push(await findNewestOfGroup(context, group, tenantQuery));
    const { layout, time } = group;
    const untimed = await countDocuments(context, group, [not({ exists: { field: time } }), tenantQuery]);
    if (untimed > 0) {
      findings.limitations.push(
        `${untimed} documents have no ${time} and are in no range (layout ${layout.name})`,
      );
    }
    const unread = await countUnreadNumbers(context, group, tenantQuery);
    if (unread > 0) {
      findings.limitations.push(
        `${unread} documents have no severity but a number at ${formatNames(layout.unread_numbers)}, which the layout ${layout.name} does not read; a custom layout can (at_least)`,
      );
    }
  }
  return selectNewest(newest);
}

/** The time of the newest line; undefined without lines. @throws {BackendError} @throws {TenantFilterError} */
export async function findNewestLine(
  backend: string,
  source: LogSource,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const metadata = await mappingCache.read(source.index, source.tenantFilter !== undefined, signal);
  const groups = await mappingCache.readLayoutGroups(source, metadata, signal);
  const place = { backend, client, source, signal };
  const found = await Promise.all(
    groups.map((group) =>
      findNewestOfGroup(place, group, buildTenantQuery(source.tenantFilter, group.groups)),
    ),
  );
  return selectNewest(found);
}

async function findNewestOfGroup(
  { backend, client, source, signal }: Pick<InspectionContext, "backend" | "client" | "source" | "signal">,
  { time, unit, groups }: LayoutGroup,
  tenantQuery: Query,
): Promise<Instant | undefined> {
  const own = groups.length === 0 ? matchAll : buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const body = {
    size: 1,
    track_total_hits: false,
    query: allOf([{ exists: { field: time } }, own, tenantQuery]),
    sort: [
      {
        [time]: { order: "desc", unmapped_type: "date", ...(unit === undefined && { numeric_type: "date" }) },
      },
    ],
  };
  const { hits } = await searchComplete(backend, client, source.index, body, signal);
  const sort = hits[0]?.sort;
  if (sort === undefined) return undefined;
  return unit === undefined ? fromMillis(Number(sort)) : createNumberColumn(time, unit).toInstant(sort);
}

/** The number of documents whose only severity is a number that the layout does not read. Asks only where one is mapped. */
async function countUnreadNumbers(
  context: InspectionContext,
  layoutGroup: LayoutGroup,
  tenantQuery: Query,
): Promise<number> {
  const { layout, groups } = layoutGroup;
  const isNumber = (field: string) => {
    const found = groups.flatMap((group) => findField(group, field) ?? []);
    return found.some(isNumeric);
  };
  const exist = (fields: readonly string[]) => anyOf(fields.map((field) => ({ exists: { field } })));
  const unread = layout.unread_numbers.filter(isNumber);
  if (unread.length === 0) return 0;
  const others = exist(listSeverityFields(layout.severity));
  return countDocuments(context, layoutGroup, [exist(unread), not(others), tenantQuery]);
}

/** The number of documents of a group that all of the queries match; 0 where the indices are unknown. */
async function countDocuments(
  { backend, client, source, metadata, signal }: InspectionContext,
  { groups }: LayoutGroup,
  queries: readonly Query[],
): Promise<number> {
  if (metadata.opaque) return 0;
  const own = buildIndicesQuery(groups.flatMap(({ indices }) => indices));
  const query = allOf([own, ...queries]);
  const body = { size: 0, track_total_hits: true, query };
  const { total } = await searchComplete(backend, client, source.index, body, signal);
  return total ?? 0;
}
