// The definitions against figures worked out by hand.
import { describe, expect, test } from "vitest";
import type { Attributes, Span, TraceSummary } from "#src/model.ts";
import type { SpanReader } from "#src/reader.ts";
import type { EdgesQuery, ListingQuery } from "#src/store.ts";
import { analyticsOver } from "#src/tracing/analytics.ts";
import { arrange } from "#src/tracing/arrange.ts";
import { decodeDigest, errorDigest, eventDigest, hashStatement } from "#src/tracing/digest.ts";
import { exceptionsOf } from "#src/tracing/exception.ts";
import { createFigures } from "#src/tracing/figures.ts";
import { createFamily } from "#src/tracing/request.ts";
import { readNames } from "#src/tracing/source.ts";
import { readerOver } from "../conformance/traces.ts";
import { at, budget, exception, range, signal, source, span } from "./build.ts";

const shop = source("shop");
const stock = source("stock");

async function list(spans: readonly Span[], over: Partial<ListingQuery> = {}): Promise<TraceSummary[]> {
  const query: ListingQuery = {
    sources: [shop, stock],
    candidates: "requests",
    range,
    filter: { query: { kind: "all" } },
    by: "time",
    order: "asc",
    wanted: 100,
    tieLimit: 100,
    budget: budget(),
    ...over,
  };
  const rows: TraceSummary[] = [];
  for await (const batch of analyticsOver(readerOver(spans)).summaries(query, signal)) rows.push(...batch);
  return rows;
}

describe("requests", () => {
  const server = span({ span_kind: "server", span_name: "GET /" });

  test.each([
    ["a root", {}, true],
    ["a server", { parent_span_id: "p", span_kind: "server" }, true],
    ["a consumer", { parent_span_id: "p", span_kind: "consumer" }, true],
    ["an orphan of another kind", { parent_span_id: "p", span_kind: "internal" }, false],
    ["a report", { report: true }, false],
  ] as const)("%s", async (_, over, isOne) => {
    expect(await list([span(over)])).toHaveLength(isOne ? 1 : 0);
  });

  test("names: the attributes, else the kind and the span's name, and never nothing", async () => {
    const named = async (over: Partial<Span>) => {
      const [row] = await list([{ ...server, ...over }]);
      return `${row?.namespace} ${row?.action_name}`;
    };
    expect(await named({ namespace: "admin", action: "Cart#show" })).toBe("admin Cart#show");
    expect(await named({})).toBe("web GET /");
    expect(await named({ span_kind: "consumer" })).toBe("background GET /");
    expect(await named({ span_kind: "client" })).toBe("background GET /");
    expect(await named({ span_name: "" })).toBe("web unknown");
  });

  test("the configured attributes and prefixes are read as texts", () => {
    const attributes = {
      "appsignal.tag.region": "eu",
      "appsignal.tag.": "x",
      t_region: "us",
      t_n: 5,
      ns: "",
      act: 7,
    };
    const own = {
      ...shop,
      tagPrefixes: ["appsignal.tag.", "t_"],
      namespaceAttribute: "ns",
      actionAttribute: "act",
    };
    expect(readNames(attributes, own)).toEqual({
      namespace: undefined,
      action: undefined,
      tags: { region: "eu", n: 5 },
    });
    // A list stands for its first, because an index does not tell a list of one from its element.
    const lists = { ns: [null, "admin", "x"], act: [["A#b"], "c"] };
    expect(readNames(lists, own)).toEqual({ namespace: "admin", action: "A#b", tags: {} });
    for (const empty of [[], [null], [5, "x"], {}, null])
      expect(readNames({ ns: empty, act: empty }, own)).toEqual({
        ...{ namespace: undefined, action: undefined, tags: {} },
      });
  });

  test("a span belongs to the nearest entry above it in its own site", () => {
    const child = span({ span_id: "s2", parent_span_id: "s1" });
    const grandchild = span({ span_id: "s3", parent_span_id: "s2" });
    const elsewhere = { ...grandchild, site_id: "stock" };
    const lost = span({ span_id: "s9", parent_span_id: "s8" });
    const family = createFamily([server, child, grandchild, elsewhere, lost]);
    expect([server, child, grandchild].map(family.entryOf)).toEqual([server, server, server]);
    expect([elsewhere, lost].map(family.entryOf)).toEqual([undefined, undefined]);
  });

  test("an entry far above is found in few rounds", async () => {
    const chain = Array.from({ length: 1_000 }, (_, n) =>
      span({
        span_id: `s${n}`,
        parent_span_id: n === 0 ? undefined : `s${n - 1}`,
        action: n === 0 ? "Deep" : undefined,
        events: n === 999 ? [exception(1, "E")] : [],
      }),
    );
    const lost = span({ span_id: "x", parent_span_id: "y", events: [exception(2, "E")] });
    const reader = readerOver([...chain, lost]);
    let rounds = 0;
    const counted: SpanReader = {
      ...reader,
      find: (query, abort) => {
        rounds += 1;
        return reader.find(query, abort);
      },
    };
    const asked = { sources: [shop], traceId: "t1", budget: budget() } as const;
    const { errors } = await analyticsOver(counted).locate(asked, signal);
    expect(errors.map(({ digest }) => decodeDigest(digest))).toEqual([
      { of: "error", exception: "E", namespace: "background", action: "Deep" },
      { of: "error", exception: "E", namespace: "background", action: "work" },
    ]);
    expect(rounds).toBeLessThan(30);
  });

  test("span ids are of one trace: others may have the same", async () => {
    const spans = ["A", "B", "C"].flatMap((action) => [
      span({ trace_id: action, span_kind: "server", action }),
      span({ trace_id: action, span_id: "s2", parent_span_id: "s1", events: [exception(1, "E")] }),
      span({ trace_id: action, span_id: "s3", parent_span_id: "s2", events: [exception(2, "E")] }),
    ]);
    const rows = await list(spans, { candidates: "errors" });
    expect(rows.map(({ trace_id, action_name }) => [trace_id, action_name])).toEqual([
      ["A", "A"],
      ["B", "B"],
      ["C", "C"],
    ]);
    const { entryOf } = createFamily(spans);
    for (const one of spans) expect(entryOf(one)?.action).toBe(one.trace_id);
  });

  test("parents that go round in a circle lead nowhere", () => {
    const a = span({ span_id: "a", parent_span_id: "b" });
    const b = span({ span_id: "b", parent_span_id: "a" });
    const self = span({ span_id: "c", parent_span_id: "c" });
    expect([a, b, self].map(createFamily([a, b, self]).entryOf)).toEqual([undefined, undefined, undefined]);
  });

  test("both sides of a call under one id: what is below belongs to the side that was called", () => {
    const client = span({ span_id: "x", parent_span_id: "s1", span_kind: "client" });
    const called = span({ span_id: "x", parent_span_id: "s1", span_kind: "server", from: 1 });
    const below = span({ span_id: "y", parent_span_id: "x" });
    expect(createFamily([server, client, called, below]).entryOf(below)).toBe(called);
  });
});

