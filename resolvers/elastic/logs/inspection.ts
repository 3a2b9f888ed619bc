// What `readout check` tells of a source of log lines: the layout of each group of indices, what a layout cannot carry, by
// which fields these indices cannot narrow, and whether the wall holds.

import { fromMillis, type Instant } from "../../../src/core/time.ts";
import type { LogSource, SourceReport } from "../../../src/store/store.ts";
import type { Door } from "../client/client.ts";
import type { Product } from "../client/product.ts";
import { all, any, every, inIndices, isRemote, not, type Query } from "../client/query-dsl.ts";
import type { Part } from "../layout/layout-groups.ts";
import type { LogProfile } from "../layout/log-layout.ts";
import { keptStreams } from "../mapping/index-patterns.ts";
import {
  findField,
  type IndexGroup,
  isDate,
  isIndexedAsItComes,
  isUnindexed,
  isUnsortable,
  type Knowledge,
  nameGroup,
  opaqueKnowledge,
} from "../mapping/mapping.ts";
import { isNumeric } from "../query/comparison-compiler.ts";
import { compileWhere, parseWhere, WhereError } from "../query/tenant-filter.ts";
import { numberClock } from "../query/time-field.ts";
import { findRestrictions } from "../search/access-restrictions.ts";
import type { Catalog } from "../search/mapping-cache.ts";
import { isTimeless, timesOf } from "../search/missing-time.ts";
import {
  findShardProblem,
  listed,
  needsMapping,
  searchWhole,
  unreachableProblems,
} from "../search/search.ts";

/** @throws {BackendError} */
export async function reportLogs(
  backend: string,
  source: LogSource,
  door: Door,
  catalog: Catalog,
  signal: AbortSignal,
): Promise<SourceReport> {
  const limitations: string[] = [];
  const problems: string[] = [];
  if (isRemote(source.index)) {
    problems.push(...unreachableProblems(source.index, opaqueKnowledge));
    return { profile: source.profile, limitations, problems };
  }
  const product = await door.product(signal);
  const knowledge = await catalog.refresh(source.index, signal);
  const parts = await catalog.parts(source, knowledge, signal);
  const names = [...new Set(parts.map(({ profile }) => profile.name))];
  if (knowledge.opaque) {
    limitations.push(
      `the mapping may not be read (it ${needsMapping}), so every query reads all lines of its range`,
    );
  } else if (knowledge.indices.size === 0) {
    problems.push(`no open index matches ${source.index}`);
  }
  problems.push(...unreachableProblems(source.index, knowledge));
  limitations.push(...keptStreams(source.index, knowledge.indices));
  for (const { indices, reason } of await catalog.guesses(source, knowledge, signal))
    limitations.push(`${indices}: no known layout is recognised; ${reason}`);
  if (parts.length > 1) {
    for (const { profile, groups } of parts)
      limitations.push(`${groupNames(groups)}: read as ${profile.name}`);
  }
  for (const profile of new Set(parts.map((part) => part.profile))) {
    limitations.push(...profile.lacks.map((lack) => `${profile.name}: ${lack}`));
  }
  for (const part of parts) {
    for (const group of part.groups) describeGroup(group, part, product, limitations, problems);
  }
  if (source.where !== undefined) {
    try {
      const wall = parseWhere(source.where);
      if (knowledge.opaque)
        throw new WhereError("where: the mapping may not be read, so the wall cannot be proved");
      for (const group of knowledge.groups) compileWhere(wall, group);
    } catch (error) {
      if (!(error instanceof WhereError)) throw error;
      problems.push(error.message);
    }
  }
  const unread = await findShardProblem(backend, source.index, knowledge, door, signal);
  if (unread !== undefined) problems.push(unread);
  if (await isTimeless(backend, source.index, parts, door, signal)) {
    const times = listed(timesOf(parts));
    problems.push(
      `no document of ${source.index} shows ${times}, so its lines are in no range: another profile, or hidden from this user`,
    );
  }
  const consequence = "filters on them read every line of the range";
  limitations.push(...(await findRestrictions(door, source.index, knowledge, consequence, signal)));
  let newest: Instant | undefined;
  if (problems.length === 0) {
    for (const part of parts) {
      const wall = wallOf(source, part);
      const found = await newestLine(backend, source, part, wall, door, signal);
      if (found !== undefined && (newest === undefined || found > newest)) newest = found;
      const untimed = await countUntimed(backend, source, part, wall, knowledge, door, signal);
      if (untimed > 0) {
        limitations.push(
          `${untimed} documents have no ${part.time} and are in no range (profile ${part.profile.name})`,
        );
      }
    }
  }
  return {
    profile: names.join(", "),
    ...(!knowledge.opaque && { indices: knowledge.indices.size }),
    newest,
    limitations,
    problems,
  };
}

function groupNames(groups: readonly IndexGroup[]): string {
  return listed(groups.map(nameGroup));
}

