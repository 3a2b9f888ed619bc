// Incidents: their counts against the listing of errors, their pages, and numbers that two digests share.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { buildSpanSource, type Site } from "#src/access/sites.ts";
import { defaults } from "#src/config/schema.ts";
import { allTime, fromMillis } from "#src/core/time.ts";
import {
  type Incident,
  type IncidentPage,
  type IncidentSelection,
  prepareDeployMarkers,
  prepareErrorCounts,
  prepareErrorFigures,
  prepareIncidentLookup,
  prepareIncidents,
  prepareSamples,
  printSampleId,
  readSampleId,
  requireSingleIncident,
} from "#src/operations/incident-operations.ts";
import { clientOperations } from "#src/operations/index.ts";
import type { Context, PreparedOperation } from "#src/operations/runtime/operation.ts";
import { deriveIncidentNumber, encodeActionDigest } from "#src/tracing/spans/digest.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { base, createException } from "../tracing/span-builder.ts";
import { ask, type Placed, request } from "./trace-harness.ts";

const now = base + 3_600_000;
const retention = 86_400_000;

function createSite(spans: readonly Placed[]): Site {
  const store = createMemorySpans();
  store.add("shop", spans);
  const source = buildSpanSource("shop", { index: "shop", layout: "auto" });
  return { id: "shop", retention, counterDefault: "cumulative", traces: { backend: "m", store, source } };
}

function open(spans: readonly Placed[], limits: Partial<Context["limits"]> = {}) {
  const site = createSite(spans);
  const context: Context = {
    user: "ana",
    sites: new Map([["shop", site]]),
    limits: { ...defaults.limits, ...limits },
    now: () => fromMillis(now),
    signal: new AbortController().signal,
  };
  return {
    run: <Answer>(prepared: PreparedOperation<Promise<Answer>>) => prepared.run(context),
    rest: ask([site], now, limits),
  };
}

const all: IncidentSelection = {
  kinds: ["error", "action"],
  namespaces: [],
  order: "last",
  offset: 0,
  limit: 1_000,
};
const errors = { ...all, kinds: ["error"] } as const;

const arbitrarySpan = fc.record({
  trace: fc.integer({ min: 0, max: 5 }),
  end: fc.integer({ min: 0, max: 40 }),
  action: fc.constantFrom("GET /", "POST /", "work"),
  isChild: fc.boolean(),
  exceptions: fc.array(
    fc.record({
      at: fc.integer({ min: 0, max: 40 }),
      type: fc.constantFrom("A", "B", "C"),
      digest: fc.option(fc.constantFrom("x", "y"), { nil: undefined }),
    }),
    { maxLength: 3 },
  ),
});
const corpus = fc.array(arbitrarySpan, { minLength: 1, maxLength: 14 }).map((drawn) =>
  drawn.map(({ trace, end, action, isChild, exceptions }, index) => {
    const id = (index + 1).toString(16).padStart(16, "0");
    const parent = isChild && index > 0 ? index.toString(16).padStart(16, "0") : undefined;
    return request({
      trace_id: (trace + 1).toString(16).padStart(32, "0"),
      span_id: id,
      span_kind: parent === undefined ? "server" : "internal",
      span_name: action,
      ...(parent !== undefined && { parent_span_id: parent, entry: false }),
      from: end - 1,
      to: end,
      events: exceptions.map(({ at, type, digest }) => createException(at, type, digest)),
    });
  }),
);

interface ListedError {
  readonly time: string;
  readonly trace_id: string;
  readonly action_name: string;
}

