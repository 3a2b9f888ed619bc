// Credentials with limited rights, on responses recorded from OpenSearch 2.19 with its security plugin and
// `do_not_fail_on_forbidden`, which silently leaves out what is forbidden. A response that may be incomplete is an error.
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildSpanSource } from "#src/access/sites.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { Backend } from "#src/store/backend.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { testIO } from "../../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const denied = (action: string) => {
  const reason = `no permissions for [${action}] and User [name=reader, backend_roles=[], requestedTenant=null]`;
  const type = "security_exception";
  return { error: { root_cause: [{ type, reason }], type, reason }, status: 403 };
};
const definition = (properties: object) => ({
  "app-1": {
    aliases: { apps: {} },
    mappings: { properties },
    settings: { index: { number_of_shards: "1", uuid: "u", version: { created: "136408227" } } },
  },
});
const timed = { "@timestamp": { type: "date" }, message: { type: "text" } };
const hit = {
  _index: "app-1",
  _id: "d0",
  _source: { "@timestamp": "2026-11-23T00:01:00Z", message: "m" },
  sort: [1_795_392_060_000],
};
const found = (hits: readonly object[]) => ({
  took: 1,
  timed_out: false,
  _shards: { total: 1, successful: 1, skipped: 0, failed: 0 },
  hits: { total: { value: hits.length, relation: "eq" }, hits },
});
const resolved = (over: object) => ({ indices: [], aliases: [], data_streams: [], ...over });
const onlyIndex = resolved({ indices: [{ name: "app-1", aliases: ["apps"], attributes: ["open"] }] });
const wholeAlias = resolved({ aliases: [{ name: "apps", indices: ["app-1", "app-2"] }] });

const answerSearch = (hits: readonly object[], aggregations?: object) =>
  aggregations !== undefined && "status" in aggregations
    ? aggregations
    : { ...found(hits), ...(aggregations && Object.keys(aggregations).length > 0 && { aggregations }) };

interface Answers {
  readonly mapping: object;
  readonly resolve?: object;
  /** The hits for the body of a search. */
  readonly search?: (body: string) => readonly object[];
  readonly scroll?: object;
  /** The aggregations, or what has an error's status. */
  readonly aggregate?: (body: string) => object;
}

let fake: ScriptedSource | undefined;
let backend: Backend | undefined;
afterEach(async () => {
  await backend?.close();
  await fake?.close();
});

async function open(
  { mapping, resolve, search = () => [hit], scroll, aggregate }: Answers,
  settings: object = {},
): Promise<Backend> {
  fake = await openScriptedSource((response, { url = "" }, body) => {
    const answer = url.includes("/_search/scroll")
      ? (scroll ?? { status: 400, error: { reason: "Cannot parse scroll id" } })
      : url.includes("/_search")
        ? answerSearch(search(body), aggregate?.(body))
        : url.startsWith("/_resolve/")
          ? (resolve ?? denied("indices:admin/resolve/index"))
          : url === "/" || url.startsWith("/_nodes")
            ? denied("cluster:monitor/main")
            : mapping;
    const { status = 200 } = answer as { status?: number };
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(answer));
  });
  backend = elastic.create("elk", elastic.parseConfig({ url: fake.url, ...settings }), testIO);
  return backend;
}

async function lines(
  index: string,
  answers: Answers,
  {
    where,
    query = "",
    ...settings
  }: { readonly where?: string; readonly query?: string; readonly auth?: object } = {},
): Promise<string[]> {
  return readLines(await open(answers, settings), index, query, where);
}

async function readLines(
  { stores: { logs } }: Backend,
  index: string,
  text: string,
  where?: string,
): Promise<string[]> {
  const ids: string[] = [];
  const query = {
    sources: [{ id: "app", index, layout: "ecs", tenantFilter: where }] as const,
    range: { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) },
    filter: parse(text),
    ...({ order: "asc", expectedLines: 10, documentLimit: 1_000, tieLimit: 1_000 } as const),
  };
  for await (const batch of logs?.lines(query, never) ?? []) ids.push(...batch.map(({ id }) => id));
  return ids;
}