describe("listings", () => {
  const root = span({ span_id: "root", from: 0, to: 100, action: "Root", span_kind: "server" });
  const early = span({
    span_id: "b",
    parent_span_id: "root",
    from: 10,
    to: 20,
    action: "Early",
    span_kind: "server",
  });
  const twin = span({
    span_id: "a",
    parent_span_id: "root",
    from: 10,
    to: 30,
    action: "Twin",
    span_kind: "server",
  });
  const ids = (rows: readonly TraceSummary[]): string[] => rows.map(({ span_id }) => span_id);

  test("one row per site and trace: the root, else the earliest start, then the least id", async () => {
    expect(ids(await list([early, root, twin]))).toEqual(["root"]);
    expect(ids(await list([early, twin]))).toEqual(["a"]);
    expect(ids(await list([root, { ...early, site_id: "stock" }]))).toEqual(["b", "root"]);
    expect(ids(await list([root, { ...root, trace_id: "t2" }]))).toEqual(["root", "root"]);
  });

  test("filters come before the row is chosen, and the position after it", async () => {
    const filter = { action: "Early", query: { kind: "all" } } as const;
    expect(ids(await list([early, root, twin], { filter }))).toEqual(["b"]);
    expect(ids(await list([early, root, twin], { range: { from: at(0), to: at(99) } }))).toEqual(["a"]);
    expect(ids(await list([early, root, twin], { order: "desc", beyond: at(50) }))).toEqual([]);
  });

  test("a request is in the range by its end, to the nanosecond", async () => {
    expect(ids(await list([root], { range: { from: at(100), to: at(100) } }))).toEqual(["root"]);
    expect(ids(await list([root], { range: { from: at(0), to: at(99.999999) } }))).toEqual([]);
    expect(ids(await list([root], { range: { from: at(100.000001), to: at(200) } }))).toEqual([]);
  });

  test("a clock that ran backwards makes no negative length", async () => {
    expect(await list([span({ from: 20, to: 10 })])).toMatchObject([{ time: at(10), duration: 0n }]);
  });

  test("too many rows are those of one millisecond, and not of many", async () => {
    const rows = (to: (n: number) => number) =>
      list(
        [1, 2, 3].map((n) => span({ trace_id: `t${n}`, to: to(n) })),
        { tieLimit: 2 },
      );
    expect(await rows((n) => n)).toHaveLength(3);
    expect(await rows((n) => (n === 3 ? 2 : 1))).toHaveLength(3);
    await expect(rows((n) => 1 + n / 10)).rejects.toMatchObject({ slug: "result_too_large" });
  });

  test("a row tells of its entry: asynchronous children that end later do not count", async () => {
    const late = span({ span_id: "late", parent_span_id: "root", to: 900 });
    const [row] = await list([{ ...root, tags: { region: "eu" }, revision: "r1" }, late]);
    expect(row).toEqual({
      ...{ site_id: "shop", trace_id: "t1", span_id: "root", namespace: "web", action_name: "Root" },
      ...{ revision: "r1", time: at(100), duration: 100_000_000n, tags: { region: "eu" }, has_npo: false },
    });
  });

  test("N+1: five equal queries below one parent, counted whole, and of this request alone", async () => {
    const query = (n: number, over: Partial<Span> = {}): Span =>
      span({
        ...{ span_id: `q${n}`, parent_span_id: "m", span_kind: "client" },
        ...{ statement: `SELECT ${n} FROM t`, to: 2_000 + n },
        ...over,
      });
    const middle = span({ span_id: "m", parent_span_id: "root" });
    const queries = (count: number, over: Partial<Span> = {}) =>
      Array.from({ length: count }, (_, n) => query(n, over));
    const detects = async (...spans: readonly Span[]): Promise<boolean | undefined> =>
      (await list([root, middle, ...spans]))[0]?.has_npo;
    expect(await detects(...queries(5))).toBe(true);
    expect(await detects(...queries(4))).toBe(false);
    expect(await detects(query(0, { count: 5 }))).toBe(true);
    expect(await detects(...queries(3), query(7, { count: 2 }))).toBe(true);
    expect(await detects(...queries(4), query(5, { statement: "SELECT 1 FROM other" }))).toBe(false);
    expect(await detects(...queries(4), query(5, { parent_span_id: "root" }))).toBe(false);
    expect(await detects(...queries(5, { span_kind: "internal" }))).toBe(false);
    expect(await detects(...queries(5, { statement: undefined }))).toBe(false);
    expect(await detects(...queries(5, { parent_span_id: "lost" }))).toBe(false);
    // Below a request of its own, the root has none.
    expect(await detects({ ...early, site_id: "shop" }, ...queries(5, { parent_span_id: "b" }))).toBe(false);
  });

  test.each([undefined, "", 5, null])("an exception without a type is unknown: %j", (type) => {
    const told = { "exception.type": type, "appsignal.incident_digest": type };
    const attributes = Object.fromEntries(Object.entries(told).filter(([, value]) => value !== undefined));
    const one = span({ events: [{ name: "exception", time: at(1), attributes: attributes as Attributes }] });
    const names = { namespace: "web", action: "A" };
    expect(exceptionsOf(one, names)).toEqual([
      { time: at(1), name: "unknown", digest: errorDigest("unknown", names) },
    ]);
  });

  describe("of errors", () => {
    const inner = span({
      ...{ span_id: "i", parent_span_id: "root", from: 5, to: 50, span_name: "charge" },
      events: [exception(20, "Timeout"), exception(6, "KeyError")],
    });
    const other = span({ span_id: "j", parent_span_id: "root", events: [exception(10, "Timeout", "d1")] });

    test("the first exception's span, with the entry above it, in the range by the entry's end", async () => {
      const errors = { candidates: "errors" } as const;
      const [row] = await list([root, inner, other], errors);
      expect(row).toMatchObject({ span_id: "j", action_name: "Root", time: at(100), duration: 100_000_000n });
      expect(await list([root, inner, other], { ...errors, range: { from: at(0), to: at(60) } })).toEqual([]);
      const after = { ...errors, range: { from: at(90), to: at(110) } };
      expect(ids(await list([root, inner, other], after))).toEqual(["j"]);
      expect(await list([root, { ...inner, status_code: "ERROR", events: [] }], errors)).toEqual([]);
      // An earlier one, of a request that ends after the range.
      const entry = { span_id: "l", parent_span_id: "root", span_kind: "server", to: 1_500 } as const;
      const ended = span({ ...entry, events: [exception(1, "Early")] });
      expect(ids(await list([root, inner, ended], errors))).toEqual(["i"]);
    });

    test("that the filters accept: by digest the other span's", async () => {
      const digest = errorDigest("KeyError", { namespace: "web", action: "Root" });
      const only = async (digests: readonly [string, ...string[]]) =>
        ids(
          await list([root, inner, other], {
            candidates: "errors",
            filter: { digests, query: { kind: "all" } },
          }),
        );
      expect(await only([digest])).toEqual(["i"]);
      expect(await only(["d1"])).toEqual(["j"]);
      expect(await only(["d2"])).toEqual([]);
      const requests = await list([root, inner, other], {
        filter: { digests: ["d1"], query: { kind: "all" } },
      });
      expect(ids(requests)).toEqual(["root"]);
    });

    test("without an entry above: its own span's name, kind, end and length", async () => {
      const lost = { ...inner, parent_span_id: "gone", span_kind: "client" } as const;
      const [row] = await list([lost], { candidates: "errors" });
      expect(row).toMatchObject({
        span_id: "i",
        namespace: "background",
        action_name: "charge",
        time: at(50),
      });
    });

    test("reports are errors and no requests", async () => {
      const report = span({
        report: true,
        namespace: "frontend",
        events: [exception(0, "TypeError")],
        to: 0,
      });
      expect(await list([report])).toEqual([]);
      expect(await list([report], { candidates: "errors" })).toMatchObject([{ namespace: "frontend" }]);
      const located = await analyticsOver(readerOver([report])).locate(
        { sources: [shop], traceId: "t1", budget: budget() },
        signal,
      );
      expect(located).toMatchObject({ performance: [], errors: [{ exception_name: "TypeError" }] });
    });
  });
});

