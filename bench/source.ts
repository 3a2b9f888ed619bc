// A canned Elasticsearch on loopback: one index, `logs-bench`, of ECS lines as Filebeat writes them. The bytes of
// every hit are rendered once for each shape of request, so that the source costs a slice of a buffer and what is
// measured is the server in front of it. It honours `size`, `from`, `sort`, `search_after`, scrolls and the time range;
// it answers every other condition as if all lines met it, so a bench may only ask for what all lines meet.
//
// `node bench/source.ts ascii|unicode` prints one JSON line when it listens: {"url","from","to"}. With `unicode` one
// line in thirty holds letters beyond Latin-1: the whole answer then is a string of two bytes a character for anyone
// who decodes it at once, which costs a JSON.parse adapter half as much again.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

const index = "logs-bench";
const documents = 40_000;
const version = "8.19.8";

// --- The documents -------------------------------------------------------------------------------------------

/** mulberry32: the same lines in every run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
const random = seeded(20_260_101);

function below(limit: number): number {
  return Math.floor(random() * limit);
}
function pick<T>(choices: readonly [T, ...T[]]): T {
  return choices[below(choices.length)] ?? choices[0];
}
function hex(digits: number): string {
  let text = "";
  while (text.length < digits) text += below(16).toString(16);
  return text;
}
const base64url = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/** Twenty characters as Elasticsearch makes them; the last four hold the number, so that no two are equal. */
function documentId(number: number): string {
  let text = "";
  while (text.length < 16) text += base64url.charAt(below(64));
  for (let shift = 18; shift >= 0; shift -= 6) text += base64url.charAt((number >> shift) & 63);
  return text;
}

const paths = [
  "/cart",
  "/checkout/payment",
  "/products/search",
  "/api/v1/orders",
  "/login",
  "/assets/app.js",
] as const;
const failures = [
  "upstream timed out (110: Connection timed out) while reading response header",
  'could not decode body: unexpected token "}" at position 118',
  "payment of order refused by provider: insufficient funds",
  process.argv[2] === "unicode"
    ? "Überweisung fehlgeschlagen für Zoë Müller – neuer Versuch in 30 s"
    : "transfer failed for Zoe Mueller - trying again in 30 s",
] as const;

function renderSource(timestamp: string): string {
  const path = `${pick(paths)}/${below(100_000)}`;
  const level = pick(["info", "info", "info", "info", "debug", "warn", "error"]);
  const status = level === "error" ? 502 : pick([200, 200, 200, 201, 304, 404]);
  const method = pick(["GET", "GET", "POST", "PUT"]);
  const duration = below(900_000_000);
  const request = `${method} ${path} ${status} ${Math.round(duration / 1_000_000)}ms`;
  return JSON.stringify({
    "@timestamp": timestamp,
    message: level === "error" ? `${request}: ${pick(failures)}` : request,
    log: { level, logger: "http.access" },
    host: { name: `web-${below(12) + 1}` },
    service: { name: "shop", version: "1.4.2" },
    event: { dataset: pick(["nginx.access", "shop.web", "shop.worker"]), duration },
    trace: { id: hex(32) },
    http: { request: { method }, response: { status_code: status, body: { bytes: below(50_000) } } },
    url: { path },
    client: { ip: `10.${below(256)}.${below(256)}.${below(256)}` },
    labels: { region: pick(["eu-west-1", "us-east-1"]) },
    agent: { type: "filebeat", version },
    ecs: { version: "8.11.0" },
  });
}

interface Document {
  readonly id: string;
  readonly millis: number;
  readonly source: string;
}

/** Newest first, each in a millisecond of its own. */
function generate(newest: number): readonly Document[] {
  let millis = newest;
  return Array.from({ length: documents }, (_, number) => {
    const document = { id: documentId(number), millis, source: renderSource(new Date(millis).toISOString()) };
    millis -= 1 + below(20);
    return document;
  });
}

const newest = Date.now() - 60_000;
const corpus = generate(newest);
const oldest = corpus.at(-1)?.millis ?? newest;

// --- What is known of the index ------------------------------------------------------------------------------