const inspect = async (answers: Answers, settings?: object) => {
  const { inspections } = await open(answers, settings);
  return inspections.logs?.({ id: "app", index: "app-1", layout: "ecs", tenantFilter: undefined }, never);
};

describe("refused credentials", () => {
  test("reports 401 as retryable and not as not_supported_by_backend", async () => {
    fake = await openScriptedSource((response, { url }) => {
      if (url === "/") return sendJson(response, { version: { number: "8.19.8" } });
      sendJson(response, { error: {}, status: 401 }, 401);
    });
    backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
    const sources = [buildSpanSource("shop", { index: "app-*", layout: "otel" })] as const;
    const of = { by: "trace", traceIds: ["a".repeat(32)], select: "all" } as const;
    const found = backend.stores.traces?.find({ sources, of, budget: createBudget(9) }, never);
    await expect(found?.[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      failure: "denied",
      status: 401,
    });
  });
});

describe("alias without index metadata permission", () => {
  const mapping = denied("indices:admin/get");
  test("is refused when only some of its indices may be read", async () => {
    const answers = { mapping, resolve: onlyIndex };
    await expect(lines("apps", answers)).rejects.toMatchObject({
      failure: "partial",
      message: "the credentials may read some of the indices of apps only",
    });
  });
  test("is read when all of its indices may be read", async () => {
    expect(await lines("apps", { mapping, resolve: wholeAlias })).toEqual(["app-1/d0"]);
    expect(await lines("app-1", { mapping, resolve: onlyIndex })).toEqual(["app-1/d0"]);
    expect(await lines("app-*", { mapping })).toEqual(["app-1/d0"]);
  });
  test("is refused when it cannot be resolved", async () => {
    await expect(lines("apps", { mapping })).rejects.toMatchObject({ failure: "denied" });
  });
});

describe("documents whose time field is hidden", () => {
  // Field-level security hides the field in the mapping, in searches and in documents.
  const hidden = definition({ message: { type: "text" } });
  const search = (body: string) =>
    body.includes("must_not") ? [{ ...hit, _source: { message: "m" }, sort: [0] }] : [];
  test.each([
    ["hidden in the mapping as well", hidden],
    ["with a mapping that may not be read", denied("indices:admin/get")],
  ])("are refused when the time is %s", async (_, mapping) => {
    await expect(lines("app-1", { mapping, resolve: onlyIndex, search })).rejects.toMatchObject({
      slug: "not_supported_by_backend",
      details: { feature: "documents without @timestamp" },
    });
  });
  test("are refused where the field of the tenant filter is hidden too", async () => {
    await expect(
      lines("app-1", { mapping: hidden, resolve: onlyIndex, search }, { where: "tenant=a" }),
    ).rejects.toMatchObject({ details: { feature: "documents without @timestamp" } });
  });
  test("are not assumed in an empty index", async () => {
    expect(await lines("app-1", { mapping: hidden, search: () => [] })).toEqual([]);
  });
  test("are reported by check", async () => {
    expect((await inspect({ mapping: hidden, search }))?.problems).toEqual([
      "no document in app-1 has a readable time field (@timestamp): wrong layout, or hidden by field-level security",
    ]);
  });
});