test("figures: nearest rank, means over what compressed spans stand for", () => {
  const figures = createFigures();
  for (let n = 1; n <= 60; n += 1) figures.add(span({ span_id: `s${n}`, to: n }));
  expect([figures.percentile(90), figures.percentile(95), figures.mean()]).toEqual([54, 57, 30.5]);
  for (let n = 61; n <= 200; n += 1) figures.add(span({ span_id: `s${n}`, to: n }));
  expect([figures.percentile(90), figures.percentile(95)]).toEqual([180, 190]);
  const weighted = createFigures();
  weighted.add(span({ to: 90, count: 9 }));
  weighted.add(span({ to: 100, status_code: "ERROR" }));
  expect([weighted.count(), weighted.errorCount(), weighted.mean()]).toEqual([10, 1, 19]);
  expect([weighted.percentile(90), weighted.percentile(95)]).toEqual([10, 100]);
  expect(createFigures().percentile(95)).toBe(0);
});

test("actions: by namespace and action whatever the service, with errors and N+1", async () => {
  const request = (id: string, over: Partial<Span> = {}): Span =>
    span({ span_id: id, trace_id: id, span_kind: "server", action: "A", to: 100, ...over });
  const queries = Array.from({ length: 5 }, (_, n) =>
    span({ span_id: `q${n}`, trace_id: "a", parent_span_id: "a", span_kind: "client", statement: "q" }),
  );
  const spans = [
    request("a"),
    request("b", { service_name: "api", status_code: "ERROR", end: at(300), revision: "r2" }),
    request("c", { action: "B", namespace: "admin" }),
    request("d", { end: at(5_000) }),
    request("e", { report: true }),
    ...queries,
  ];
  const { actions } = analyticsOver(readerOver(spans));
  const ask = (over: object) =>
    actions({ sources: [shop], range, namespaces: [], budget: budget(), ...over }, signal);
  const a = { namespace: "web", action: "A", count: 2, error_count: 1, mean: 200, has_npo: true };
  const b = { namespace: "admin", action: "B", count: 1, error_count: 0, mean: 100, has_npo: false };
  expect(await ask({})).toEqual([a, b]);
  expect(await ask({ namespaces: ["admin", "none"] })).toEqual([b]);
  expect(await ask({ action: "B" })).toEqual([b]);
  expect(await ask({ revision: "r2" })).toEqual([{ ...a, count: 1, mean: 300, has_npo: false }]);
});

