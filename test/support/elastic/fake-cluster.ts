// A small Elasticsearch or OpenSearch in memory: mappings, `_search` with aggregations, and scrolls, for the few clauses that
// Readout sends. It answers correctly or not at all: a clause that it does not know is an error of the test.
import type { IncomingMessage, ServerResponse } from "node:http";
import { sendJson } from "../scripted-http-source.ts";
import { aggregate, ServerFailure } from "./aggregations.ts";

export interface FakeIndex {
  readonly mappings: object;
  readonly documents: readonly JsonObject[];
  /** Another uuid makes it another index of the same name. */
  readonly uuid?: string;
  readonly aliases?: readonly string[];
  /** The data stream that it lies behind, whose aliases are then its own. */
  readonly stream?: string;
  /** Further settings, below `index`. */
  readonly settings?: JsonObject;
}
type JsonObject = { readonly [key: string]: unknown };

const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** All values at a name, through objects, arrays and names with dots. */
function listValues(value: unknown, name: string): unknown[] {
  if (Array.isArray(value)) return value.flatMap((one) => listValues(one, name));
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    if (key === name) return Array.isArray(inner) ? inner : [inner];
    return name.startsWith(`${key}.`) ? listValues(inner, name.slice(key.length + 1)) : [];
  });
}

const knownFieldValues = new WeakMap<JsonObject, Map<string, unknown[]>>();

function listFieldValues(document: JsonObject, name: string): unknown[] {
  let known = knownFieldValues.get(document);
  if (known === undefined) {
    known = new Map();
    knownFieldValues.set(document, known);
  }
  let values = known.get(name);
  if (values === undefined) {
    values = readField(document, name);
    known.set(name, values);
  }
  return values;
}

/** Fields of OpenTelemetry also have short names. */
function readField(document: JsonObject, name: string): unknown[] {
  const found = ["", "attributes.", "resource.attributes."].map((prefix) =>
    listValues(document, prefix + name),
  );
  return (found.find((values) => values.length > 0) ?? []).filter((value) => value !== null);
}

const knownComparables = new Map<string, number>();

/** A time of a document or a bound as milliseconds; other numbers as they are. */
function toComparable(value: unknown): number {
  if (typeof value === "number") return value;
  const text = String(value);
  const known = knownComparables.get(text);
  if (known !== undefined) return known;
  const number = readNumber(text);
  knownComparables.set(text, number);
  return number;
}

function readNumber(text: string): number {
  return /^-?[\d.]+$/.test(text) ? Math.floor(Number(text)) : Date.parse(text.replace(/(\.\d{3})\d+/, "$1"));
}

type DocumentTest = (index: string, document: JsonObject) => boolean;

/** Compiles a query once for all documents, since parsing a clause takes longer than testing it. */
function compileQuery(query: JsonObject): DocumentTest {
  const [[clause, body] = ["", undefined]] = Object.entries(query);
  const list = (value: unknown): unknown[] => (value === undefined ? [] : [value].flat());
  const compileAll = (value: unknown) => list(value).map((one) => compileQuery(one as JsonObject));
  const [[name, operand] = ["", undefined]] = Object.entries(Object(body));
  const some =
    (test: (value: unknown) => boolean): DocumentTest =>
    (index, document) =>
      name === "_index" ? test(index) : listFieldValues(document, name).some(test);
  switch (clause) {
    case "match_all":
      return () => true;
    case "match_none":
      return () => false;
    case "bool": {
      const { filter, should, must_not } = body as JsonObject;
      const [required, excluded, alternatives] = [filter, must_not, should].map(compileAll);
      return (index, document) => {
        const matches = (test: DocumentTest) => test(index, document);
        return (
          required?.every(matches) === true &&
          excluded?.some(matches) === false &&
          (should === undefined || alternatives?.some(matches) === true)
        );
      };
    }
    case "exists":
      return (_, document) => listFieldValues(document, String(operand)).length > 0;
    case "nested":
      return compileQuery((body as { readonly query: JsonObject }).query);
    case "terms": {
      const sought = new Set(list(operand).map(String));
      return some((value) => sought.has(String(value)));
    }
    case "term": {
      const { value: sought, case_insensitive: caseless } = isObject(operand)
        ? operand
        : { value: operand, case_insensitive: false };
      const fold = (value: unknown) => (caseless ? String(value).toLowerCase() : String(value));
      const folded = fold(sought);
      return some((value) => fold(value) === folded);
    }
    case "regexp": {
      const { value: pattern, case_insensitive: caseless } = operand as JsonObject;
      const expression = new RegExp(`^(?:${pattern})$`, caseless ? "i" : "");
      return some((value) => expression.test(String(value)));
    }
    case "range": {
      const { gte, gt, lte, lt, ...rest } = operand as JsonObject;
      const unknown = Object.keys(rest).filter((key) => key !== "format");
      if (unknown.length > 0) throw new Error(`a range with ${unknown}`);
      const bound = (value: unknown, ofNone: number) => (value === undefined ? ofNone : toComparable(value));
      const [least, most] = [bound(gte, -Infinity), bound(lte, Infinity)];
      const [above, below] = [bound(gt, -Infinity), bound(lt, Infinity)];
      return some((value) => {
        const number = toComparable(value);
        return number >= least && number > above && number <= most && number < below;
      });
    }
    default:
      throw new Error(`an unknown clause: ${JSON.stringify(query)}`);
  }
}