const keyword = { type: "keyword", ignore_above: 1_024 };
const mappings = {
  dynamic: "true",
  properties: {
    "@timestamp": { type: "date" },
    message: { type: "match_only_text" },
    log: { properties: { level: keyword, logger: keyword } },
    host: { properties: { name: keyword } },
    service: { properties: { name: keyword, version: keyword } },
    event: { properties: { dataset: keyword, duration: { type: "long" } } },
    trace: { properties: { id: keyword } },
    http: {
      properties: {
        request: { properties: { method: keyword } },
        response: {
          properties: { status_code: { type: "long" }, body: { properties: { bytes: { type: "long" } } } },
        },
      },
    },
    url: { properties: { path: keyword } },
    client: { properties: { ip: { type: "ip" } } },
    labels: { properties: { region: keyword } },
    agent: { properties: { type: keyword, version: keyword } },
    ecs: { properties: { version: keyword } },
  },
};
const settings = {
  index: {
    number_of_shards: "1",
    number_of_replicas: "0",
    provided_name: index,
    creation_date: String(oldest),
    uuid: "b3nChb3nChb3nChb3nChbA",
    version: { created: "8190899" },
  },
};

type Json = { readonly [key: string]: unknown };

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function fieldCapabilities(): Json {
  const fields: Record<string, Json> = {};
  function describe(name: string, type: string, metadata: boolean, aggregatable: boolean): void {
    fields[name] = {
      [type]: { type, metadata_field: metadata, searchable: type !== "object", aggregatable },
    };
  }
  function visit(properties: Json, prefix: string): void {
    for (const [key, value] of Object.entries(properties)) {
      if (!isObject(value)) continue;
      const name = prefix + key;
      const type = typeof value.type === "string" && !isObject(value.properties) ? value.type : "object";
      describe(name, type, false, type !== "object" && type !== "match_only_text");
      if (isObject(value.properties)) visit(value.properties, `${name}.`);
    }
  }
  visit(mappings.properties, "");
  for (const name of ["_id", "_index", "_ignored"]) describe(name, name, true, name !== "_id");
  return { indices: [index], fields };
}

// --- Searching -----------------------------------------------------------------------------------------------

/** A refusal in the source's own words: what the bench asked for is beyond a canned answer. */
class Rejected extends Error {}

/** A bound may lie inside a millisecond; documents never do. */
interface Moment {
  readonly millis: number;
  readonly inside: boolean;
}