describe("errors", () => {
  test("count, first and last are those of the listing of errors with that digest", async () => {
    await fc.assert(
      fc.asyncProperty(corpus, async (spans) => {
        const { run, rest } = open(spans);
        const { incidents, total } = await run(prepareIncidents("shop", {}, errors));
        expect(total).toBe(incidents.length);
        const pagination = { per_page: 1_000, order: "DESC", cursor: { time: null } };
        let rows = 0;
        for (const { digest, figures, last, number } of incidents) {
          const body = { site_ids: ["shop"], digests: [digest], pagination };
          const listed = (await rest("tracing/traces/errors", body)) as unknown as ListedError[];
          rows += listed.length;
          expect(figures?.count).toBe(listed.length);
          expect(Number(last / 1_000_000n)).toBe(Date.parse(listed[0]?.time ?? ""));
          expect(Number((figures?.first ?? 0n) / 1_000_000n)).toBe(Date.parse(listed.at(-1)?.time ?? ""));
          expect(figures?.actions).toEqual([...new Set(listed.map((row) => row.action_name))].sort());
          expect(number).toBe(deriveIncidentNumber("shop", digest));
        }
        // No digest is missing: each trace of the unfiltered listing is in that of some digest.
        const listed = await rest("tracing/traces/errors", { site_ids: ["shop"], pagination });
        expect(rows).toBeGreaterThanOrEqual(listed.length);
        expect(incidents.length === 0).toBe(listed.length === 0);
      }),
      { numRuns: sampleRuns(150) },
    );
  });

  test("pages of any size are the list, nothing lost and nothing twice, in both orders", async () => {
    await fc.assert(
      fc.asyncProperty(
        corpus,
        fc.integer({ min: 1, max: 4 }),
        fc.constantFrom("last" as const, "number" as const),
        fc.constantFrom(["error"] as const, ["action"] as const, ["error", "action"] as const),
        fc.constantFrom(undefined, "a", "get"),
        async (spans, limit, order, kinds, text) => {
          const { run } = open(spans);
          const selection = { ...all, kinds, order, ...(text !== undefined && { text }) };
          const whole = await run(prepareIncidents("shop", {}, selection));
          const paged: Incident[] = [];
          for (let offset = 0; ; offset += limit) {
            const page: IncidentPage = await run(
              prepareIncidents("shop", {}, { ...selection, offset, limit }),
            );
            paged.push(...page.incidents);
            if (page.incidents.length < limit) break;
          }
          expect(paged.map(({ digest }) => digest)).toEqual(whole.incidents.map(({ digest }) => digest));
          // A text finds some of them, and each is what it is without one.
          const { incidents: unsearched } = await run(prepareIncidents("shop", {}, { ...all, kinds, order }));
          const lastOf = new Map(unsearched.map(({ digest, last }) => [digest, last]));
          for (const { digest, last } of whole.incidents) expect(last).toBe(lastOf.get(digest));
          const digests = whole.incidents.filter(({ kind }) => kind === "error").map(({ digest }) => digest);
          const [first, ...others] = digests;
          if (first === undefined) return;
          const counted = await run(prepareErrorFigures("shop", whole.range, all, [first, ...others]));
          const byDigest = new Map(whole.incidents.map((incident) => [incident.digest, incident.figures]));
          expect(counted).toEqual(digests.map((digest) => byDigest.get(digest)));
        },
      ),
      { numRuns: sampleRuns(100) },
    );
  });

  test("a page does not read the retention", async () => {
    const spans = Array.from({ length: 3_000 }, (_, index) =>
      request({
        trace_id: (index + 1).toString(16).padStart(32, "0"),
        span_id: (index + 1).toString(16).padStart(16, "0"),
        to: 600_000 + index * 1_000,
        from: 600_000 + index * 1_000 - 1,
        events: [createException(600_000 + index * 1_000, `E${index}`)],
      }),
    );
    // All of them would be refused.
    const { run } = open(spans, { documents: 1_000 });
    const page = await run(prepareIncidents("shop", {}, { ...errors, limit: 5 }));
    expect(page.incidents.map(({ exception }) => exception?.name)).toEqual(
      [2999, 2998, 2997, 2996, 2995].map((index) => `E${index}`),
    );
    expect(page.total).toBeUndefined();
    await expect(run(prepareIncidents("shop", {}, errors))).rejects.toMatchObject({
      slug: "result_too_large",
    });
  });
});

test.each(["error", "action"] as const)(
  "as many incidents as there may be rows are listed, and no more: %s",
  async (kind) => {
    const list = (count: number) => {
      const spans = Array.from({ length: count }, (_, index) =>
        request({
          trace_id: (index + 1).toString(16).padStart(32, "0"),
          span_id: (index + 1).toString(16).padStart(16, "0"),
          span_name: `GET /${index}`,
          from: index,
          to: index + 1,
          events: [createException(index, `T${index}`)],
        }),
      );
      return open(spans, { rows: 3 }).run(prepareIncidents("shop", {}, { ...all, kinds: [kind] }));
    };
    expect((await list(3)).incidents).toHaveLength(3);
    const refusal = { slug: "result_too_large", details: { limit: 3, wanted: 4 } };
    await expect(list(4)).rejects.toMatchObject(refusal);
  },
);