/** What an aggregation reads of a document. */
const documentReader = {
  values: ({ index, document }: FakeHit, name: string) => {
    const values = name === "_index" ? [index] : listFieldValues(document, name);
    return values.map((value) => (typeof value === "number" ? value : String(value)));
  },
  compile: (query: JsonObject) => {
    const matches = compileQuery(query);
    return ({ index, document }: FakeHit) => matches(index, document);
  },
};

interface FakeHit {
  readonly index: string;
  readonly id: string;
  readonly document: JsonObject;
  readonly sort: readonly number[];
}

interface Scroll {
  readonly rest: readonly FakeHit[];
  readonly size: number;
  readonly total: number;
  readonly shards: number;
}

export type ProductName = "Elasticsearch" | "OpenSearch";

interface FakeSearch {
  readonly indices: Readonly<Record<string, FakeIndex>>;
  readonly product: ProductName;
  readonly aggregates: boolean;
  readonly scrolls: Map<string, Scroll>;
  /** Responses by pattern and body: the indices never change, and tests repeat their searches. */
  readonly responses: Map<string, object>;
  scrollsOpened: number;
}

export function createFakeSearch(
  indices: Readonly<Record<string, FakeIndex>>,
  product: ProductName,
  /** If false, a search with aggregations is refused. */
  { aggregates = true }: { readonly aggregates?: boolean } = {},
) {
  const fake: FakeSearch = {
    indices,
    product,
    aggregates,
    scrolls: new Map(),
    responses: new Map(),
    scrollsOpened: 0,
  };
  const send = product === "Elasticsearch" ? sendJson : sendWithoutProductHeader;
  return {
    /** A copy, for a test to change. */
    answer: (request: IncomingMessage, text: string): object => structuredClone(answer(fake, request, text)),
    /** Reports an error of the fake itself with status 400, which no test takes for a response of a source. */
    reply: (response: ServerResponse, request: IncomingMessage, text: string): void => {
      try {
        send(response, answer(fake, request, text));
      } catch (error) {
        send(response, { error: String(error) }, error instanceof ServerFailure ? 500 : 400);
      }
    },
  };
}

function answer(fake: FakeSearch, request: IncomingMessage, text: string): object {
  const { pathname, searchParams } = new URL(request.url ?? "", "http://source");
  const body: JsonObject = text === "" ? {} : JSON.parse(text);
  const [, pattern = "", ...rest] = pathname.split("/");
  if (pathname === "/") return describeVersion(fake);
  if (pattern === "_resolve") return resolveNames(fake, rest[1] ?? "");
  if (request.method === "DELETE") {
    for (const id of [body.scroll_id].flat()) fake.scrolls.delete(String(id));
    return { succeeded: true };
  }
  if (pathname === "/_search/scroll") return continueScroll(fake, String(body.scroll_id));
  if (!pathname.endsWith("/_search")) return describeMappings(fake, pattern);
  if (searchParams.has("scroll")) return openScroll(fake, pattern, body);
  const known = fake.responses.get(pattern + text) ?? search(fake, pattern, body);
  fake.responses.set(pattern + text, known);
  return known;
}