test("an N+1 is found in the last of many traces, and in the first", async () => {
  const requests = Array.from({ length: 1_200 }, (_, n) =>
    span({ ...{ trace_id: `${n}`, span_id: "r", span_kind: "server" }, action: n === 0 ? "First" : "Last" }),
  );
  const queries = ["0", "1199"].map((trace_id) =>
    span({
      ...{ trace_id, span_id: "q", parent_span_id: "r", span_kind: "client" },
      statement: "q",
      count: 9,
    }),
  );
  const actions = async (spans: readonly Span[]) => {
    const query = { sources: [shop], range, namespaces: [], budget: budget() } as const;
    const rows = await analyticsOver(readerOver(spans)).actions(query, signal);
    return rows.map(({ action, has_npo }) => [action, has_npo]);
  };
  expect(await actions([...requests, ...queries])).toEqual([
    ["First", true],
    ["Last", true],
  ]);
  expect(await actions([...requests, ...queries.slice(0, 1)])).toEqual([
    ["First", true],
    ["Last", false],
  ]);
  // Beside a request whose action is known to have one already.
  const beside = { trace_id: "1199", span_id: "x", parent_span_id: "r", span_kind: "server" } as const;
  expect(await actions([...requests, span({ ...beside, action: "First" }), ...queries])).toEqual([
    ["First", true],
    ["Last", true],
  ]);
});