/** Two digests of one number, found by trying: some 60,000 tries find a pair. */
function plantCollision(): readonly [string, string] {
  const seen = new Map<number, string>();
  for (let at = 0; ; at += 1) {
    const digest = `planted-${at}`;
    const number = deriveIncidentNumber("shop", digest);
    const other = seen.get(number);
    if (other !== undefined) return [other, digest];
    seen.set(number, digest);
  }
}

describe("numbers", () => {
  const [one, other] = plantCollision();
  const id = (digit: string) => ({ trace_id: digit.repeat(32), span_id: digit.repeat(16) });
  const { run } = open([
    request({ ...id("1"), events: [createException(1, "A", one)] }),
    request({ ...id("2"), from: 20, to: 30, events: [createException(21, "B", other)] }),
    request({ ...id("3"), from: 40, to: 50, events: [createException(41, "C", "alone")] }),
  ]);

  test("a number that two digests share names neither, and the error names both and the way", async () => {
    const number = deriveIncidentNumber("shop", one);
    expect(deriveIncidentNumber("shop", other)).toBe(number);
    const found = await run(prepareIncidentLookup("shop", { number }));
    expect(found.map(({ digest }) => digest).sort()).toEqual([one, other].sort());
    expect(() => requireSingleIncident(found)).toThrow(
      expect.objectContaining({
        details: {
          issues: [{ path: "incidentNumber", message: expect.stringContaining("incidentByDigest") }],
        },
      }),
    );
    expect(() => requireSingleIncident(found)).toThrow(
      expect.objectContaining({
        details: { issues: [{ path: "incidentNumber", message: expect.stringContaining(one) }] },
      }),
    );
  });

  test("lists show both, and a digest names each", async () => {
    const { incidents } = await run(prepareIncidents("shop", {}, errors));
    expect(incidents.map(({ digest }) => digest)).toEqual(["alone", other, one]);
    for (const digest of [one, other]) {
      const [found, ...none] = await run(prepareIncidentLookup("shop", { digest }));
      expect(found?.digest).toBe(digest);
      expect(none).toEqual([]);
    }
  });

  test("actions have numbers of the same space", async () => {
    const digest = encodeActionDigest({ namespace: "web", action: "GET /" });
    const number = deriveIncidentNumber("shop", digest);
    const [found] = await run(prepareIncidentLookup("shop", { number }));
    expect(found).toMatchObject({ kind: "action", digest, stats: { count: 3 } });
    expect(requireSingleIncident(await run(prepareIncidentLookup("shop", { number: 1 })))).toBeUndefined();
  });

  test("samples are the newest first, each with its exception", async () => {
    const samples = await run(prepareSamples("shop", {}, { candidates: "errors", limit: 2 }));
    expect(samples.map(({ exception }) => exception?.digest)).toEqual(["alone", other]);
  });
});

test("an error that is found by a text is that of the list without one, with the figures of all of its rows", async () => {
  const fail = (digit: string, message: string) => {
    const { attributes, ...event } = createException(5, "A", "x");
    const events = [{ ...event, attributes: { ...attributes, "exception.message": message } }];
    return request({ trace_id: digit.repeat(32), span_id: digit.repeat(16), from: 0, to: 10, events });
  };
  const { run } = open([fail("1", "timeout"), fail("2", "refused"), fail("3", "refused")]);
  const find = async (text?: string) =>
    (await run(prepareIncidents("shop", {}, { ...errors, ...(text !== undefined && { text }) }))).incidents;
  expect((await find()).map(({ figures }) => figures?.count)).toEqual([3]);
  for (const text of ["timeout", "refused", "x"]) expect(await find(text)).toEqual(await find());
  expect(await find("nothing")).toEqual([]);
  const [figures] = await run(prepareErrorFigures("shop", allTime, errors, ["x"]));
  expect(figures?.count).toBe(3);
});

test("the errors of a deploy are those of the namespaces that are asked for", async () => {
  const fail = (digit: string, span_kind: "server" | "consumer") =>
    request({
      trace_id: digit.repeat(32),
      span_id: digit.repeat(16),
      from: 0,
      to: 10,
      revision: "r",
      span_kind,
      events: [createException(5, "A", digit)],
    });
  const { run } = open([fail("1", "server"), fail("2", "consumer"), fail("3", "consumer")]);
  const count = (...namespaces: readonly string[]) =>
    run(prepareErrorCounts("shop", {}, namespaces, ["r", "s"]));
  expect(await count()).toEqual([3, 0]);
  expect(await count("web")).toEqual([1, 0]);
  expect(await count("background")).toEqual([2, 0]);
  expect(await count("web", "background")).toEqual([3, 0]);
});

