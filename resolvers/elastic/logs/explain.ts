// Explains how a query is executed. Whether the index decides a leaf follows from the bounds that the filter compiler makes of
// it, so the explanation cannot diverge from the execution. The reason follows from the mapping.

import { createPause } from "../../../src/core/async/turns.ts";
import { requireKey } from "../../../src/core/collections.ts";
import { type Compare, type Filter, listComparisons, type Operator } from "../../../src/log-query/ast.ts";
import type { LeafPlan, LogSource, SourcePlan } from "../../../src/store/logs.ts";
import type { ElasticClient } from "../client/client.ts";
import type { Product } from "../client/product.ts";
import { matchAll, matchNone, type Query } from "../client/query-dsl.ts";
import { type LogLayout, listSeverityFields } from "../layout/log-layout.ts";
import type { IndexedField } from "../mapping/indexed-field.ts";
import {
  findField,
  type IndexGroup,
  type IndexMetadata,
  isAbsentSoFar,
  isDynamic,
} from "../mapping/mapping.ts";
import { isNumeric } from "../query/comparison-compiler.ts";
import {
  combineGroupQueries,
  compileBounds,
  compileByGroup,
  listUnnarrowed,
  queryLimits,
} from "../query/filter-compiler.ts";
import type { MappingCache } from "../search/mapping-cache.ts";

/** Indices that are read by one layout; a `LayoutGroup` as far as it matters here. */
interface ExplainedGroup {
  readonly layout: LogLayout;
  readonly groups: readonly IndexGroup[];
}

/** Reads mappings and, for `auto`, a few documents. @throws {BackendError} */
export async function explainSource(
  source: LogSource,
  filter: Filter,
  client: ElasticClient,
  mappingCache: MappingCache,
  signal: AbortSignal,
): Promise<SourcePlan> {
  const product = await client.detectProduct(signal);
  const metadata = await mappingCache.read(source.index, source.tenantFilter !== undefined, signal);
  const layoutGroups = await mappingCache.readLayoutGroups(source, metadata, signal);
  return {
    source,
    layout: [...new Set(layoutGroups.map(({ layout }) => layout.name))].join(", "),
    indices: metadata.opaque ? undefined : [...metadata.indices].sort(),
    leaves: await explainLeaves(filter, layoutGroups, metadata, product, signal),
    notes: await listNotes(source, filter, layoutGroups, metadata, product, signal),
  };
}

/**
 * How each leaf is decided in each group of indices, from left to right. Groups with the same explanation are one plan. With an
 * opaque mapping, the documents decide every leaf. @throws the signal's reason
 */
export async function explainLeaves(
  filter: Filter,
  layoutGroups: readonly ExplainedGroup[],
  { opaque }: Pick<IndexMetadata, "opaque">,
  product: Product,
  signal: AbortSignal,
): Promise<readonly LeafPlan[]> {
  const leaves = listComparisons(filter);
  if (opaque) {
    const why = "the mapping may not be read, so the index cannot be used";
    return leaves.map((leaf) => ({ leaf, by: "documents", why, indices: [] }));
  }
  const groups = layoutGroups.flatMap(listGroups);
  const pause = createPause(signal);
  const explained: LeafPlan[] = [];
  for (const leaf of leaves) {
    const plans = new Map<string, LeafPlan & { readonly indices: string[] }>();
    for (const { layout, group } of groups) {
      const { lower, upper } = compileBounds(leaf, group, layout, product);
      const by = isSameQuery(lower, upper) ? "index" : upper === matchAll ? "documents" : "candidates";
      const why = by === "index" ? explainExactLeaf(upper) : explainInexactLeaf(leaf, group, layout, product);
      const known = plans.get(by + why);
      if (known === undefined) plans.set(by + why, { leaf, by, why, indices: [...group.indices] });
      else known.indices.push(...group.indices);
      await pause();
    }
    explained.push(...plans.values());
  }
  return explained;
}

function listGroups({ layout, groups }: ExplainedGroup) {
  return groups.map((group) => ({ layout, group }));
}

/** What keeps the index from narrowing by the leaves of a filter, each reason once and without the names of indices. */
export function explainUnnarrowed(
  filter: Filter,
  groups: readonly IndexGroup[],
  layout: LogLayout,
  product: Product,
): readonly string[] {
  const reasons = listUnnarrowed(filter, groups, layout, product).map(({ comparison, group }) =>
    explainInexactLeaf(comparison, group, layout, product),
  );
  return [...new Set(reasons)];
}

/** Compares the JSON, since queries are plain values whose keys are always in the same order. */
function isSameQuery(a: Query, b: Query): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

async function listNotes(
  { tenantFilter }: LogSource,
  filter: Filter,
  layoutGroups: readonly ExplainedGroup[],
  metadata: IndexMetadata,
  product: Product,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const notes: string[] = [];
  if (tenantFilter !== undefined) notes.push(`every search includes the tenant filter: ${tenantFilter}`);
  if (filter.kind === "all") notes.push("every document of the range is a line");
  for (const { layout, groups } of metadata.opaque || filter.kind === "all" ? [] : layoutGroups) {
    const named = layoutGroups.length > 1 ? `${layout.name}: ` : "";
    if (groups.length === 0) continue;
    const bounds = await compileByGroup(filter, groups, layout, product, signal);
    const queries = groups.map((group) => ({ group, query: requireKey(bounds, group).upper }));
    if (queries.every(({ query }) => query === matchAll)) {
      notes.push(`${named}the index excludes nothing: every document of the range is read and verified`);
    } else if (combineGroupQueries(queries, metadata) === matchAll) {
      const reason = `the query takes more than ${queryLimits.clauses} clauses over these indices, which servers refuse`;
      notes.push(`${named}${reason}: every document of the range is read and verified`);
    }
  }
  // A mapping can be newer than its documents.
  notes.push("each document found is verified before it is answered, even where the index alone decides");
  return notes;
}

