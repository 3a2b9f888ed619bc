// The aggregations that Readout sends, evaluated over whole documents: composite and terms with counts, stats and ranges
// in them, histograms of times, and filters that count values. Any other aggregation is an error of the test.
type JsonObject = { readonly [key: string]: unknown };
type Scalar = string | number | null;

/** A failure of the server, and not a rejection of the search. */
export class ServerFailure extends Error {
  override readonly name = "ServerFailure";
}

interface DocumentReader<Document> {
  /** All values of a field, as the index has them. */
  readonly values: (document: Document, field: string) => readonly (string | number)[];
  readonly compile: (query: JsonObject) => (document: Document) => boolean;
}

/** The `aggregations` of a response over the documents that the query found. */
export function aggregate<Document>(
  aggregations: JsonObject,
  documents: readonly Document[],
  reader: DocumentReader<Document>,
): JsonObject {
  return Object.fromEntries(
    Object.entries(aggregations).map(([name, aggregation]) => [
      name,
      evaluate(aggregation as JsonObject, documents, reader),
    ]),
  );
}

function evaluate<Document>(
  aggregation: JsonObject,
  documents: readonly Document[],
  reader: DocumentReader<Document>,
): JsonObject {
  const { aggs: inner = {}, ...rest } = aggregation;
  const [[kind, body] = ["", {}], ...others] = Object.entries(rest);
  if (others.length > 0) throw new Error(`an aggregation of two kinds: ${JSON.stringify(aggregation)}`);
  const within = (members: readonly Document[]) => aggregate(inner as JsonObject, members, reader);
  const options = body as JsonObject;
  const field = String(options.field);
  const listValues = (document: Document) => reader.values(document, field);
  switch (kind) {
    case "filter": {
      const found = documents.filter(reader.compile(options));
      return { doc_count: found.length, ...within(found) };
    }
    case "value_count":
      return { value: documents.flatMap(listValues).length };
    case "stats": {
      const all = documents.flatMap(listValues).map(Number);
      return { count: all.length, sum: all.reduce((a, b) => a + b, 0) };
    }
    case "range": {
      const { ranges } = options as { readonly ranges: readonly { from: number; to: number }[] };
      const measured = documents.map((document) => ({ document, numbers: listValues(document).map(Number) }));
      const buckets = ranges.map(({ from, to }) => {
        const found = measured.flatMap(({ document, numbers }) =>
          numbers.some((number) => number >= from && number < to) ? [document] : [],
        );
        return { from, to, doc_count: found.length, ...within(found) };
      });
      return { buckets };
    }
    case "missing": {
      const found = documents.filter((document) => listValues(document).length === 0);
      return { doc_count: found.length };
    }
    case "date_histogram": {
      const listKeys = (document: Document) =>
        listStarts(options as unknown as TimeBuckets, listValues(document)).map((start) => [start]);
      const found = groupDocuments(documents, listKeys).sort((a, b) => compareKeys(a.key, b.key));
      return { buckets: found.map(({ key: [key], members }) => ({ key, doc_count: members.length })) };
    }
    case "terms": {
      const { size, min_doc_count: least = 1 } = options as { size: number; min_doc_count?: number };
      const found = groupDocuments(documents, (document) =>
        [...new Set(listValues(document))].map((value) => [value]),
      )
        .filter(({ members }) => members.length >= least)
        .sort((a, b) => b.members.length - a.members.length);
      const buckets = found
        .slice(0, size)
        .map(({ key: [key], members }) => ({ key, doc_count: members.length, ...within(members) }));
      const others = found.slice(size).reduce((sum, { members }) => sum + members.length, 0);
      return { doc_count_error_upper_bound: 0, sum_other_doc_count: others, buckets };
    }
    case "composite":
      return evaluateComposite(options, documents, reader, within);
    default:
      throw new Error(`an unknown aggregation: ${JSON.stringify(aggregation)}`);
  }
}

interface TimeBuckets {
  readonly field: string;
  readonly fixed_interval: string;
}
interface CompositeSource {
  readonly terms?: { readonly field: string; readonly missing_bucket?: boolean };
  readonly date_histogram?: TimeBuckets;
}

/** The starts of the buckets in which these times lie. */
function listStarts(
  { fixed_interval: interval }: TimeBuckets,
  times: readonly (string | number)[],
): readonly number[] {
  const step = Number.parseInt(interval, 10);
  const millis = times.map((time) => (typeof time === "number" ? time : Date.parse(time)));
  return [...new Set(millis.map((time) => Math.floor(time / step) * step))];
}

function evaluateComposite<Document>(
  options: JsonObject,
  documents: readonly Document[],
  reader: DocumentReader<Document>,
  within: (members: readonly Document[]) => JsonObject,
): JsonObject {
  const { size, sources, after } = options as {
    size: number;
    sources: readonly JsonObject[];
    after?: JsonObject;
  };
  const columns = sources.map((source) => {
    const [[name, kinds] = ["", {}]] = Object.entries(source as Record<string, CompositeSource>);
    return { name, ...kinds };
  });
  const listKeys = (document: Document) =>
    columns.reduce<readonly (readonly Scalar[])[]>(
      (keys, { terms, date_histogram: times }) => {
        const own = new Set<Scalar>(
          times === undefined
            ? reader.values(document, terms?.field ?? "")
            : listStarts(times, reader.values(document, times.field)),
        );
        if (own.size === 0 && terms?.missing_bucket === true) own.add(null);
        return keys.flatMap((key) => [...own].map((value) => [...key, value]));
      },
      [[]],
    );
  const grouped = groupDocuments(documents, listKeys);
  for (const at of columns.keys()) {
    const types = new Set(grouped.map(({ key }) => typeof key[at]));
    if (types.has("string") && types.has("number"))
      throw new ServerFailure("class_cast_exception: a column of integers here and of keywords there");
  }
  const last = after && columns.map(({ name }) => after[name] as Scalar);
  const buckets = grouped
    .filter(({ key }) => last === undefined || compareKeys(key, last) > 0)
    .sort((a, b) => compareKeys(a.key, b.key))
    .slice(0, size)
    .map(({ key, members }) => ({
      key: Object.fromEntries(columns.map(({ name }, at) => [name, key[at]])),
      doc_count: members.length,
      ...within(members),
    }));
  const end = buckets.at(-1)?.key;
  return { ...(end === undefined ? {} : { after_key: end }), buckets };
}

function groupDocuments<Document>(
  documents: readonly Document[],
  listKeys: (document: Document) => readonly (readonly Scalar[])[],
) {
  const groups = new Map<string, { readonly key: readonly Scalar[]; readonly members: Document[] }>();
  for (const document of documents) {
    for (const key of listKeys(document)) {
      const text = JSON.stringify(key);
      const group = groups.get(text) ?? { key, members: [] };
      group.members.push(document);
      groups.set(text, group);
    }
  }
  return [...groups.values()];
}

/** Ascending; a missing value comes first. */
function compareKeys(a: readonly Scalar[], b: readonly Scalar[]): number {
  for (const [at, one] of a.entries()) {
    const other = b[at] ?? null;
    if (one === other) continue;
    if (one === null || other === null) return one === null ? -1 : 1;
    return one < other ? -1 : 1;
  }
  return 0;
}