test("a sample is found by its id, whatever the ids of its trace and span hold", async () => {
  const ids = ["1", "a-b", "a", "b-c", "c", "-", "~1", "a~1b", "a~0", "x--y"];
  const spans = ids.flatMap((trace_id) =>
    ids.map((span_id) =>
      request({ trace_id, span_id, from: 0, to: 10, events: [createException(5, "A", "")] }),
    ),
  );
  const { run } = open(spans);
  const ask = (path: string, input: object) => {
    const operation = clientOperations.find((one) => one.path === path);
    if (operation === undefined) throw new Error(`no route ${path}`);
    return run(operation.prepare({ app: "shop", ...input }) as PreparedOperation<Promise<unknown>>);
  };
  const rows = await run(prepareSamples("shop", {}, { candidates: "errors", limit: 1_000 }));
  expect(new Set(rows.map(printSampleId)).size).toBe(rows.length);
  expect(rows.length).toBeGreaterThanOrEqual(ids.length);
  for (const row of rows) {
    const id = printSampleId(row);
    expect(readSampleId(id)).toEqual({ traceId: row.trace_id, spanId: row.span_id });
    expect(await ask("/api/{app}/samples/{id}", { id: `${id}.json` })).toMatchObject({ id });
  }
  const listed = await ask("/api/{app}/samples/errors.json", { limit: "1000" });
  const { log_entries: entries } = listed as { readonly log_entries: readonly { readonly id: string }[] };
  expect(entries.map(({ id }) => id).toSorted()).toEqual(rows.map(printSampleId).toSorted());
});

test("a range from or to 1970 is no range without a bound", async () => {
  const span = request({
    from: -2 * retention,
    to: 10 - 2 * retention,
    events: [createException(5, "A", "")],
  });
  const { run } = open([span]);
  const count = async (asked: Parameters<typeof prepareSamples>[1]) =>
    (await run(prepareSamples("shop", asked, { candidates: "errors", limit: 10 }))).length;
  expect(await count({})).toBe(0);
  expect(await count({ start: "1970-01-01T00:00:00Z" })).toBe(1);
  expect(await count({ start: "1969-12-31T00:00:00Z", end: "1970-01-01T00:00:00Z" })).toBe(0);
});

test("a deploy is in the range where its first request is", async () => {
  const id = (digit: string) => ({ trace_id: digit.repeat(32), span_id: digit.repeat(16) });
  const { run } = open([
    request({ ...id("1"), from: 0, to: 10, revision: "old" }),
    request({ ...id("2"), from: 110, to: 120, revision: "old" }),
    request({ ...id("3"), from: 120, to: 130, revision: "new" }),
    request({ ...id("4"), from: 130, to: 140, revision: "new" }),
  ]);
  const of = async (asked: Parameters<typeof prepareDeployMarkers>[1]) =>
    (await run(prepareDeployMarkers("shop", asked, []))).map(({ revision, requests }) => [
      revision,
      requests,
    ]);
  expect(await of({})).toEqual([
    ["new", 2],
    ["old", 2],
  ]);
  expect(await of({ start: new Date(base + 100).toISOString() })).toEqual([["new", 2]]);
  expect(await of({ end: new Date(base + 100).toISOString() })).toEqual([["old", 1]]);
});

test("many incidents are made in turns of the event loop", async () => {
  const spans = Array.from({ length: 400 }, (_, n) => {
    const digits = (n + 1).toString(16);
    const [trace_id, span_id] = [digits.padStart(32, "0"), digits.padStart(16, "0")];
    return request({ trace_id, span_id, span_name: `GET /${n}`, events: [createException(5, `E${n}`)] });
  });
  const { run } = open(spans);
  const count = (kind: Incident["kind"]) =>
    countTurns(() => run(prepareIncidents("shop", {}, { ...all, kinds: [kind] })));
  // Their rows alone take 15 and 10 turns for each.
  expect(await count("error")).toBeGreaterThanOrEqual(16 * spans.length);
  expect(await count("action")).toBeGreaterThanOrEqual(12 * spans.length);
});