describe("a tenant filter", () => {
  const keyword = { type: "keyword" };
  const own = '{"term":{"tenant":"a"}}';
  /** The searches that could answer with a document, or with how many there are. */
  const listSearches = () =>
    (fake?.requests ?? [])
      .filter(({ path, body }) => path.includes("/_search") && !body.includes("scroll_id"))
      .map(({ body }) => JSON.parse(body) as { size?: number; track_total_hits?: unknown; query?: object })
      .filter(({ size, track_total_hits }) => size !== 0 || track_total_hits !== false);

  test("is part of the search for documents without a time", async () => {
    const mapping = definition({ message: { type: "text" }, tenant: keyword });
    // Only another tenant has documents.
    const search = (body: string) => (body.includes("must_not") && !body.includes(own) ? [hit] : []);
    expect(await lines("app-1", { mapping, search }, { where: "tenant=a" })).toEqual([]);
    const searches = listSearches();
    expect(searches.map(({ size }) => size)).toContain(0);
    for (const { query } of searches) expect(JSON.stringify(query)).toContain(own);
  });
  test.each([
    ["a mapping that may not be read", denied("indices:admin/get"), "the mapping may not be read"],
    [
      "a text field",
      definition({ message: { type: "text" }, tenant: { type: "text" } }),
      "must be a keyword",
    ],
  ])("that cannot be compiled for %s has no document looked at", async (_, mapping, problem) => {
    const { inspections } = await open({ mapping, resolve: onlyIndex });
    const source = { id: "app", index: "app-1", layout: "auto", tenantFilter: "tenant=a" };
    const report = await inspections.logs?.(source, never);
    expect(report?.problems.join()).toContain(problem);
    expect(listSearches()).toEqual([]);
  });
});

describe("scroll permissions", () => {
  test("check reports missing scroll permissions", async () => {
    const mapping = definition(timed);
    expect((await inspect({ mapping }))?.limitations.join()).not.toContain("scroll");
    const { problems, limitations } = (await inspect({ mapping, scroll: denied("scroll") })) ?? {};
    expect(problems).toEqual([]);
    expect(limitations?.filter((one) => one.includes("scroll"))).toEqual([
      "large traces, and many lines of one millisecond, are errors without the cluster permission indices:data/read/scroll",
      "scrolls hold resources for a minute without the cluster permission indices:data/read/scroll/clear",
    ]);
  });
});

