// Finds the fields that are masked for this user. OpenSearch can mask fields without an error: documents and columns then show
// digests, and a search finds nothing by either value. So a value that an aggregation returns and a search does not find is a
// digest.
import { z } from "zod";
import { requireKey } from "../../../src/core/collections.ts";
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { encodePattern, type Query, searchOptions } from "../client/query-dsl.ts";
import type { IndexGroup, IndexMetadata } from "../mapping/mapping.ts";
import { requireComplete } from "./search.ts";

/** Documents of each shard that a probe looks at. */
const sampledPerShard = 200;

/** Types whose aggregated values can be searched as they are. */
const verbatimTypes = new Set(["keyword", "long", "integer", "short", "byte"]);

/** The fields that can be probed. */
export function listVerbatimColumns({ groups }: IndexMetadata): readonly string[] {
  const names = new Set(groups.flatMap(({ fields }) => [...fields.keys()]));
  return [...names].filter((name) => isVerbatimColumn(name, groups));
}

/** Whether a field has the same one of these types wherever it is mapped, with a column of its own. */
function isVerbatimColumn(name: string, groups: readonly IndexGroup[]): boolean {
  const mapped = groups.flatMap(({ fields }) => fields.get(name) ?? []);
  return (
    mapped.length > 0 &&
    mapped.every(
      (field) =>
        field.type === mapped[0]?.type &&
        verbatimTypes.has(field.type) &&
        field.indexed &&
        field.docValues &&
        !field.hasCustomAnalysis &&
        field.nested === undefined &&
        field.flattenedRoot === undefined &&
        field.aliasOf === undefined &&
        !field.runtime,
    )
  );
}

/** Whether a field is masked; undefined where no document that was looked at has a value of it. */
type MaskProbe = Promise<boolean | undefined>;

/** What was found of each field in one state of the mappings. */
const maskProbes = new WeakMap<IndexMetadata, Map<string, MaskProbe>>();

/**
 * Whether each of these fields that can be probed is masked, asked once for each state of the mappings. A field without values is
 * asked again with the next search, since they may have come.
 */
export function probeFields(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  named: ReadonlySet<string>,
): readonly MaskProbe[] {
  const known = maskProbes.get(metadata) ?? new Map<string, MaskProbe>();
  maskProbes.set(metadata, known);
  return [...named]
    .filter((name) => isVerbatimColumn(name, metadata.groups))
    .map((name) => {
      const probed = known.get(name);
      if (probed !== undefined) return probed;
      // Not the first caller's signal, since others wait for the same response. The client's own deadline bounds it.
      const probe = probeMask(client, pattern, name, new AbortController().signal);
      known.set(name, probe);
      const forget = () => known.delete(name);
      probe.then((masked) => masked === undefined && forget(), forget);
      return probe;
    });
}

/** Probes a field in the first documents that have it, which may be few. `exists` finds them, masked or not. */
async function probeMask(
  client: ElasticClient,
  pattern: string,
  field: string,
  signal: AbortSignal,
): MaskProbe {
  return (await probeSample(client, pattern, { exists: { field } }, [field], signal)).get(field);
}

/** What one probe needs. */
interface Probe {
  readonly client: ElasticClient;
  readonly pattern: string;
  readonly signal: AbortSignal;
}

const topValueForm = z.object({
  values: z.object({ buckets: z.array(z.object({ key: z.union([z.string(), z.number()]) })) }),
});
const countForm = z.object({ doc_count: z.number() });
const totalForm = z.object({ hits: z.object({ total: z.object({ value: z.number() }) }) });
/** Where no shard is searched, an answer has no aggregations. */
const unsearchedForm = z.object({ _shards: z.object({ total: z.literal(0) }) });
const completenessForm = z.object({
  timed_out: z.boolean(),
  _shards: z.object({ total: z.number(), failed: z.number() }),
});

/** Whether each field is masked in the first documents that a query finds; without the fields that have no value there. */
export async function probeSample(
  client: ElasticClient,
  pattern: string,
  query: Query,
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, boolean>> {
  const probe: Probe = { client, pattern, signal };
  // By values, not by ordinals, which the columns of a masked field do not have.
  const values = await runAggregations(
    probe,
    query,
    names.map((field) => ({
      filter: { match_all: {} },
      aggs: { values: { terms: { field, size: 1, execution_hint: "map" } } },
    })),
    topValueForm,
  );
  const found = new Map<string, boolean>();
  const terms = names.flatMap((field, at): readonly { field: string; term: Query }[] => {
    const key = values[at]?.values.buckets[0]?.key;
    if (key !== undefined) found.set(field, false);
    return typeof key === "string" ? [{ field, term: { term: { [field]: key } } }] : [];
  });
  if (terms.length === 0) return found;
  const counts = await runAggregations(
    probe,
    query,
    terms.map(({ term }) => ({ filter: term })),
    countForm,
  );
  for (const [at, { field, term }] of terms.entries()) {
    if ((counts[at]?.doc_count ?? 0) > 0) continue;
    // Another copy of the shard may have shown other documents.
    const { hits } = await searchSample(probe, { track_total_hits: 1, query: term }, totalForm);
    if (hits.total.value === 0) found.set(field, true);
  }
  return found;
}

/** The results of several aggregations over the sample, in order; none where no shard is searched. */
async function runAggregations<T>(
  probe: Probe,
  query: Query,
  aggs: readonly object[],
  form: z.ZodType<T>,
): Promise<readonly T[]> {
  const named = new Map(aggs.map((agg, at) => [`f${at}`, agg]));
  const names = [...named.keys()];
  const body = { track_total_hits: false, query, aggs: Object.fromEntries(named) };
  const results = z.object({ aggregations: z.record(z.enum(names), form) });
  const answer = await searchSample(probe, body, z.union([unsearchedForm, results]));
  if (!("aggregations" in answer)) return [];
  const found = new Map(Object.entries(answer.aggregations));
  return names.map((name) => requireKey(found, name));
}

/** @throws {BackendError} also where the answer is of another form or not complete: it would pass for one without a mask */
async function searchSample<T>(
  { client, pattern, signal }: Probe,
  body: object,
  form: z.ZodType<T>,
): Promise<T> {
  const path = `/${encodePattern(pattern)}/_search`;
  const text = JSON.stringify({ size: 0, terminate_after: sampledPerShard, ...body });
  const answer = await client.sendJson({ method: "POST", path, query: searchOptions, body: text }, signal);
  const { data, error } = completenessForm.and(form).safeParse(answer);
  if (data === undefined) {
    const reason = "an answer that is not a _search response";
    throw new BackendError(client.backend, "malformed", reason, { cause: error });
  }
  const { timed_out: timedOut, _shards: shards } = data;
  requireComplete(client.backend, { timedOut, terminatedEarly: false, shards }, false);
  return data;
}