describe("edges", () => {
  const root = span({ span_id: "root", span_kind: "server", action: "Pay", to: 200 });
  const middle = span({ span_id: "m", parent_span_id: "root" });
  const call = span({
    span_id: "c",
    parent_span_id: "m",
    span_kind: "client",
    peer: "stock.internal",
    to: 40,
  });
  const taken = span({
    ...{ site_id: "stock", span_id: "k", parent_span_id: "c", span_kind: "server", to: 30 },
    ...{ service_name: "stock", action: "Reserve" },
  });
  const query = span({
    ...{ span_id: "q", parent_span_id: "m", span_kind: "client", peer: "postgresql" },
    ...{ to: 60, count: 3, status_code: "ERROR" },
  });
  const nameless = span({ span_id: "n", parent_span_id: "m", span_kind: "client" });
  const send = span({ span_id: "p", parent_span_id: "root", span_kind: "producer", peer: "mails", to: 10 });
  const job = span({
    ...{
      span_id: "w",
      trace_id: "t2",
      span_kind: "consumer",
      service_name: "worker",
      action: "Mail",
      to: 900,
    },
    links: [{ trace_id: "t1", span_id: "p", trace_state: "", attributes: {} }],
  });
  const { siteEdges, actionEdges } = analyticsOver(
    readerOver([root, middle, call, taken, query, nameless, send, job]),
  );
  const asked = { sources: [shop], partners: [stock], range, budget: budget() } as const;
  const figures = (count: number, error_count: number, mean: number) => {
    return { count, error_count, mean, p_90: mean, p_95: mean };
  };

  test("of a site: callers' figures, peers without spans by name, what links join", async () => {
    expect(await siteEdges(asked, signal)).toEqual({
      upstream: [],
      downstream: [
        { service: "stock", ...figures(1, 0, 40) },
        { service: "postgresql", ...figures(3, 3, 20) },
      ],
      internal: [{ service: "worker", ...figures(1, 0, 10) }],
    });
    expect(await siteEdges({ ...asked, sources: [stock], partners: [shop] }, signal)).toEqual({
      upstream: [{ service: "web", ...figures(1, 0, 40) }],
      downstream: [],
      internal: [],
    });
  });

  test("a partner that may not be seen is known by the caller's attributes, and calls nobody", async () => {
    const { downstream } = await siteEdges({ ...asked, partners: [] }, signal);
    expect(downstream).toContainEqual({ service: "stock.internal", ...figures(1, 0, 40) });
    const { upstream } = await siteEdges({ ...asked, sources: [stock], partners: [] }, signal);
    expect(upstream).toEqual([]);
  });

  test("of sites that hold the same spans are counted once, as the site's own where it has them", async () => {
    const spans = [root, middle, call, taken, query, nameless, send, job];
    const copies = spans.flatMap((one) => [
      { ...one, site_id: "both" },
      { ...one, site_id: "other" },
    ]);
    const shared = analyticsOver(readerOver([...copies, ...spans])).siteEdges;
    const [both, other] = [source("both"), source("other")];
    const partners = [other, stock, both];
    const apart = await siteEdges(asked, signal);
    expect(await shared({ ...asked, partners }, signal)).toEqual(apart);
    const { upstream } = await shared({ ...asked, sources: [stock], partners: [both, shop, other] }, signal);
    expect(upstream).toEqual([{ service: "web", ...figures(1, 0, 40) }]);
    const whole = await shared({ ...asked, sources: [both], partners: [shop, stock, other] }, signal);
    expect(whole.upstream).toEqual([]);
    expect(whole.internal.map(({ service, count }) => [service, count]).sort()).toEqual([
      ["stock", 1],
      ["worker", 1],
    ]);
  });

  test("of calls whose sides have one id join these, and not what is below with what is above", async () => {
    const till = source("till");
    const reserve = { ...taken, span_id: "c", parent_span_id: "m" };
    const pay = { ...call, site_id: "stock", service_name: "stock", span_id: "d", parent_span_id: "c" };
    const charge = { ...taken, site_id: "till", service_name: "till", span_id: "d", parent_span_id: "c" };
    const spans = [root, middle, call, reserve, { ...pay, end: at(30) }, { ...charge, action: "Charge" }];
    const shared = analyticsOver(readerOver(spans));
    const edgesOf = async (sources: EdgesQuery["sources"], over: Partial<EdgesQuery> = {}) => {
      const partners = [shop, stock, till].filter((partner) => partner !== sources[0]);
      const { upstream, downstream, internal } = await shared.siteEdges(
        { ...asked, sources, partners, ...over },
        signal,
      );
      return [upstream, downstream, internal].map((edges) => edges.map(({ service }) => service));
    };
    expect(await edgesOf([shop])).toEqual([[], ["stock"], []]);
    expect(await edgesOf([stock])).toEqual([["web"], ["till"], []]);
    expect(await edgesOf([till])).toEqual([["stock"], [], []]);
    // Its caller is not in the range, and what called that one is.
    expect(await edgesOf([till], { range: { from: at(35), to: range.to } })).toEqual([[], [], []]);
    const queue = [
      { ...call, span_kind: "producer" },
      { ...reserve, span_kind: "consumer" },
    ] as const;
    const queued = await analyticsOver(readerOver([root, middle, ...queue])).siteEdges(asked, signal);
    expect(queued.downstream).toMatchObject([{ service: "stock", count: 1 }]);
    const named = { sources: [till] as const, partners: [shop, stock], service: "till", namespace: "web" };
    const { upstream } = await shared.actionEdges({ ...asked, ...named, action: "Charge" }, signal);
    expect(upstream).toMatchObject([{ service: "stock", action: "Reserve", edge_type: "SYNC", count: 1 }]);
  });

  test("of an action are not those of a partner's action of the same name", async () => {
    const twin = { ...taken, service_name: "web", action: "Pay" };
    const twins = analyticsOver(readerOver([root, middle, call, twin])).actionEdges;
    const pay = { service: "web", namespace: "web", action: "Pay" };
    const { upstream, downstream } = await twins({ ...asked, ...pay }, signal);
    expect(upstream).toEqual([]);
    expect(downstream).toMatchObject([{ service: "web", action: "Pay", count: 1 }]);
  });

  test("have the percentiles of all their calls", async () => {
    const calls = Array.from({ length: 200 }, (_, n) =>
      span({ span_id: `c${n}`, parent_span_id: "root", span_kind: "client", peer: "db", to: n + 1 }),
    );
    const { downstream } = await analyticsOver(readerOver([root, ...calls])).siteEdges(asked, signal);
    expect(downstream).toEqual([{ service: "db", ...figures(200, 0, 100.5), p_90: 180, p_95: 190 }]);
  });

  test.each([
    ["client", "server", false, "SYNC"],
    ["client", "server", true, "ASYNC"],
    ["client", "consumer", false, "ASYNC"],
    ["producer", "server", false, "ASYNC"],
  ] as const)(
    "from %s to %s, linked: %s, are %s, of the caller's request",
    async (kind, of, linked, type) => {
      const caller = { ...call, span_kind: kind, service_name: "library" };
      const links = [{ trace_id: "t1", span_id: "c", trace_state: "", attributes: {} }];
      const callee = { ...taken, span_kind: of, links: linked ? links : [], namespace: "web" };
      const { actionEdges } = analyticsOver(readerOver([root, middle, caller, callee]));
      const reserve = { service: "stock", namespace: "web", action: "Reserve" };
      const up = { ...asked, sources: [stock] as const, partners: [shop], ...reserve };
      const kinds = { span_kind: kind, peer_span_kind: of, edge_type: type, count: 1 };
      const { upstream } = await actionEdges(up, signal);
      expect(upstream).toMatchObject([{ service: "web", action: "Pay", ...kinds }]);
      const { downstream } = await actionEdges(
        { ...asked, service: "web", namespace: "web", action: "Pay" },
        signal,
      );
      expect(downstream).toMatchObject([{ ...reserve, ...kinds }]);
    },
  );

  test("are in the range by the caller's end", async () => {
    const { downstream } = await siteEdges({ ...asked, range: { from: at(50), to: at(60) } }, signal);
    expect(downstream.map(({ service }) => service)).toEqual(["postgresql"]);
  });

  test("of an action whose namespace has a slash: service and namespace are compared as they are joined", async () => {
    const caller = span({ span_kind: "server", span_id: "s1", namespace: "jobs/mail", action: "A" });
    const call = span({ span_id: "s2", parent_span_id: "s1", span_kind: "client", peer: "smtp" });
    const { actionEdges } = analyticsOver(readerOver([caller, call]));
    for (const [service, namespace] of [
      ["web", "jobs/mail"],
      ["web/jobs", "mail"],
    ] as const) {
      const named = { service, namespace, action: "A" };
      const { downstream } = await actionEdges({ ...asked, ...named }, signal);
      expect(downstream).toMatchObject([{ service: "smtp", count: 1 }]);
    }
  });

  test("of an action: both ends' kinds, and nothing at an end without spans", async () => {
    const pay = { service: "web", namespace: "web", action: "Pay" };
    const { upstream, downstream } = await actionEdges({ ...asked, ...pay }, signal);
    expect(upstream).toEqual([]);
    const rows = [
      ["stock", "web", "Reserve", "client", "server", "SYNC", figures(1, 0, 40)],
      ["worker", "background", "Mail", "producer", "consumer", "ASYNC", figures(1, 0, 10)],
      ["postgresql", undefined, undefined, "client", undefined, "SYNC", figures(3, 3, 20)],
    ] as const;
    expect(new Set(downstream)).toEqual(
      new Set(
        rows.map(([service, namespace, action, span_kind, peer_span_kind, edge_type, rest]) => ({
          ...{ service, namespace, action, span_kind, peer_span_kind, edge_type, ...rest },
        })),
      ),
    );
    const reserve = { service: "stock", namespace: "web", action: "Reserve" };
    const taken = await actionEdges({ ...asked, sources: [stock], partners: [shop], ...reserve }, signal);
    expect(taken.upstream).toMatchObject([{ ...pay, span_kind: "client", edge_type: "SYNC", count: 1 }]);
    const mail = { service: "worker", namespace: "background", action: "Mail" };
    const { upstream: senders } = await actionEdges({ ...asked, ...mail }, signal);
    expect(senders).toMatchObject([{ ...pay, span_kind: "producer", edge_type: "ASYNC" }]);
  });
});