describe("masked field", () => {
  const mapping = definition({ ...timed, user: { type: "keyword" }, other: { type: "keyword" } });
  const digest = "1fe4d68cc6ddbe09d65de9119d7cf76bebde55625ee4efdf813888e44fcd9aab";
  /** `user` is masked. `other` shows a value that a second copy of the shard does not have. */
  const aggregateOf = (values: Readonly<Record<string, string>>) => (body: string) => {
    const { aggs } = JSON.parse(body) as {
      aggs?: Record<string, { aggs?: { values: Terms }; filter: Term }>;
    };
    return Object.fromEntries(
      Object.entries(aggs ?? {}).map(([name, { aggs, filter }]) => {
        const field = aggs?.values.terms.field ?? Object.keys(filter.term ?? {})[0] ?? "";
        const key = values[field];
        const buckets = key === undefined ? [] : [{ key, doc_count: 1 }];
        return [name, aggs === undefined ? { doc_count: 0 } : { doc_count: 1, values: { buckets } }];
      }),
    );
  };
  const aggregate = aggregateOf({ user: digest, other: "o" });
  type Terms = { readonly terms: { readonly field: string } };
  type Term = { readonly term?: object };
  const search = (body: string) => (body.includes(digest) ? [] : [hit]);

  test("is reported by check when credentials are used", async () => {
    const auth = { username: "masked", password: "p" };
    const report = await inspect({ mapping, search, aggregate }, { auth });
    expect(report?.problems).toEqual([]);
    expect(report?.limitations).toContain(
      "user: masked for this user; filters on them read every line of the range",
    );
  });
  test.each(["user!=x", "user=x"])("is refused in the tenant filter %s", async (where) => {
    const auth = { username: "masked", password: "p" };
    await expect(lines("app-1", { mapping, search, aggregate }, { auth, where })).rejects.toMatchObject({
      slug: "not_supported_by_backend",
      details: { feature: "a where on a masked field" },
    });
    const other = { auth, where: where.replace("user", "other") };
    expect(await lines("app-1", { mapping, search, aggregate }, other)).toEqual(["app-1/d0"]);
  });
  test("is refused in a tenant filter when few documents have it", async () => {
    const auth = { username: "masked", password: "p" };
    const rare = (body: string) => (body.includes('{"exists":{"field":"user"}}') ? aggregate(body) : {});
    const answers = { mapping, search, aggregate: rare };
    await expect(lines("app-1", answers, { auth, where: "user!=x" })).rejects.toMatchObject({
      details: { feature: "a where on a masked field" },
    });
  });
  test("is not used to narrow a log query", async () => {
    const auth = { username: "masked", password: "p" };
    const masked = { ...hit, _source: { ...hit._source, user: digest } };
    const searched = (body: string) => (body.includes(digest) ? [] : [masked]);
    const answers = { mapping, search: searched, aggregate };
    expect(await lines("app-1", answers, { auth, query: `user=${digest}` })).toEqual(["app-1/d0"]);
    expect(await lines("app-1", answers, { auth, query: "user=x" })).toEqual([]);
  });
  test("does not keep a query from being sent that has its name as a value", async () => {
    const auth = { username: "masked", password: "p" };
    await lines("app-1", { mapping, search, aggregate }, { auth, query: "other=user" });
    expect(fake?.requests.map(({ body }) => body).join()).toContain('{"term":{"other":"user"}}');
  });
  test("is asked for once, whatever other fields stand beside it", async () => {
    const auth = { username: "masked", password: "p" };
    const backend = await open({ mapping, search, aggregate }, { auth });
    const queries = ["user=x", "user=x AND other=y", "other=y AND user=z", "other=y"];
    for (const query of queries) await readLines(backend, "app-1", query);
    const countProbes = (field: string) => {
      const probe = `"query":{"exists":{"field":"${field}"}},"aggs"`;
      return fake?.requests.filter(({ body }) => body.includes(probe)).length;
    };
    // A value of each, and how many documents a search finds by it.
    expect([countProbes("user"), countProbes("other")]).toEqual([2, 2]);
  });
  test("is seen in the first document that comes with it", async () => {
    const auth = { username: "masked", password: "p" };
    const masked = { ...hit, _source: { ...hit._source, user: digest } };
    let hasCome = false;
    const answers = {
      mapping,
      search: (body: string) => (hasCome && !body.includes(digest) ? [masked] : []),
      aggregate: (body: string) => aggregateOf(hasCome ? { user: digest } : {})(body),
    };
    const backend = await open(answers, { auth });
    expect(await readLines(backend, "app-1", `user=${digest}`)).toEqual([]);
    hasCome = true;
    expect(await readLines(backend, "app-1", `user=${digest}`)).toEqual(["app-1/d0"]);
  });
  test("is seen where the probe of another field is rejected", async () => {
    const auth = { username: "masked", password: "p" };
    const failing = (body: string) => (body.includes('"field":"other"') ? { status: 400 } : aggregate(body));
    const masked = { ...hit, _source: { ...hit._source, user: digest, other: "o" } };
    const searched = (body: string) => (body.includes(digest) ? [] : [masked]);
    const answers = { mapping, search: searched, aggregate: failing };
    const query = `user=${digest} AND other=o`;
    expect(await lines("app-1", answers, { auth, query })).toEqual(["app-1/d0"]);
  });
  test("is refused where spans are looked up by it", async () => {
    const texts = ["trace_id", "span_id", "name", "kind"].map((name) => [name, { type: "keyword" }] as const);
    const spans = { ...timed, ...Object.fromEntries(texts), duration: { type: "long" } };
    const auth = { username: "masked", password: "p" };
    const find = async (masked: string | number): Promise<number> => {
      const answers = {
        mapping: definition(spans),
        search: () => [],
        aggregate:
          typeof masked === "number"
            ? (body: string) => (body.includes('"values"') ? { status: masked } : {})
            : aggregateOf({ [masked]: digest }),
      };
      const { traces } = (await open(answers, { auth })).stores;
      const sources = [buildSpanSource("shop", { index: "app-1", layout: "otel" })] as const;
      const of = { by: "trace", traceIds: ["a".repeat(32)], select: "all" } as const;
      let count = 0;
      const lookup = { sources, of, budget: createBudget(100) };
      for await (const batch of traces?.find(lookup, never) ?? []) count += batch.length;
      await backend?.close();
      await fake?.close();
      return count;
    };
    expect(await find("name")).toBe(0);
    await expect(find("trace_id")).rejects.toMatchObject({
      slug: "not_supported_by_backend",
      details: { feature: "a filter on a masked field" },
    });
    await backend?.close();
    await fake?.close();
    // A server that does not take the probe shows no masked field. One that fails over it may have one.
    expect(await find(400)).toBe(0);
    await expect(find(500)).rejects.toMatchObject({ failure: "rejected", status: 500 });
  });
  test.each<[string, (body: string) => object]>([
    ["has no aggregations", () => ({})],
    ["has values of another form", () => ({ f0: { doc_count: 1, values: { sum: 1 } } })],
    [
      "has no value beside a count",
      () => ({ f0: { doc_count: 1, values: { buckets: [{ doc_count: 1 }] } } }),
    ],
    ["has no count", (body) => (body.includes('"values"') ? aggregate(body) : { f0: {} })],
  ])("is not ruled out by an answer that %s", async (_, answer) => {
    const auth = { username: "masked", password: "p" };
    const answers = { mapping, search, aggregate: answer };
    const malformed = { failure: "malformed" };
    await expect(lines("app-1", answers, { auth, where: "user!=x" })).rejects.toMatchObject(malformed);
    await expect(lines("app-1", answers, { auth, query: "user=x" })).rejects.toMatchObject(malformed);
    await expect(inspect(answers, { auth })).rejects.toMatchObject(malformed);
  });
  test("is not ruled out by an answer that is not complete", async () => {
    const auth = { username: "masked", password: "p" };
    const late = (body: string) => ({
      ...found([]),
      status: 200,
      timed_out: true,
      aggregations: aggregate(body),
    });
    const read = lines("app-1", { mapping, search, aggregate: late }, { auth, where: "user!=x" });
    await expect(read).rejects.toMatchObject({ failure: "partial" });
  });
  test("is in no document where no shard is searched, whose answer has no aggregations", async () => {
    const auth = { username: "masked", password: "p" };
    const _shards = { total: 0, successful: 0, skipped: 0, failed: 0 };
    const none = (body: string) => (body.includes('"values"') ? { ...found([]), status: 200, _shards } : {});
    const answers = { mapping, search, aggregate: none };
    expect(await lines("app-1", answers, { auth, where: "user!=x" })).toEqual(["app-1/d0"]);
  });
  test("is not probed without credentials", async () => {
    expect((await inspect({ mapping, search, aggregate }))?.limitations.join()).not.toContain("masked");
  });
});

