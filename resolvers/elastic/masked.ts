// OpenSearch can mask fields from a user: documents and columns then show digests, and the index finds nothing by either
// value, without a word. For `readout check`: a value that a column shows and no search finds is one.
import { z } from "zod";
import { BackendError } from "../../src/errors.ts";
import type { Door } from "./door.ts";
import type { Knowledge } from "./mapping.ts";
import { encodePattern, type Query, searchOptions } from "./query.ts";
import { listed } from "./search.ts";

/** Fields of one request: each is an aggregation. */
const most = 200;
/** Documents of each shard that are looked at. */
const looked = 200;

const shown = z.object({ values: z.object({ buckets: z.array(z.object({ key: z.unknown() })) }) });
const counted = z.object({ doc_count: z.number() });

/** @throws {BackendError} */
export async function findMaskedProblems(
  door: Door,
  pattern: string,
  knowledge: Knowledge,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!door.hasUser || (await door.product(signal)).name !== "OpenSearch") return [];
  const masked: string[] = [];
  const names = columns(knowledge);
  for (let at = 0; at < names.length; at += most)
    masked.push(...(await findMasked(door, pattern, names.slice(at, at + most), signal)));
  if (masked.length === 0) return [];
  return [`${listed(masked)}: masked for this user, so queries do not find the values that are shown`];
}

/** Keywords that are so wherever they are mapped. */
function columns({ groups }: Knowledge): readonly string[] {
  const names = new Map<string, boolean>();
  for (const { fields } of groups) {
    for (const {
      name,
      type,
      indexed,
      docValues,
      rewritten,
      nested,
      root,
      aliasOf,
      runtime,
    } of fields.values()) {
      const isOwn = nested === undefined && root === undefined && aliasOf === undefined && !runtime;
      const isColumn = type === "keyword" && indexed && docValues && !rewritten && isOwn;
      names.set(name, isColumn && names.get(name) !== false);
    }
  }
  return [...names].flatMap(([name, isColumn]) => (isColumn ? [name] : []));
}

async function findMasked(
  door: Door,
  pattern: string,
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
    const { aggregations } = Object(await ask({ track_total_hits: false, aggs: numbered }));
    return aggs.map((_, at) => form.safeParse(Object(aggregations)[`f${at}`]).data);
  };
  try {
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
  } catch (error) {
    // What keeps a search from being answered is told elsewhere.
    if (error instanceof BackendError && error.failure !== "timeout") return [];
    throw error;
  }
}