describe("slow events", () => {
  const root = span({ span_id: "root", span_kind: "server", action: "Pay", to: 500 });
  const query = (id: string, over: Partial<Span> & { from?: number; to?: number } = {}): Span =>
    span({
      ...{ span_id: id, parent_span_id: "root", span_kind: "client", span_name: "query" },
      ...{ statement: `SELECT '${id}'`, span_attributes: { "db.system": "mysql", host: id }, ...over },
    });
  const render = span({ span_id: "r", parent_span_id: "root", span_name: "render", to: 40 });
  const spans = [
    root,
    query("a", { to: 10 }),
    query("b", { to: 30, count: 2 }),
    render,
    query("late", { to: 2_000 }),
  ];
  const { slowEvents, slowEventActions } = analyticsOver(readerOver(spans));
  const everything = {
    ...{ sources: [shop] as const, range, wanted: [], excluded: [] },
    ...{ limit: 10, budget: budget() },
  };
  const ask = (over: object) => slowEvents({ ...everything, ...over }, signal);
  const queries = {
    service: "web",
    kind: "client",
    name: "query",
    statement: "select ?",
    count: 3,
    impact: 50,
  };

  test("share the time of all children of the range, filtered or not", async () => {
    expect(await ask({})).toMatchObject([
      { ...queries, mean: 40 / 3, attributes: {} },
      {
        service: "web",
        kind: "internal",
        name: "render",
        statement: undefined,
        count: 1,
        mean: 40,
        impact: 50,
      },
    ]);
    expect(await ask({ kind: "client" })).toMatchObject([queries]);
    expect(await ask({ limit: 1 })).toMatchObject([queries]);
    const names = async (spans: readonly Span[]) =>
      (await analyticsOver(readerOver(spans)).slowEvents({ ...everything, limit: 2 }, signal)).map(
        ({ name }) => name,
      );
    const alike = ["c", "a", "b"].map((name) => ({ ...render, span_id: name, span_name: name }));
    expect(await names(alike)).toEqual(["a", "b"]);
    expect(await ask({ excluded: ["db.system"] })).toMatchObject([{ name: "render", impact: 50 }]);
    expect(await ask({ wanted: ["host"], excluded: ["none"] })).toMatchObject([
      { ...queries, attributes: { host: "b" } },
    ]);
  });

  test("and the actions that they are part of, with the longest of them", async () => {
    const digest = eventDigest({
      service: "web",
      kind: "client",
      name: "query",
      statement: hashStatement("select ?"),
    });
    const asked = { sources: [shop], range, digest, budget: budget() } as const;
    expect(await slowEventActions(asked, signal)).toEqual([
      { namespace: "web", action_name: "Pay", count: 3, trace_id: "t1", start_time: at(0) },
    ]);
    expect(await slowEventActions({ ...asked, digest: "nothing" }, signal)).toEqual([]);
    const lost = analyticsOver(readerOver(spans.filter((span) => span !== root)));
    expect(await lost.slowEventActions(asked, signal)).toMatchObject([
      { namespace: "", action_name: "", count: 3 },
    ]);
  });
});

