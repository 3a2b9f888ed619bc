// What the searches for a part's lines ask of the index: compiled once for each state of the mappings, not for each batch.
import { BackendError, unsupported } from "../../../src/core/errors.ts";
import type { Instant } from "../../../src/core/time.ts";
import type { Filter } from "../../../src/log-query/ast.ts";
import type { LogQuery, LogSource } from "../../../src/store/store.ts";
import type { Door } from "../client/client.ts";
import type { Product } from "../client/product.ts";
import { all, any, every, inIndices, not, type Query, weigh } from "../client/query-dsl.ts";
import type { Hit } from "../document/hit-scanner.ts";
import { isNumberedElsewhere, isPartedAlike, keyOf, type Part } from "../layout/layout-groups.ts";
import type { LogProfile } from "../layout/log-layout.ts";
import { isUnindexed, isUnsortable, type Knowledge } from "../mapping/mapping.ts";
import { compileFilter, limits, unnarrowed } from "../query/filter-compiler.ts";
import { type Clock, dateClock, nanosEra, numberClock, outsideNanosEra } from "../query/time-field.ts";
import { isBlinded } from "../search/access-restrictions.ts";
import type { Catalog } from "../search/mapping-cache.ts";
import { compileWall, refuseClosed, searchWhole } from "../search/search.ts";

/** One part of a source, as a query reads it. */
export interface Reading {
  readonly backend: string;
  readonly door: Door;
  readonly catalog: Catalog;
  readonly source: LogSource;
  readonly part: Part;
  /** Those that the source had when the reading began, this one included. */
  readonly parts: readonly Part[];
  readonly query: LogQuery;
  /** The source's `where`. */
  readonly wall: Filter | undefined;
  readonly signal: AbortSignal;
}

/** The indices behind a pattern are parted otherwise than a reader was told. */
export class Reparted extends Error {
  override readonly name = "Reparted";
}

/** How what is left of the lines is searched for, as long as the mappings stay what they are. */
export interface Plan {
  readonly knowledge: Knowledge;
  readonly profile: LogProfile;
  /** The fields of the filter by which the index cannot narrow. */
  readonly unnarrowed: () => readonly string[];
  readonly clock: Clock;
  readonly instantOf: (hit: Hit) => Instant;
  readonly body: (from: Instant, to: Instant, scrolled?: boolean) => object;
}

/**
 * Where not to narrow is asked, by the wall alone: the source has refused what the filter asks.
 * @throws {Reparted} @throws {Refused} where the lines cannot be read exactly
 */
export async function compilePlan(reading: Reading, whole: Knowledge, narrows: boolean): Promise<Plan> {
  const { backend, door, catalog, source, part, parts, query, wall, signal } = reading;
  refuseClosed(backend, whole);
  const renewed = await catalog.parts(source, whole, signal);
  const own = renewed.find((candidate) => keyOf(candidate) === keyOf(part));
  if (own === undefined || !isPartedAlike(parts, renewed)) throw new Reparted();
  const { profile, groups } = own;
  const knowledge: Knowledge = { ...whole, groups };
  const product = await door.product(signal);
  const filtered = compileFilter(query.filter, knowledge, profile, product);
  const walled = compileWall(backend, wall, knowledge);
  const both = every([walled, filtered]);
  const isBlind = await isBlinded(filtered, door, source.index, whole, signal);
  const narrowed = !narrows || isBlind || weigh(both).clauses > limits.allClauses ? walled : both;
  if (groups.some((group) => group.source === "cut")) {
    throw unsupported(backend, "documents whose _source is not kept whole");
  }
  // An index that is not known may hold any part's lines: every reader has to meet it.
  const ownIndices = inIndices(groups.flatMap(({ indices }) => indices));
  const unknown = not(inIndices([...whole.indices]));
  const within = renewed.length === 1 ? all : any([ownIndices, unknown]);
  const isNumbered = isNumberedElsewhere(own, renewed);
  const clock = await clockOf(reading, own, product, knowledge.opaque, within, isNumbered);
  const sort = clock.sort(query.order);
  // A range of dates cannot be asked of numbers, so each is asked where it belongs, and none of what is not known.
  const bounded = (range: Query): readonly Query[] =>
    isNumbered ? [any([every([ownIndices, range]), unknown])] : [range, ...(within === all ? [] : [within])];
  return {
    knowledge: whole,
    profile,
    unnarrowed: () => unnarrowed(query.filter, knowledge, profile, product),
    clock,
    instantOf: (hit) => sortedInstant(backend, hit, clock),
    body: (from, to, scrolled = false) => ({
      // A scroll refuses to go without its total.
      ...(scrolled ? {} : { track_total_hits: false }),
      query: { bool: { filter: [...bounded(clock.range(from, to)), narrowed] } },
      // Equal times make OpenSearch 2 lose hits of a scroll that is sorted by them alone (seen on 2.19); document
      // order loses none, and the time still comes along as the last sort value.
      sort: scrolled ? ["_doc", sort] : [sort],
    }),
  };
}

/** By what the part's lines are bounded and sorted. @throws {Refused} where that is not exact */
async function clockOf(
  { backend, door, source, query, signal }: Reading,
  { time, unit, groups }: Part,
  { searchesColumns }: Product,
  opaque: boolean,
  within: Query,
  isNumbered: boolean,
): Promise<Clock> {
  if (groups.some((group) => isUnsortable(group, time))) {
    throw unsupported(backend, `lines whose ${time} has no doc_values`);
  }
  if (!searchesColumns && groups.some((group) => isUnindexed(group, time))) {
    throw unsupported(backend, `lines whose ${time} is not indexed, on this version`);
  }
  if (unit !== undefined) return numberClock(time, unit);
  const types = new Set(groups.flatMap((group) => group.fields.get(time)?.type ?? []));
  const millis = types.delete("date") || opaque;
  const nanos = types.delete("date_nanos") || opaque;
  if (types.size > 0) throw unsupported(backend, `lines whose ${time} is of type ${[...types].join(", ")}`);
  if (nanos && isNumbered)
    throw unsupported(backend, `lines whose ${time} is date_nanos here and long there`);
  const { from, to } = query.range;
  if (millis && nanos && (from < nanosEra.from || to > nanosEra.to)) {
    // Such a range can be asked only as far as nanoseconds reach, which is all of it where nothing lies beyond.
    const beyond = any(outsideNanosEra(time));
    const body = { size: 1, track_total_hits: false, query: every([within, beyond]) };
    const { hits } = await searchWhole(backend, door, source.index, body, signal);
    const feature = "times before 1970 or after 2262 where some indices map the time as date_nanos";
    if (hits.length > 0) throw unsupported(backend, feature);
  }
  return dateClock(time, nanos);
}

function sortedInstant(backend: string, hit: Hit, clock: Clock): Instant {
  if (hit.sort === undefined || !/^-?\d+$/.test(hit.sort)) {
    throw new BackendError(backend, "malformed", `a hit of ${hit.index} without a time to sort by`);
  }
  return clock.instantOf(hit.sort);
}