function describeVersion({ product }: FakeSearch): object {
  const isElasticsearch = product === "Elasticsearch";
  return {
    version: isElasticsearch ? { number: "8.19.8" } : { number: "2.19.0", distribution: "opensearch" },
  };
}

function describeMappings(fake: FakeSearch, pattern: string): object {
  const index = { number_of_shards: "1", version: { created: "8190899" } };
  return Object.fromEntries(
    listMatchingIndices(fake, pattern).map(([name, { mappings, uuid = name, aliases = [], settings }]) => [
      name,
      {
        aliases: Object.fromEntries(aliases.map((alias) => [alias, {}])),
        mappings,
        settings: { index: { ...index, uuid, ...settings } },
      },
    ]),
  );
}

/** By the setting that an index has for as long as it is closed. */
function isClosed({ settings }: FakeIndex): boolean {
  return settings?.verified_before_close !== undefined;
}

/** What `_resolve/index` answers: an alias names what it stands for, also where the pattern matches the alias alone. */
function resolveNames({ indices }: FakeSearch, pattern: string): object {
  const open = Object.entries(indices).filter(([, index]) => !isClosed(index));
  const all = open.map(([name, { aliases = [], stream }]) => ({ name, aliases, stream }));
  const isNamed = (name: string) => listMatchingNames(decodeURIComponent(pattern), [[name]]).length > 0;
  const aliases = Map.groupBy(
    all.flatMap((one) =>
      one.aliases.filter(isNamed).map((alias) => ({ alias, target: one.stream ?? one.name })),
    ),
    ({ alias }) => alias,
  );
  const streams = Map.groupBy(
    all.filter(({ stream }) => stream !== undefined && isNamed(stream)),
    ({ stream }) => stream,
  );
  return {
    indices: all
      .filter(({ name, stream }) => stream === undefined && isNamed(name))
      .map(({ name, aliases }) => ({ name, aliases, attributes: ["open"] })),
    aliases: [...aliases].map(([name, some]) => ({
      name,
      indices: [...new Set(some.map(({ target }) => target))],
    })),
    data_streams: [...streams].map(([name, some]) => ({
      name,
      backing_indices: some.map((one) => one.name),
    })),
  };
}

function listMatchingIndices({ indices }: FakeSearch, pattern: string): [string, FakeIndex][] {
  const entries = Object.entries(indices);
  const names = entries.map(([name, { aliases = [], stream }]) => [stream ?? name, ...aliases]);
  const reached = new Set(
    listMatchingNames(
      decodeURIComponent(pattern),
      names,
      entries.map(([name]) => name),
    ),
  );
  return entries.filter((_, at) => reached.has(at));
}

/**
 * The positions of the indices that a pattern reaches. `names` are what each is called, its aliases last, `own` what it is called
 * itself where that is behind a data stream. An exclusion takes away from the parts before it, if one has a star; one without a
 * star only by the index's own name.
 */
function listMatchingNames(
  pattern: string,
  names: readonly (readonly string[])[],
  own: readonly string[] = names.map(([name = ""]) => name),
): readonly number[] {
  let reached: number[] = [];
  const parts = pattern.split(",");
  const firstStar = parts.findIndex((part) => part.includes("*") && !part.startsWith("-"));
  for (const [position, part] of parts.entries()) {
    if (part.startsWith("-") && !(firstStar >= 0 && position > firstStar)) continue;
    const glob = part.replace(/^-/, "");
    const test = new RegExp(`^${glob.replaceAll(".", "\\.").replaceAll("*", ".*")}$`);
    const isMatch = (at: number) =>
      own[at] === glob ||
      ((glob.includes("*") || !part.startsWith("-")) && names[at]?.some((name) => test.test(name)));
    const matched = [...names.keys()].filter(isMatch);
    if (part.startsWith("-")) reached = reached.filter((at) => !matched.includes(at));
    else reached = [...new Set([...reached, ...matched])];
  }
  return reached;
}

function search(fake: FakeSearch, pattern: string, body: JsonObject): object {
  const { size = 10, from = 0, track_total_hits: counted, aggs } = body;
  const { hits, shards } = findHits(fake, pattern, body);
  const isUncounted = counted === false || (typeof counted === "number" && hits.length > counted);
  const selected = hits.slice(Number(from), Number(from) + Number(size));
  const page = buildPage(selected, isUncounted ? undefined : hits.length, shards);
  // A server aggregates in shards, so that nothing stands for none.
  if (aggs === undefined || shards === 0) return page;
  return { ...page, aggregations: aggregate(aggs as JsonObject, hits, documentReader) };
}