test("below one id of both sides of a call the called one is asked for, also where the caller is in hand", async () => {
  const call = { service_name: "web", span_kind: "client", span_name: "call" } as const;
  const spans = [
    span({ span_id: "root", span_kind: "server", action: "Pay" }),
    span({ ...call, span_id: "both", parent_span_id: "root", events: [exception(1, "Refused")] }),
    span({ span_id: "both", parent_span_id: "root", span_kind: "server", action: "Reserve" }),
    span({ ...call, span_id: "below", parent_span_id: "both", peer: "db", events: [exception(2, "Lost")] }),
  ];
  const { slowEventActions, actionEdges } = analyticsOver(readerOver(spans));
  const asked = { sources: [shop] as const, range, budget: budget() };
  const digest = eventDigest({ service: "web", kind: "client", name: "call", statement: undefined });
  const rows = await slowEventActions({ ...asked, digest }, signal);
  expect(rows.map(({ action_name, count }) => [action_name, count]).sort()).toEqual([
    ["Pay", 1],
    ["Reserve", 1],
  ]);
  const named = { partners: [], service: "web", namespace: "web", action: "Reserve" };
  const { downstream } = await actionEdges({ ...asked, ...named }, signal);
  expect(downstream).toMatchObject([{ service: "db", count: 1 }]);
  const lost = { filter: { query: { kind: "all" }, action: "Reserve" } } as const;
  expect(await list(spans, { candidates: "errors", ...lost })).toMatchObject([{ span_id: "below" }]);
});

test("both sides of the call that begins a trace under one id are requests, each with what is below itself", async () => {
  const call = span({ trace_id: "t9", span_id: "x", span_kind: "client", from: 0, to: 90, action: "Call" });
  const called = { ...call, ...({ span_kind: "server", start: at(1), action: "Serve" } as const) };
  const queries = Array.from({ length: 5 }, (_, n) =>
    span({
      ...{ trace_id: "t9", span_id: `q${n}`, parent_span_id: "x", span_kind: "client", from: 2 },
      ...{ statement: `SELECT ${n}`, events: n === 0 ? [exception(3, "Lost", "lost")] : [] },
    }),
  );
  for (const spans of [
    [call, called, ...queries],
    [...queries, called, call],
  ]) {
    const { entryOf } = createFamily(spans);
    expect(queries.map(entryOf)).toEqual(queries.map(() => called));
    const { actions } = analyticsOver(readerOver(spans));
    const asked = { sources: [shop] as const, range, namespaces: [], budget: budget() };
    const rows = await actions(asked, signal);
    expect(rows.map(({ action, has_npo }) => [action, has_npo]).sort()).toEqual([
      ["Call", false],
      ["Serve", true],
    ]);
    expect(await list(spans)).toMatchObject([{ action_name: "Call", has_npo: false }]);
    const filter = { query: { kind: "all" }, digests: ["lost"] } as const;
    expect(await list(spans, { filter })).toMatchObject([{ action_name: "Serve", has_npo: true }]);
  }
});

