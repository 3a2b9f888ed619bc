// What security hides from a user without a word. Elasticsearch tells of documents and fields that it keeps back. OpenSearch
// does not; and it can mask fields: documents and columns then show digests, and the index finds nothing by either value. A
// value that a column shows and no search finds is a digest.
import { z } from "zod";
import { BackendError, unsupported } from "../../../src/core/errors.ts";
import type { LogSource } from "../../../src/store/store.ts";
import { orAborted } from "../../http/guard.ts";
import type { Door } from "../client/client.ts";
import { all, encodePattern, type Query, searchOptions } from "../client/query-dsl.ts";
import type { Part } from "../layout/layout-groups.ts";
import type { Knowledge } from "../mapping/mapping.ts";
import { namesIn, parseWhere } from "../query/tenant-filter.ts";
import { isTimeless, timesOf } from "./missing-time.ts";
import { listed, refuseWall } from "./search.ts";

/** Fields of one request: each is an aggregation. */
const most = 200;
/** Documents of each shard that are looked at. */
const looked = 200;

const shown = z.object({ values: z.object({ buckets: z.array(z.object({ key: z.unknown() })) }) });
const counted = z.object({ doc_count: z.number() });

/**
 * What the source keeps from this user, for `readout check`; of masked fields also the `consequence`.
 * @throws {BackendError}
 */
export async function findRestrictions(
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  return [
    ...(await findScrollLimits(door, signal)),
    ...(await findHidden(door, signal)),
    ...(await findMaskedFields(door, pattern, knowledge, consequence, signal)),
  ];
}

/** The names of masked fields, of those that the first documents have. */
async function findMaskedFields(
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!(await masks(door, signal))) return [];
  const masked: string[] = [];
  const names = columns(knowledge);
  for (let at = 0; at < names.length; at += most) {
    const found = findMasked(door, pattern, all, names.slice(at, at + most), signal);
    // What keeps a search from being answered is told elsewhere.
    masked.push(...(await found.catch(unlessLate)));
  }
  if (masked.length === 0) return [];
  return [`${listed(masked)}: masked for this user; ${consequence}`];
}

const privileges = z.object({
  indices: z.array(
    z.object({ names: z.array(z.string()), field_security: z.unknown(), query: z.unknown() }).partial(),
  ),
});

/** What Elasticsearch tells a user of his own rights. */
async function findHidden(door: Door, signal: AbortSignal): Promise<readonly string[]> {
  if (!door.hasUser || (await door.product(signal)).name !== "Elasticsearch") return [];
  const request = { method: "GET", path: "/_security/user/_privileges" } as const;
  const answer = await door.sendJson(request, signal).catch(unlessLate);
  const { indices = [] } = privileges.safeParse(answer).data ?? {};
  return indices.flatMap(({ names = [], field_security, query }) => {
    const kept = [
      ...(query === undefined ? [] : ["documents"]),
      ...(field_security === undefined ? [] : ["fields"]),
    ];
    if (kept.length === 0) return [];
    return [
      `${listed(names)}: security keeps ${kept.join(" and ")} back from this user, which are as if they were not there`,
    ];
  });
}

function unlessLate(error: unknown): readonly string[] {
  if (error instanceof BackendError && error.failure !== "timeout") return [];
  throw error;
}

/** Of one state of the mappings: the fields that can be looked for, and what was found, by those that were. */
interface Looked {
  readonly columns: readonly string[];
  readonly found: Map<string, Promise<readonly string[]>>;
}
const looks = new WeakMap<Knowledge, Looked>();

/** Which of these names are masked; looked for once for each state of the mappings. @throws {BackendError} */
async function maskedAmong(
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  named: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!(await masks(door, signal))) return [];
  const known = looks.get(knowledge) ?? { columns: columns(knowledge), found: new Map() };
  looks.set(knowledge, known);
  const names = known.columns.filter((name) => named.has(name));
  if (names.length === 0) return [];
  const key = names.join();
  let finding = known.found.get(key);
  if (finding === undefined) {
    // Not the first caller's signal: others wait for the same answer. The door's own deadline bounds it.
    finding = findEachMasked(door, pattern, names, new AbortController().signal);
    known.found.set(key, finding);
    finding.catch(() => known.found.delete(key));
  }
  return orAborted(finding, signal);
}

/**
 * A wall of `!=` would let all lines through where the field is masked, one of `=` none.
 * @throws {Refused}
 */
export async function refuseMaskedWall(
  backend: string,
  door: Door,
  { index, where }: { readonly index: string; readonly where?: string | undefined },
  knowledge: Knowledge,
  signal: AbortSignal,
): Promise<void> {
  if (where === undefined) return;
  const names = namesIn(
    refuseWall(backend, () => parseWhere(where)),
    knowledge.groups,
  );
  const masked = await maskedAmong(door, index, knowledge, new Set(names), signal);
  if (masked.length > 0) throw unsupported(backend, "a where on a masked field");
}

/** These parts. @throws {Refused} where security or another layout hides what lines are bounded by */
export async function shownParts(
  backend: string,
  source: LogSource,
  knowledge: Knowledge,
  parts: readonly Part[],
  door: Door,
  signal: AbortSignal,
): Promise<readonly Part[]> {
  await refuseMaskedWall(backend, door, source, knowledge, signal);
  if (!(await isTimeless(backend, source.index, parts, door, signal))) return parts;
  throw unsupported(backend, `documents without ${timesOf(parts).join(", ")}`);
}