function openScroll(fake: FakeSearch, pattern: string, body: JsonObject): object {
  const { size = 10, from = 0 } = body;
  const { hits, shards } = findHits(fake, pattern, body);
  const end = Number(from) + Number(size);
  const id = `scroll-${fake.scrollsOpened++}`;
  fake.scrolls.set(id, {
    rest: hits.slice(end),
    size: Number(size),
    total: hits.length,
    // Elasticsearch continues only with the shards that may have documents.
    shards: fake.product === "Elasticsearch" ? new Set(hits.map(({ index }) => index)).size : shards,
  });
  return buildPage(hits.slice(Number(from), end), hits.length, shards, id);
}

function continueScroll({ scrolls }: FakeSearch, id: string): object {
  const scroll = scrolls.get(id);
  if (scroll === undefined) throw new Error(`no scroll ${id}`);
  scrolls.set(id, { ...scroll, rest: scroll.rest.slice(scroll.size) });
  return buildPage(scroll.rest.slice(0, scroll.size), scroll.total, scroll.shards, id);
}

/** All hits of a search, sorted, and the number of shards that it reaches. */
function findHits(
  fake: FakeSearch,
  pattern: string,
  body: JsonObject,
): { readonly hits: readonly FakeHit[]; readonly shards: number } {
  checkSearch(fake, body);
  const { query = { match_all: {} }, sort = ["_doc"] } = body;
  const keys = sort as readonly SortKey[];
  const matches = compileQuery(query as JsonObject);
  const searched = listMatchingIndices(fake, pattern).filter(([, index]) => !isClosed(index));
  const { size = 10, from = 0 } = body;
  for (const [index, { settings }] of searched) {
    const window = Number(settings?.max_result_window ?? 10_000);
    if (Number(from) + Number(size) > window) throw new Error(`${index} returns no more than ${window} hits`);
  }
  const hits = searched.flatMap(([index, { documents }]) =>
    documents.flatMap((document, at): FakeHit[] =>
      matches(index, document)
        ? [
            {
              index,
              id: `${index}-${at}`,
              document,
              sort: keys.map((key) => readSortValue(key, document, at)),
            },
          ]
        : [],
    ),
  );
  const [first] = keys;
  const isDescending = typeof first === "object" && Object.values(first)[0]?.order === "desc";
  hits.sort((a, b) => ((a.sort[0] ?? 0) - (b.sort[0] ?? 0)) * (isDescending ? -1 : 1));
  return { hits, shards: searched.length };
}

/** Refuses options that the fake does not know. */
function checkSearch({ aggregates }: FakeSearch, body: JsonObject): void {
  const { query, size, from, sort, track_total_hits, aggs, _source: sources, ...others } = body;
  if (sources !== undefined && sources !== false) throw new Error(`_source: ${sources}`);
  if (aggs !== undefined && !aggregates) throw new Error("no aggregations");
  if (Object.keys(others).length > 0) throw new Error(`a search with ${Object.keys(others)}`);
}

type SortKey = string | Readonly<Record<string, { readonly order: string; readonly numeric_type?: string }>>;

function readSortValue(key: SortKey, document: JsonObject, at: number): number {
  if (key === "_doc") return at;
  const [[name, options] = ["", undefined]] = Object.entries(key);
  const values = listFieldValues(document, name).map(toComparable);
  const value = values.length === 0 ? Number.NaN : Math.min(...values);
  return options?.numeric_type === "date_nanos" ? value * 1e6 : value;
}

function buildPage(
  hits: readonly FakeHit[],
  total: number | undefined,
  shards: number,
  scrollId?: string,
): object {
  return {
    took: 1,
    timed_out: false,
    ...(scrollId === undefined ? {} : { _scroll_id: scrollId }),
    _shards: { total: shards, successful: shards, skipped: 0, failed: 0 },
    hits: {
      ...(total === undefined ? {} : { total: { value: total, relation: "eq" } }),
      hits: hits.map(({ index, id, document, sort }) => {
        return { _index: index, _id: id, _source: document, sort };
      }),
    },
  };
}

/** Without the header that identifies Elasticsearch. */
function sendWithoutProductHeader(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