test("both sides of a call under one id that begin at once come in one order, whichever is read first", async () => {
  const call = span({ span_id: "x", span_kind: "client", action: "Call" });
  const called = span({ span_id: "x", span_kind: "server", action: "Serve" });
  for (const spans of [
    [call, called],
    [called, call],
  ]) {
    expect(arrange(spans).map(({ span }) => span.span_kind)).toEqual(["client", "server"]);
    expect(await list(spans)).toMatchObject([{ action_name: "Call" }]);
  }
});

test("a revision's requests, first and last by their ends", async () => {
  const request = (id: string, to: number, over: Partial<Span> = {}): Span =>
    span({ span_id: id, trace_id: id, span_kind: "server", to, revision: "r1", ...over });
  const spans = [
    request("a", 100),
    request("b", 20, { status_code: "ERROR", namespace: "admin" }),
    request("c", 30, { revision: "r2" }),
    request("d", 40, { report: true }),
    request("e", 2_000),
  ];
  const { revisionStats } = analyticsOver(readerOver(spans));
  const query = { sources: [shop], range, revision: "r1", budget: budget() } as const;
  expect(await revisionStats(query, signal)).toEqual({
    ...{ first_seen: at(20), last_seen: at(100), count: 2, error_count: 1 },
    ...{ mean: 60, p_90: 100, p_95: 100, namespaces: ["admin", "web"] },
  });
  expect(await revisionStats({ ...query, revision: "r3" }, signal)).toBeUndefined();
});

describe("a trace arranged", () => {
  const root = span({ span_id: "z", span_kind: "server", action: "Pay", from: 5 });
  const early = span({ span_id: "y", parent_span_id: "gone", from: 0 });
  const failed = span({ span_id: "b", parent_span_id: "z", from: 6, events: [exception(6, "Oops")] });
  const twin = span({ span_id: "a", parent_span_id: "z", from: 6, service_name: "cache" });

  test("the root first, then by start and id; or the named span first", () => {
    const ids = (named?: Span) => arrange([failed, early, twin, root], named).map(({ span }) => span.span_id);
    expect(ids()).toEqual(["z", "y", "a", "b"]);
    expect(ids(failed)).toEqual(["b", "y", "z", "a"]);
    expect(arrange([early, failed]).map(({ span }) => span.span_id)).toEqual(["y", "b"]);
  });

  test("names of the entry above, none below a lost parent; where a subtrace begins", () => {
    const asks = ["server", "consumer"] as const;
    const own = asks.map((kind, n) =>
      span({ span_id: `c${n}`, parent_span_id: "z", span_kind: kind, from: 7, action: "Own" }),
    );
    const rows = arrange([failed, early, twin, root, ...own]).map(({ span, names, subtraceRoot }) => [
      span.span_id,
      names?.action,
      subtraceRoot,
    ]);
    expect(rows).toEqual([
      ["z", "Pay", true],
      ["y", undefined, true],
      ["a", "Pay", true],
      ["b", "Pay", false],
      ["c0", "Own", true],
      ["c1", "Own", true],
    ]);
  });

  test("both sides of a call under one id: the called one is the parent, and who failed comes first", () => {
    const call = span({ span_id: "c", parent_span_id: "z", span_kind: "client", from: 6 });
    const called = {
      ...call,
      ...({ span_kind: "server", service_name: "stock", entry: true, start: at(7) } as const),
      events: [exception(8, "Oops")],
    };
    const below = span({ span_id: "d", parent_span_id: "c", service_name: "stock", from: 8 });
    // In another site, and below both of this one.
    const abroad = { ...below, site_id: "stock", span_id: "e" };
    const spans = [root, call, called, below, abroad];
    const orders = [spans, spans.toReversed(), [called, call, below, abroad, root]];
    for (const order of orders) {
      const rows = arrange(order, called).map(({ span, subtraceRoot }) => [
        span.span_id,
        span.span_kind,
        subtraceRoot,
      ]);
      expect(rows).toEqual([
        ["c", "server", true],
        ["z", "server", true],
        ["c", "client", false],
        ["d", "internal", false],
        ["e", "internal", false],
      ]);
    }
  });

  test("every exception has its digest, and keeps one of its own", () => {
    const events = [
      exception(6, "Oops"),
      { name: "note", time: at(7), attributes: {} },
      exception(8, "Ouch", "own"),
    ];
    const [, arranged] = arrange([root, { ...failed, events }]);
    expect(arranged?.span.events.map(({ attributes }) => attributes["appsignal.incident_digest"])).toEqual([
      errorDigest("Oops", { namespace: "web", action: "Pay" }),
      undefined,
      "own",
    ]);
  });
});