function readMoment(value: unknown): Moment {
  if (typeof value === "number" || (typeof value === "string" && /^-?\d+$/.test(value))) {
    const number = Number(value);
    // Beyond 10^15 it can only be nanoseconds, as `numeric_type: date_nanos` answers them.
    return { millis: Math.abs(number) > 1e15 ? Math.round(number / 1e6) : number, inside: false };
  }
  const match =
    typeof value === "string" ? /^(.*T\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(value) : null;
  const fraction = (match?.[2] ?? "").padEnd(9, "0");
  const millis = Date.parse(`${match?.[1]}.${fraction.slice(0, 3)}${match?.[3]}`);
  if (Number.isNaN(millis)) throw new Rejected(`cannot read the time ${JSON.stringify(value)}`);
  return { millis, inside: Number(fraction.slice(3)) > 0 };
}

/** The first and last millisecond that the conditions on `@timestamp` leave, wherever they must all hold. */
function readRange(query: unknown): { first: number; last: number } {
  let first = Number.NEGATIVE_INFINITY;
  let last = Number.POSITIVE_INFINITY;
  function visit(node: unknown): void {
    if (Array.isArray(node)) {
      for (const child of node) visit(child);
    } else if (isObject(node)) {
      const range = isObject(node.range) ? node.range["@timestamp"] : undefined;
      for (const [key, value] of Object.entries(isObject(range) ? range : {})) {
        if (key === "format" || key === "time_zone" || key === "boost" || value === null) continue;
        const { millis, inside } = readMoment(value);
        if (key === "gte") first = Math.max(first, inside ? millis + 1 : millis);
        else if (key === "gt") first = Math.max(first, millis + 1);
        else if (key === "lte") last = Math.min(last, millis);
        else if (key === "lt") last = Math.min(last, inside ? millis : millis - 1);
      }
      if (isObject(node.bool)) for (const key of ["filter", "must"]) visit(node.bool[key]);
      if (isObject(node.constant_score)) visit(node.constant_score.filter);
    }
  }
  visit(query);
  return { first, last };
}

interface SortKey {
  readonly field: string;
  readonly descending: boolean;
  readonly form: "millis" | "nanos" | "text";
}

function readSort(sort: unknown): readonly SortKey[] {
  const list = sort === undefined ? [] : Array.isArray(sort) ? sort : [sort];
  const keys = list.map((entry: unknown): SortKey => {
    const [field, options] =
      typeof entry === "string" ? [entry, {}] : (Object.entries(entry as Json)[0] ?? ["", {}]);
    const order = isObject(options) ? options.order : options;
    const format = isObject(options) ? options.format : undefined;
    const nanos = isObject(options) && options.numeric_type === "date_nanos";
    const form =
      typeof format === "string" && format !== "epoch_millis" ? "text" : nanos ? "nanos" : "millis";
    return { field, descending: order === "desc", form };
  });
  const [first] = keys;
  if (first !== undefined && first.field !== "@timestamp" && first.field !== "_doc") {
    throw new Rejected(`no canned answer is sorted by ${first.field}`);
  }
  return keys;
}

function sortValue(key: SortKey, document: Document, number: number): string {
  if (key.field === "_shard_doc" || key.field === "_doc") return String(number);
  if (key.field === "_id") return JSON.stringify(document.id);
  if (key.field !== "@timestamp") return "null";
  if (key.form === "text") return JSON.stringify(new Date(document.millis).toISOString());
  return key.form === "nanos" ? `${document.millis}000000` : String(document.millis);
}

/** Whether `filter_path` keeps a path of the answer: all of it, what lies above it or what lies below it. */
function keeps(filterPath: string | null, path: string): boolean {
  if (filterPath === null || filterPath === "") return true;
  const segments = path.split(".");
  return filterPath.split(",").some((pattern) => {
    const parts = pattern.split(".");
    for (let at = 0; at < Math.min(parts.length, segments.length); at++) {
      if (parts[at] === "**") return true;
      if (parts[at] !== "*" && parts[at] !== segments[at]) return false;
    }
    return true;
  });
}

/** All hits for one shape of request, joined by commas. Hit n is `bytes[starts[n], starts[n + 1] - 1)`. */
interface Shape {
  readonly bytes: Buffer;
  readonly starts: Uint32Array;
  /** Rising with the hit's number: the negated time where the newest comes first. */
  readonly ranks: Float64Array;
  readonly ascending: boolean;
}
const shapes = new Map<string, Shape>();

function renderShape(body: Json, filterPath: string | null): Shape {
  const sort = readSort(body.sort);
  const wanted = [body.fields, body.docvalue_fields].flat().map((entry: unknown) => {
    return isObject(entry) ? entry.field : entry;
  });
  const withTime = wanted.includes("@timestamp");
  const withSource = body._source !== false;
  if (Array.isArray(body._source) || isObject(body._source) || typeof body._source === "string") {
    throw new Rejected("no canned answer holds parts of _source");
  }
  const ascending = sort[0]?.field === "@timestamp" && !sort[0].descending;
  const kept = ["_index", "_id", "_score", "_source", "fields", "sort"].map((name) => {
    return keeps(filterPath, `hits.hits.${name}`);
  });
  const key = JSON.stringify([sort, withTime, withSource, kept]);
  const known = shapes.get(key);
  if (known !== undefined) return known;

  const ordered = ascending ? corpus.toReversed() : corpus;
  const chunks: Buffer[] = [];
  const starts = new Uint32Array(ordered.length + 1);
  let length = 0;
  ordered.forEach((document, number) => {
    const members = [
      `"_index":"${index}"`,
      `"_id":"${document.id}"`,
      '"_score":null',
      withSource ? `"_source":${document.source}` : "",
      withTime ? `"fields":{"@timestamp":["${new Date(document.millis).toISOString()}"]}` : "",
      sort.length > 0 ? `"sort":[${sort.map((one) => sortValue(one, document, number)).join(",")}]` : "",
    ].filter((member, at) => kept[at] === true && member !== "");
    const chunk = Buffer.from(`{${members.join(",")}},`);
    starts[number] = length;
    length += chunk.length;
    chunks.push(chunk);
  });
  starts[ordered.length] = length;
  const ranks = Float64Array.from(ordered, ({ millis }) => (ascending ? millis : -millis));
  const shape = { bytes: Buffer.concat(chunks), starts, ranks, ascending };
  shapes.set(key, shape);
  return shape;
}

/** The number of the first hit whose rank is at least this. */
function firstAtLeast(ranks: Float64Array, rank: number): number {
  let low = 0;
  let high = ranks.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((ranks[middle] ?? Number.POSITIVE_INFINITY) < rank) low = middle + 1;
    else high = middle;
  }
  return low;
}

