// A small Elasticsearch or OpenSearch in memory: mappings, `_search` with aggregations, and scrolls, for the few clauses that
// Readout sends. It answers truthfully or not at all: a clause that it does not know is an error of the test.
import type { IncomingMessage, ServerResponse } from "node:http";
import { sendJson } from "../scripted-http-source.ts";
import { aggregate } from "./aggregations.ts";

export interface FakeIndex {
  readonly mappings: object;
  readonly documents: readonly JsonObject[];
  /** Of another index under a name than before. */
  readonly uuid?: string;
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
  const known = knownFieldValues.get(document) ?? new Map<string, unknown[]>();
  knownFieldValues.set(document, known);
  const values = known.get(name) ?? readField(document, name);
  known.set(name, values);
  return values;
}

/** Fields of OpenTelemetry are also known by their short names. */
function readField(document: JsonObject, name: string): unknown[] {
  const found = ["", "attributes.", "resource.attributes."].map((prefix) =>
    listValues(document, prefix + name),
  );
  return (found.find((values) => values.length > 0) ?? []).filter((value) => value !== null);
}

const knownComparables = new Map<string, number>();

/** Milliseconds, for times as documents and bounds spell them; other numbers as they are. */
function toComparable(value: unknown): number {
  if (typeof value === "number") return value;
  const text = String(value);
  const known = knownComparables.get(text) ?? readNumber(text);
  knownComparables.set(text, known);
  return known;
}

function readNumber(text: string): number {
  return /^-?[\d.]+$/.test(text) ? Math.floor(Number(text)) : Date.parse(text.replace(/(\.\d{3})\d+/, "$1"));
}

type DocumentTest = (index: string, document: JsonObject) => boolean;