/** Whether a query narrows by a masked field, in any of its forms, so that it may leave out what is meant. */
export async function isBlinded(
  query: Query,
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  signal: AbortSignal,
): Promise<boolean> {
  if (!(await masks(door, signal))) return false;
  const used = wordsIn(query);
  const forms = knowledge.groups.flatMap(({ fields }) =>
    used.flatMap((name) => [name, ...(fields.get(name)?.multi ?? [])]),
  );
  return (await maskedAmong(door, pattern, knowledge, new Set(forms), signal).catch(unlessLate)).length > 0;
}

/** For what cannot be read without its filters. @throws {Refused} where one is on a masked field */
export async function refuseBlinded(
  backend: string,
  query: Query,
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  signal: AbortSignal,
): Promise<void> {
  if (await isBlinded(query, door, pattern, knowledge, signal))
    throw unsupported(backend, "a filter on a masked field");
}

/** The names of fields among them. */
function wordsIn(query: unknown): readonly string[] {
  if (typeof query === "string") return [query];
  if (typeof query !== "object" || query === null) return [];
  return Object.entries(query).flatMap(([key, value]) => [key, ...wordsIn(value)]);
}

const masks = async (door: Door, signal: AbortSignal): Promise<boolean> =>
  door.hasUser && (await door.product(signal)).name === "OpenSearch";

/** Types whose values come back as they are searched. */
const countable = new Set(["keyword", "long", "integer", "short", "byte"]);

/** Fields that have one of these types wherever they are mapped. */
function columns({ groups }: Knowledge): readonly string[] {
  const types = new Map<string, string | undefined>();
  for (const { fields } of groups) {
    for (const field of fields.values()) {
      const { name, type, indexed, docValues, rewritten, nested, root, aliasOf, runtime } = field;
      const isOwn = nested === undefined && root === undefined && aliasOf === undefined && !runtime;
      const isColumn = countable.has(type) && indexed && docValues && !rewritten && isOwn;
      const isAlike = !types.has(name) || types.get(name) === type;
      types.set(name, isColumn && isAlike ? type : undefined);
    }
  }
  return [...types].flatMap(([name, type]) => (type === undefined ? [] : [name]));
}

/** In the first documents that have each, of which there may be few. `exists` finds them, masked or not. */
async function findEachMasked(
  door: Door,
  pattern: string,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = names.map((field) => findMasked(door, pattern, { exists: { field } }, [field], signal));
  return (await Promise.all(found)).flat();
}

/** Those that are masked in the first documents that a query finds. */
async function findMasked(
  door: Door,
  pattern: string,
  query: Query,
  names: readonly string[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const ask = async (body: object): Promise<unknown> => {
    const path = `/${encodePattern(pattern)}/_search`;
    const text = JSON.stringify({ size: 0, terminate_after: looked, ...body });
    return door.sendJson({ method: "POST", path, query: searchOptions, body: text }, signal);
  };
  /** What one aggregation for each tells. */
  const askEach = async <T>(
    aggs: readonly object[],
    form: z.ZodType<T>,
  ): Promise<readonly (T | undefined)[]> => {
    const numbered = Object.fromEntries(aggs.map((agg, at) => [`f${at}`, agg]));
    const { aggregations } = Object(await ask({ track_total_hits: false, query, aggs: numbered }));
    return aggs.map((_, at) => form.safeParse(Object(aggregations)[`f${at}`]).data);
  };
  // By values, not by ordinals, which the columns of a masked field do not have.
  const values = await askEach(
    names.map((field) => ({
      filter: { match_all: {} },
      aggs: { values: { terms: { field, size: 1, execution_hint: "map" } } },
    })),
    shown,
  );
  const terms = names.flatMap((field, at): readonly { field: string; term: Query }[] => {
    const key = values[at]?.values.buckets[0]?.key;
    return typeof key === "string" ? [{ field, term: { term: { [field]: key } } }] : [];
  });
  if (terms.length === 0) return [];
  const counts = await askEach(
    terms.map(({ term }) => ({ filter: term })),
    counted,
  );
  const masked: string[] = [];
  for (const [at, { field, term }] of terms.entries()) {
    if (counts[at]?.doc_count !== 0) continue;
    // Another copy of the shard may have shown other documents.
    const { hits } = Object(await ask({ track_total_hits: 1, query: term }));
    if (Object(Object(hits).total).value === 0) masked.push(field);
  }
  return masked;
}

/** What larger readings lack: scrolls are rights of their own on OpenSearch, asked for by one that does not exist. */
async function findScrollLimits(door: Door, signal: AbortSignal): Promise<readonly string[]> {
  if ((await door.product(signal)).name !== "OpenSearch") return [];
  const path = "/_search/scroll";
  const goOn = {
    method: "POST",
    path,
    body: JSON.stringify({ scroll: "1s", scroll_id: "readout" }),
  } as const;
  const end = { method: "DELETE", path, body: JSON.stringify({ scroll_id: ["readout"] }) } as const;
  const denied = async (request: typeof goOn | typeof end) => {
    try {
      await door.send(request, signal);
    } catch (error) {
      if (!(error instanceof BackendError)) throw error;
      if (error.failure === "denied") return true;
      if (error.failure !== "rejected") throw error;
    }
    return false;
  };
  const right = "indices:data/read/scroll";
  return [
    ...((await denied(goOn))
      ? [
          `large traces, and many lines of one millisecond, are errors without the cluster permission ${right}`,
        ]
      : []),
    ...((await denied(end))
      ? [`scrolls take up their place for a minute without the cluster permission ${right}/clear`]
      : []),
  ];
}