interface Scroll {
  readonly body: Json;
  readonly filterPath: string | null;
  readonly at: number;
}

function search(body: Json, query: URLSearchParams, scroll?: Scroll): readonly Buffer[] {
  const filterPath = query.get("filter_path") ?? scroll?.filterPath ?? null;
  const shape = renderShape(body, filterPath);
  const { first, last } = readRange(body.query);
  const low = firstAtLeast(shape.ranks, shape.ascending ? first : -last);
  const end = firstAtLeast(shape.ranks, shape.ascending ? last + 1 : -first + 1);
  const after = Array.isArray(body.search_after) ? readMoment(body.search_after[0]).millis : undefined;
  const start = Math.max(
    low + Number(body.from ?? 0),
    scroll?.at ?? 0,
    after === undefined ? 0 : firstAtLeast(shape.ranks, (shape.ascending ? after : -after) + 1),
  );
  const size = Number(body.size ?? query.get("size") ?? 10);
  if (!Number.isInteger(size) || size < 0 || size > 10_000) throw new Rejected("Result window is too large");
  const stop = Math.max(start, Math.min(end, start + size));

  const total = Math.max(0, end - low);
  const track = body.track_total_hits ?? query.get("track_total_hits") ?? true;
  const most = typeof track === "number" ? track : 10_000;
  const counted =
    track === false || track === "false"
      ? ""
      : `"total":{"value":${Math.min(total, most)},"relation":"${total > most ? "gte" : "eq"}"},`;
  const head: string[] = [];
  if (isObject(body.pit) && keeps(filterPath, "pit_id")) head.push(`"pit_id":${JSON.stringify(body.pit.id)}`);
  if ((scroll !== undefined || query.has("scroll")) && keeps(filterPath, "_scroll_id")) {
    head.push(`"_scroll_id":"${openScroll({ body, filterPath, at: stop })}"`);
  }
  if (keeps(filterPath, "took")) head.push('"took":3');
  if (keeps(filterPath, "timed_out")) head.push('"timed_out":false');
  if (keeps(filterPath, "_shards")) head.push('"_shards":{"total":1,"successful":1,"skipped":0,"failed":0}');
  const outer = keeps(filterPath, "hits.total") ? `${counted}"max_score":null,` : "";
  head.push(`"hits":{${outer}"hits":[`);
  const from = shape.starts[start] ?? 0;
  const to = stop > start ? (shape.starts[stop] ?? 1) - 1 : from;
  return [Buffer.from(`{${head.join(",")}`), shape.bytes.subarray(from, to), Buffer.from("]}}")];
}

const scrolls = new Map<string, Scroll>();
function openScroll(scroll: Scroll): string {
  const id = `scroll-${scroll.at}-${scrolls.size}`;
  scrolls.set(id, scroll);
  return id;
}

// --- HTTP ----------------------------------------------------------------------------------------------------

const identity = {
  name: "canned",
  cluster_name: "bench",
  cluster_uuid: "b3nChb3nChb3nChb3nChbA",
  version: {
    number: version,
    build_flavor: "default",
    build_type: "docker",
    build_hash: "0000000000000000000000000000000000000000",
    build_date: "2026-01-01T00:00:00.000000000Z",
    build_snapshot: false,
    lucene_version: "9.12.2",
    minimum_wire_compatibility_version: "7.17.0",
    minimum_index_compatibility_version: "7.0.0",
  },
  tagline: "You Know, for Search",
};
const nodes = {
  _nodes: { total: 1, successful: 1, failed: 0 },
  cluster_name: "bench",
  nodes: { cannedcannedcanned0000: { name: "canned", version, roles: ["data", "ingest", "master"] } },
};

function namesIndex(pattern: string): boolean {
  return decodeURIComponent(pattern)
    .split(",")
    .some((part) =>
      new RegExp(`^${part.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*")}$`).test(index),
    );
}