/** Once for all documents: a clause takes longer to understand than to decide. */
function compileQuery(query: JsonObject): DocumentTest {
  const [[clause, body] = ["", undefined]] = Object.entries(query);
  const list = (value: unknown): unknown[] => (value === undefined ? [] : [value].flat());
  const compileAll = (value: unknown) => list(value).map((one) => compileQuery(one as JsonObject));
  const [[name, wanted] = ["", undefined]] = Object.entries(Object(body));
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
      const [needed, refused, enough] = [filter, must_not, should].map(compileAll);
      return (index, document) => {
        const holds = (test: DocumentTest) => test(index, document);
        return (
          needed?.every(holds) === true &&
          refused?.some(holds) === false &&
          (should === undefined || enough?.some(holds) === true)
        );
      };
    }
    case "exists":
      return (_, document) => listFieldValues(document, String(wanted)).length > 0;
    case "nested":
      return compileQuery((body as { readonly query: JsonObject }).query);
    case "terms": {
      const sought = new Set(list(wanted).map(String));
      return some((value) => sought.has(String(value)));
    }
    case "term": {
      const { value: sought, case_insensitive: caseless } = isObject(wanted)
        ? wanted
        : { value: wanted, case_insensitive: false };
      const fold = (value: unknown) => (caseless ? String(value).toLowerCase() : String(value));
      return some((value) => fold(value) === fold(sought));
    }
    case "range": {
      const { gte, gt, lte, lt, ...rest } = wanted as JsonObject;
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

/** What an aggregation sees of a document. */
const documentReader = {
  values: ({ index, document }: FakeHit, name: string) => {
    const values = name === "_index" ? [index] : listFieldValues(document, name);
    return values.map((value) => (typeof value === "number" ? value : String(value)));
  },
  compile: (query: JsonObject) => {
    const holds = compileQuery(query);
    return ({ index, document }: FakeHit) => holds(index, document);
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

export function createFakeSearch(
  indices: Readonly<Record<string, FakeIndex>>,
  product: ProductName,
  /** Without them a search that aggregates is refused. */
  { aggregates = true }: { readonly aggregates?: boolean } = {},
) {
  const send = product === "Elasticsearch" ? sendJson : sendWithoutProductHeader;
  const version =
    product === "Elasticsearch" ? { number: "8.19.8" } : { number: "2.19.0", distribution: "opensearch" };

  const scrolls = new Map<string, Scroll>();
  /** Nothing changes here, and tests ask the same again and again. */
  const answers = new Map<string, object>();
  let scrollId = 0;

  function matching(pattern: string): [string, FakeIndex][] {
    const parts = decodeURIComponent(pattern)
      .split(",")
      .map((part) => {
        const isExcluded = part.startsWith("-");
        const stars = (isExcluded ? part.slice(1) : part).replaceAll(".", "\\.").replaceAll("*", ".*");
        return { isExcluded, test: new RegExp(`^${stars}$`) };
      });
    // An exclusion takes away what stands before it.
    return Object.entries(indices).filter(
      ([name]) => parts.findLast(({ test }) => test.test(name))?.isExcluded === false,
    );
  }

  function page(
    found: readonly FakeHit[],
    total: number | undefined,
    shards: number,
    scroll?: string,
  ): object {
    return {
      took: 1,
      timed_out: false,
      ...(scroll === undefined ? {} : { _scroll_id: scroll }),
      _shards: { total: shards, successful: shards, skipped: 0, failed: 0 },
      hits: {
        ...(total === undefined ? {} : { total: { value: total, relation: "eq" } }),
        hits: found.map(({ index, id, document, sort }) => {
          return { _index: index, _id: id, _source: document, sort };
        }),
      },
    };
  }

  function search(pattern: string, body: JsonObject, scrolled: boolean): object {
    const { query, size = 10, from = 0, sort = ["_doc"], track_total_hits: counted, aggs, ...others } = body;
    const { _source: sources, ...rest } = others;
    if (sources !== undefined && sources !== false) throw new Error(`_source: ${sources}`);
    if (aggs !== undefined && !aggregates) throw new Error("no aggregations");
    if (Object.keys(rest).length > 0) throw new Error(`a search with ${Object.keys(rest)}`);
    const keys = sort as (string | Record<string, { readonly order: string }>)[];
    const within = matching(pattern);
    const holds = compileQuery((query ?? { match_all: {} }) as JsonObject);
    const found = within.flatMap(([index, { documents }]) =>
      documents.flatMap((document, at): FakeHit[] => {
        if (!holds(index, document)) return [];
        const sorts = keys.map((key) => {
          if (key === "_doc") return at;
          const [name = ""] = Object.keys(key);
          return toComparable(listFieldValues(document, name)[0]);
        });
        return [{ index, id: `${index}-${at}`, document, sort: sorts }];
      }),
    );
    const [first] = keys;
    const descending = typeof first === "object" && Object.values(first)[0]?.order === "desc";
    found.sort((a, b) => ((a.sort[0] ?? 0) - (b.sort[0] ?? 0)) * (descending ? -1 : 1));
    const total = counted === false && !scrolled ? undefined : found.length;
    const overCount = typeof counted === "number" && found.length > counted;
    const end = Number(from) + Number(size);
    const answer = found.slice(Number(from), end);
    if (!scrolled) {
      const whole = page(answer, overCount ? undefined : total, within.length);
      return aggs === undefined
        ? whole
        : { ...whole, aggregations: aggregate(aggs as JsonObject, found, documentReader) };
    }
    const id = `scroll-${scrollId++}`;
    scrolls.set(id, {
      rest: found.slice(end),
      size: Number(size),
      total: found.length,
      // Elasticsearch goes on with the shards alone that may hold something.
      shards: product === "Elasticsearch" ? new Set(found.map(({ index }) => index)).size : within.length,
    });
    return page(answer, total, within.length, id);
  }

  function scroll(id: string): object {
    const open = scrolls.get(id);
    if (open === undefined) throw new Error(`no scroll ${id}`);
    scrolls.set(id, { ...open, rest: open.rest.slice(open.size) });
    return page(open.rest.slice(0, open.size), open.total, open.shards, id);
  }

  function reply(response: ServerResponse, request: IncomingMessage, text: string): void {
    const { pathname, searchParams } = new URL(request.url ?? "", "http://source");
    const body: JsonObject = text === "" ? {} : JSON.parse(text);
    const [, pattern = ""] = pathname.split("/");
    if (pathname === "/") send(response, { version });
    else if (request.method === "DELETE") {
      for (const id of [body.scroll_id].flat()) scrolls.delete(String(id));
      send(response, { succeeded: true });
    } else if (pathname === "/_search/scroll") send(response, scroll(String(body.scroll_id)));
    else if (pathname.endsWith("/_search")) {
      const scrolled = searchParams.has("scroll");
      const answer = (scrolled ? undefined : answers.get(pattern + text)) ?? search(pattern, body, scrolled);
      if (!scrolled) answers.set(pattern + text, answer);
      send(response, answer);
    } else {
      const index = { number_of_shards: "1", version: { created: "8190899" } };
      const told = matching(pattern).map(([name, { mappings, uuid = name }]) => [
        name,
        { aliases: {}, mappings, settings: { index: { ...index, uuid } } },
      ]);
      send(response, Object.fromEntries(told));
    }
  }

  return {
    /** An error of the fake's own is no answer that a source would give: its status is 400. */
    reply: (response: ServerResponse, request: IncomingMessage, text: string): void => {
      try {
        reply(response, request, text);
      } catch (error) {
        send(response, { error: String(error) }, 400);
      }
    },
  };
}

/** Without the header by which Elasticsearch is told. */
function sendWithoutProductHeader(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}