function describeGroup(
  group: IndexGroup,
  { profile, time: timeName, unit }: Part,
  product: Product,
  limitations: string[],
  problems: string[],
): void {
  const where = nameGroup(group);
  if (group.source === "cut")
    problems.push(`${where}: _source is not kept whole, so lines cannot be answered`);
  if (group.source === "synthetic") {
    limitations.push(
      `${where}: _source is synthetic: key order, number spelling and array order are the index's`,
    );
  }
  const time = group.fields.get(timeName);
  if (time === undefined)
    limitations.push(`${where}: ${timeName} is not mapped; its documents are never in a range`);
  else if (unit === undefined && !isDate(time.type)) {
    problems.push(`${where}: ${timeName} is of type ${time.type}, not date or date_nanos`);
  } else if (isUnsortable(group, timeName)) {
    problems.push(`${where}: ${timeName} has no doc_values, so lines cannot be sorted by it`);
  } else if (isUnindexed(group, timeName) && !product.searchesColumns) {
    problems.push(
      `${where}: ${timeName} is not indexed, and ${product.name} ${product.version} finds nothing by it`,
    );
  }
  const severity = profile.severity.map(({ field }) => field);
  for (const [part, names] of Object.entries({ ...lineFields(profile), severity })) {
    const [field] = names.flatMap((name) => findField(group, name) ?? []);
    if (field === undefined) {
      if (names.every((name) => isIndexedAsItComes(group, name))) continue;
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
  const told = profile.severity.filter(({ field }) => findField(group, field) !== undefined);
  const silent = told.filter(({ field: name, at_least, values }) => {
    const field = findField(group, name);
    return at_least === undefined && values === undefined && field !== undefined && isNumeric(field);
  });
  if (told.length > 0 && silent.length === told.length) {
    const names = silent.map(({ field }) => field);
    limitations.push(
      `${where}: ${listed(names)} holds numbers, which say nothing of the severity in the layout ${profile.name}; a profile of your own can (at_least)`,
    );
  }
  // The time is bounded by its column.
  const blind = unsearchable(group).filter((name) => name !== timeName);
  if (blind.length > 0) {
    limitations.push(
      `${where}: ${listed(blind)} cannot be searched; filters on them read every line of the range`,
    );
  }
  const rooted = flatRoots(group, product);
  if (rooted.length > 0) {
    limitations.push(
      `${where}: ${listed(rooted)} is flat_object; filters on its keys read every line that has any`,
    );
  }
}

const lineFields = ({ message, hostname, group }: LogProfile) => ({ message, hostname, group });

/** The topmost of what the mapping keeps out of the index, and what it leaves to chance below them. */
function unsearchable({ fields }: IndexGroup): readonly string[] {
  const blind = [...fields.values()].filter(
    (field) => field.aliasOf === undefined && (!field.indexed || field.dynamic === "false"),
  );
  const names = new Set(blind.map(({ name }) => name));
  return [...names].filter((name) => ![...names].some((other) => name.startsWith(`${other}.`)));
}

function flatRoots({ fields }: IndexGroup, product: Product): readonly string[] {
  if (product.name !== "OpenSearch") return [];
  return [...fields.values()].filter(({ type }) => type === "flat_object").map(({ name }) => name);
}

/** @throws {WhereError} */
function wallOf({ where }: LogSource, { groups }: Part): Query {
  if (where === undefined) return all;
  const wall = parseWhere(where);
  return any(groups.map((group) => every([inIndices(group.indices), compileWhere(wall, group)])));
}

async function newestLine(
  backend: string,
  source: LogSource,
  { time, unit, groups }: Part,
  wall: Query,
  door: Door,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const own = groups.length === 0 ? all : inIndices(groups.flatMap(({ indices }) => indices));
  const body = {
    size: 1,
    track_total_hits: false,
    query: every([{ exists: { field: time } }, own, wall]),
    sort: [
      {
        [time]: { order: "desc", unmapped_type: "date", ...(unit === undefined && { numeric_type: "date" }) },
      },
    ],
  };
  const answer = await searchWhole(backend, door, source.index, body, signal);
  const sort = answer.hits[0]?.sort;
  if (sort === undefined) return undefined;
  return unit === undefined ? fromMillis(Number(sort)) : numberClock(time, unit).instantOf(sort);
}

async function countUntimed(
  backend: string,
  source: LogSource,
  { time, groups }: Part,
  wall: Query,
  { opaque }: Knowledge,
  door: Door,
  signal: AbortSignal,
): Promise<number> {
  if (opaque) return 0;
  const own = inIndices(groups.flatMap(({ indices }) => indices));
  const query = every([not({ exists: { field: time } }), own, wall]);
  const body = { size: 0, track_total_hits: true, query };
  return (await searchWhole(backend, door, source.index, body, signal)).total ?? 0;
}