function answer(method: string, url: URL, body: Json): Json | readonly Buffer[] | undefined {
  const segments = url.pathname.split("/").filter((segment) => segment !== "");
  const [first = "", second, third] = segments;
  const route = `${method} ${segments.length === 0 ? "/" : segments.map((one) => (one.startsWith("_") || one === "scroll" ? one : "*")).join("/")}`;
  if (!first.startsWith("_") && first !== "" && !namesIndex(first)) return undefined;
  switch (route) {
    case "GET /":
      return identity;
    case "GET _nodes/_local":
    case "GET _nodes":
      return nodes;
    case "GET *":
      return { [index]: { aliases: {}, mappings, settings } };
    case "GET */_mapping":
      return { [index]: { mappings } };
    case "GET */_settings":
      return { [index]: { settings } };
    case "GET */_field_caps":
    case "POST */_field_caps":
    case "GET _field_caps":
    case "POST _field_caps":
      return fieldCapabilities();
    case "GET _resolve/*":
    case "GET _resolve/*/*":
      return { indices: [{ name: index, attributes: ["open"] }], aliases: [], data_streams: [] };
    case "GET */_count":
    case "POST */_count": {
      const { first: from, last: to } = readRange(body.query);
      const count = corpus.filter(({ millis }) => millis >= from && millis <= to).length;
      return { count, _shards: { total: 1, successful: 1, skipped: 0, failed: 0 } };
    }
    case "POST */_pit":
      return { id: "cannedpointintime" };
    case "DELETE _pit":
      return { succeeded: true, num_freed: 1 };
    case "GET */_search":
    case "POST */_search":
    case "GET _search":
    case "POST _search":
      return search(body, url.searchParams);
    case "GET _search/scroll":
    case "POST _search/scroll": {
      const id = String(body.scroll_id ?? url.searchParams.get("scroll_id"));
      const scroll = scrolls.get(id);
      scrolls.delete(id);
      return scroll && search(scroll.body, url.searchParams, scroll);
    }
    case "DELETE _search/scroll":
      for (const id of [body.scroll_id].flat()) scrolls.delete(String(id));
      return { succeeded: true, num_freed: 1 };
    default:
      if (second === "scroll" && third !== undefined) return { succeeded: true, num_freed: 1 };
      return undefined;
  }
}

function reply(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  parts: readonly Buffer[],
): void {
  // The clients ask for the media type of their own version and expect it back.
  const accept = request.headers.accept ?? "";
  const media =
    /application\/vnd\.elasticsearch\+json; ?compatible-with=\d/.exec(accept)?.[0] ?? "application/json";
  response.writeHead(status, {
    "X-elastic-product": "Elasticsearch",
    "Content-Type": media,
    "Content-Length": parts.reduce((sum, part) => sum + part.length, 0),
  });
  if (request.method === "HEAD") return void response.end();
  response.cork();
  for (const part of parts) response.write(part);
  response.end();
}

function printError(status: number, type: string, reason: string): readonly Buffer[] {
  const cause = { type, reason };
  return [Buffer.from(JSON.stringify({ error: { root_cause: [cause], ...cause }, status }))];
}

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const url = new URL(request.url ?? "/", "http://canned");
    const method = request.method === "HEAD" ? "GET" : (request.method ?? "GET");
    try {
      const text = Buffer.concat(chunks).toString();
      const body: unknown = text === "" ? {} : JSON.parse(text);
      const result = answer(method, url, isObject(body) ? body : {});
      if (result === undefined) {
        console.error(`source: nothing canned for ${method} ${request.url} ${text.slice(0, 300)}`);
        reply(
          request,
          response,
          404,
          printError(404, "resource_not_found_exception", "nothing canned for this"),
        );
      } else if (Array.isArray(result)) reply(request, response, 200, result);
      else reply(request, response, 200, [Buffer.from(JSON.stringify(result))]);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      console.error(`source: ${method} ${request.url}: ${reason}`);
      reply(request, response, 400, printError(400, "illegal_argument_exception", reason));
    }
  });
});
server.keepAliveTimeout = 600_000;
server.listen(0, "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  const range = { from: new Date(oldest).toISOString(), to: new Date(newest).toISOString() };
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}`, ...range }));
});
process.on("SIGTERM", () => process.exit(0));