describe("hidden data", () => {
  test("check names the permission that is missing for mappings", async () => {
    const report = await inspect({ mapping: denied("indices:admin/get"), resolve: onlyIndex });
    expect(report?.limitations.join()).toContain(
      "on OpenSearch indices:admin/get on all that the pattern matches",
    );
  });

  test("check reports document and field security of Elasticsearch", async () => {
    fake = await openScriptedSource((response, { url = "" }) => {
      // Recorded from Elasticsearch 8.19.
      const own = (over: object) => ({
        names: ["app-*"],
        privileges: ["read", "view_index_metadata"],
        ...over,
      });
      const indices = [
        own({ field_security: [{ grant: ["*"], except: ["secretfield"] }] }),
        own({ names: ["web-1"], query: ['{"term":{"tenant":"a"}}'] }),
        own({ names: ["other"] }),
      ];
      if (url.includes("/_search")) sendJson(response, found([hit]));
      else if (url.startsWith("/_security/user/_privileges")) sendJson(response, { cluster: [], indices });
      else sendJson(response, url === "/" ? { version: { number: "8.19.8" } } : definition(timed));
    });
    const auth = { username: "u", password: "p" };
    backend = elastic.create("elk", elastic.parseConfig({ url: fake.url, auth }), testIO);
    const report = await backend.inspections.logs?.(
      { id: "app", index: "app-1", layout: "ecs", tenantFilter: undefined },
      never,
    );
    expect(report?.limitations.filter((one) => one.includes("security"))).toEqual([
      "app-*: security hides fields from this user",
      "web-1: security hides documents from this user",
    ]);
  });
});