function explainExactLeaf(query: Query): string {
  if (query === matchNone) return "no line can satisfy it";
  if (query === matchAll) return "every line satisfies it";
  return "the field is indexed as it stands in the document";
}

// ---- Reasons ------------------------------------------------------------------------------------------------

/** Why the index alone does not decide the leaf. */
function explainInexactLeaf(leaf: Compare, group: IndexGroup, layout: LogLayout, product: Product): string {
  const { field, value } = leaf;
  const operator = toPositiveOperator(leaf.operator);
  const explainName = (name: string) => explainField(name, operator, value, group, product);
  if (field.kind === "line") {
    const { name } = field;
    if (name === "severity") {
      if (operator !== "=" && operator !== ":") return "a severity is no number";
      const reasons = listSeverityFields(layout.severity).flatMap(
        (read) => explainUnsearchable(read, findField(group, read)) ?? [],
      );
      return ["severities are compared as answered, whatever a document calls them", ...reasons].join("; ");
    }
    const names = layout[name];
    const first =
      names.length > 1
        ? `${name} is the first of ${names.join(", ")} that a document has`
        : `${name} is the first value of ${names.join()}`;
    return [first, ...names.map(explainName)].join("; ");
  }
  if (layout.json !== "source") return "the body of a line is not the document as it is indexed";
  if (field.alternatives !== undefined) {
    return "the name may stand for several, of which the first that a document has counts";
  }
  const path = field.path;
  const name = path.join(".");
  if (path.some((segment, at) => at > 0 && /^\d+$/.test(segment))) {
    return `a number in a path may be a position in an array, which is not in the index; ${explainName(name)}`;
  }
  if (path.length > 1) return `${name} in the index is also the key "${name}"; ${explainName(name)}`;
  return explainName(name);
}

function toPositiveOperator(operator: Operator): Operator {
  return operator === "!=" ? "=" : operator === "!:" ? ":" : operator;
}

/** Why a name cannot be searched at all; undefined if it can. */
function explainUnsearchable(name: string, field: IndexedField | undefined): string | undefined {
  if (field === undefined) return `${name} is not mapped`;
  if (field.aliasOf !== undefined) return `${name} is an alias, which no document has`;
  if (!field.indexed && field.partial) {
    return `${name} is both a key with dots and a key within an object, of which the index finds one`;
  }
  if (!field.indexed) return `${name} is not searchable (index: false, or within enabled: false)`;
  return undefined;
}

/** Why the index does not tell which documents have a name that it does not map. */
function explainUnmapped(name: string, group: IndexGroup): string {
  if (isAbsentSoFar(group, name))
    return `${name} is not mapped, so only documents that came since may have it`;
  const obstacle = isDynamic(group, name)
    ? "the index does not show which documents have it"
    : "documents may have it all the same (dynamic is neither true nor strict, or an object around it is not enabled)";
  return `${name} is not mapped, and ${obstacle}`;
}

/** What in a field's mapping makes the index find more than, or something other than, the document has. */
function explainField(
  name: string,
  operator: Operator,
  value: string,
  group: IndexGroup,
  product: Product,
): string {
  const field = findField(group, name);
  if (field === undefined) return explainUnmapped(name, group);
  const unsearchable = explainUnsearchable(name, field);
  if (unsearchable !== undefined) return unsearchable;
  const reasons: string[] = [];
  if (field.nested !== undefined) reasons.push("lies within nested objects");
  if (field.hasExtraValues)
    reasons.push("has values in the index that the document may lack (null_value, copy_to)");
  if (field.hasCustomAnalysis) reasons.push("is rewritten by a normalizer or an analyzer");
  reasons.push(...explainType(field, operator, value, group, product));
  return `${name} is ${field.type}${reasons.length === 0 ? "" : `, and ${reasons.join(", and ")}`}`;
}

const analysed = new Set(["text", "match_only_text"]);
const compared = new Set<Operator>([">", ">=", "<", "<="]);

function explainType(
  field: IndexedField,
  operator: Operator,
  value: string,
  group: IndexGroup,
  product: Product,
): readonly string[] {
  if (!compared.has(operator) && (value === "" || !value.isWellFormed())) {
    return ["only the document knows an empty text, or one that is no Unicode"];
  }
  if (field.flattenedRoot !== undefined)
    return ["keys below it are whole values, without those of other types"];
  if (analysed.has(field.type)) {
    return [compared.has(operator) ? "its words are no numbers" : "the index knows its words, not its text"];
  }
  if (isNumeric(field)) return ["numbers are rounded in the index, and their spelling is not in it"];
  if (/^(?:date|date_nanos|ip)$/.test(field.type)) return ["its spelling is not in the index"];
  const listed = "values that were left out of the index are listed in _ignored, which are looked at too";
  const lists = product.listsIgnored && group.createdSince715;
  if (field.type === "boolean") return [lists ? listed : "an empty text is false in the index"];
  if (field.type !== "keyword" && field.type !== "wildcard") return [];
  if (compared.has(operator)) return ["its texts are not ordered as numbers"];
  if (value.length > field.ignoreAbove) {
    return [`values over ${field.ignoreAbove} characters are not in the index`];
  }
  if (lists) return [listed];
  return operator === ":"
    ? [`values that were left out of the index are listed nowhere (${product.name})`]
    : ["the index may have more than the document"];
}
