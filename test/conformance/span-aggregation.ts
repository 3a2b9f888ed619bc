// The conformance suite of native span aggregation. Answers must equal the definition over the spans, and must really be
// aggregated at the backend: a store that falls back to reading every span does not pass. Where a layout allows nothing else,
// the subject gives a reason, and the test requires the fallback.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Span, TraceSummary } from "#src/core/rows.ts";
import { fromMillis, type Instant, type TimeRange } from "#src/core/time.ts";
import type { ListingQuery } from "#src/store/span-analytics.ts";
import type { Budget, SpanTally, TallyQuery } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import type { RunningTracingSubject, TracingSubject } from "./spans.ts";
import {
  createArrayReader,
  createRandom,
  type ModelPart,
  type ModelSpan,
  makeTraces,
  midnight,
  removeParts,
  type SiteName,
  toSpan,
} from "./trace-fixture.ts";

export interface CountingSubject extends TracingSubject {
  /** What this backend cannot aggregate, each with its reason. */
  readonly reads: Readonly<Partial<Record<TallyQuery["by"] | "nPlusOne", string>>>;
}

const day = 86_400_000;
const wide: TimeRange = { from: fromMillis(midnight - day), to: fromMillis(midnight + day) };
const unaborted = new AbortController().signal;

function createWatchedBudget(): Budget & { readonly spent: () => number } {
  let spent = 0;
  const spend = (documents: number): void => {
    spent += documents;
  };
  return { limit: Number.MAX_SAFE_INTEGER, spend, spent: () => spent };
}

const hex = (n: number, digits: number): string => n.toString(16).padStart(digits, "0");

/** Requests of few actions, each with equal queries. No two requests have the same duration. */
function makeRequests(count: number): readonly ModelSpan[] {
  const common = {
    site: "shop",
    service: "shop-web",
    status: "OK",
    resource: {},
    events: [],
    links: [],
    count: 1,
  } as const;
  return Array.from({ length: count }, (_, n) => {
    const trace = hex(n + 1, 32);
    const root = hex(n * 16 + 1, 16);
    const start = fromMillis(midnight + n * 10);
    const at = (micros: number): Instant => (start + BigInt(micros) * 1_000n) as Instant;
    const children = Array.from({ length: n % 3 === 0 ? 6 : 2 }, (_, query) => ({
      ...common,
      trace,
      id: hex(n * 16 + 2 + query, 16),
      parent: root,
      name: "query",
      kind: "client" as const,
      start: at(query * 10),
      end: at(query * 10 + 7),
      attributes: { "db.system.name": "mysql", "db.query.text": "SELECT * FROM a WHERE b = ?" },
    }));
    const request = {
      ...common,
      trace,
      id: root,
      name: "GET /",
      kind: "server" as const,
      revision: "r1",
      start,
      end: at(10_000 + n),
      attributes: {
        "http.request.method": "GET",
        "appsignal.action_name": n % 3 === 0 ? "Loop#show" : "Plain#show",
      },
    };
    return [request, ...children];
  }).flat();
}

export function countingSuite(subject: CountingSubject): void {
  const lacks = Object.keys(subject.lacks).filter((part): part is ModelPart => part in removeParts);
  const reduce = (span: ModelSpan): Span =>
    toSpan(lacks.reduce((left, part) => removeParts[part](left), span));

  describe(`${subject.name}: span aggregation`, () => {
    let running: RunningTracingSubject;
    beforeAll(async () => {
      running = await subject.start();
    });
    afterAll(() => running.stop());

    describe("many requests", () => {
      const models = makeRequests(400);
      const spans = models.map(reduce);
      beforeAll(() => running.seed(models));

      const tallies = async (over: Pick<TallyQuery, "by" | "select" | "pushdown">): Promise<SpanTally[]> => {
        const query: TallyQuery = {
          sources: [running.sources.shop],
          range: wide,
          budget: createWatchedBudget(),
          ...over,
        };
        const found: SpanTally[] = [];
        for await (const batch of running.store.tally?.(query, unaborted) ?? []) found.push(...batch);
        return found;
      };

      test.each([
        { by: "request", select: "entries" },
        { by: "event", select: "children" },
        { by: "deploy", select: "entries", pushdown: { revision: "r1" } },
      ] as const)(
        "aggregates by $by at the backend, or reads every span for the stated reason",
        async (grouping) => {
          const found = await tallies(grouping);
          const wanted = spans.filter(({ entry }) => entry === (grouping.select === "entries"));
          expect(found.reduce((sum, tally) => sum + tally.spans, 0)).toBe(wanted.length);
          const time = wanted.reduce((sum, { start, end }) => sum + (end - start), 0n);
          expect(found.reduce((sum, tally) => sum + tally.total, 0n)).toBe(time);
          const counted = found.reduce((sum, { isSingle: whole, spans }) => sum + (whole ? 0 : spans), 0);
          if (subject.reads[grouping.by] === undefined) expect(counted).toBeGreaterThan(wanted.length * 0.9);
          else expect(counted).toBe(0);
        },
      );

      test("lists every parent with enough queries and few others, or nothing for the stated reason", async () => {
        const query = { sources: [running.sources.shop] as const, least: 5, budget: createWatchedBudget() };
        const found = await running.store.findNPlusOneParents?.(query, unaborted);
        if (subject.reads.nPlusOne !== undefined) {
          expect(found).toBeUndefined();
          return;
        }
        const parents = models.filter(
          ({ kind }, n) => kind === "server" && models[n + 6]?.trace === models[n]?.trace,
        );
        expect(parents).toHaveLength(134);
        expect(found).toEqual(expect.arrayContaining(parents.map(({ id }) => id)));
        expect(found?.length).toBeLessThan(400);
        const half = parents.slice(0, 60);
        const traceIds = half.map(({ trace }) => trace);
        const named = await running.store.findNPlusOneParents?.({ ...query, traceIds }, unaborted);
        expect(named).toEqual(expect.arrayContaining(half.map(({ id }) => id)));
        expect(named?.length).toBeLessThan(found?.length ?? 0);
        const spanIds = parents.slice(0, 3).map(({ id }) => id);
        const children: Span[] = [];
        const of = { by: "parent", spanIds } as const;
        for await (const batch of running.store.find({ ...query, of }, unaborted)) children.push(...batch);
        expect(children).toHaveLength(18);
      });

      test("lists the traces of a range and few others, or nothing for the stated reason", async () => {
        const ended = spans.filter(({ entry }) => entry).slice(0, 100);
        const range = { from: wide.from, to: ended.at(-1)?.end ?? wide.to };
        const query = { range, select: "entries", budget: createWatchedBudget() } as const;
        const sources = [running.sources.shop] as const;
        const found = await running.store.findTraceIds?.({ ...query, sources }, unaborted);
        if (found === undefined) {
          expect(subject.reads.nPlusOne).toBeDefined();
          return;
        }
        expect(found).toEqual(expect.arrayContaining(ended.map(({ trace_id }) => trace_id)));
        expect(found.length).toBeLessThan(150);
      });

      test("reads the longest and the shortest requests without the others", async () => {
        for (const order of ["asc", "desc"] as const) {
          const budget = createWatchedBudget();
          const listing: ListingQuery = {
            sources: [running.sources.shop],
            candidates: "requests",
            range: wide,
            budget,
            filter: { query: { kind: "all" } },
            by: "duration",
            order,
            expectedRows: 5,
            tieLimit: 100,
          };
          const rows: TraceSummary[] = [];
          for await (const batch of running.store.summaries(listing, unaborted)) {
            rows.push(...batch);
            if (rows.length >= 5) break;
          }
          const all = createSpanAnalytics(createArrayReader(spans)).summaries(
            { ...listing, budget: createWatchedBudget() },
            unaborted,
          );
          const wanted: TraceSummary[] = [];
          for await (const batch of all) wanted.push(...batch);
          expect(rows).toEqual(wanted.slice(0, rows.length));
          // A hundred requests, these again with all entries of their traces, and the queries of the rows.
          if (subject.reads.deploy === undefined) expect(budget.spent()).toBeLessThan(300);
        }
      });
    });

    test("answers random queries as the definition over spans does", async () => {
      const models = makeTraces(77, 80);
      await running.seed(models);
      const store = createSpanAnalytics(createArrayReader(models.map(reduce)));
      const random = createRandom(4);
      const below = (limit: number): number => Math.floor(random() * limit);
      const pick = <T>(choices: readonly [T, ...T[]]): T => choices[below(choices.length)] ?? choices[0];
      for (let round = 0; round < 12; round++) {
        const from = fromMillis(midnight - 80 + below(100)) + BigInt(below(3)) * 333_333n;
        const to = from + BigInt(below(100)) * 1_000_000n + BigInt(pick([0, 999_999, 500_001]));
        const site = running.sources[pick<SiteName>(["shop", "shop", "stock", "blog"])];
        const scope = { sources: [site] as const, range: { from, to } as TimeRange };
        const actions = {
          ...scope,
          namespaces: pick<readonly string[]>([[], [], ["web"], ["background", "admin"]]),
          revision: pick([undefined, undefined, "r1", "s1", "none"]),
          action: pick([undefined, undefined, "Cart#show", "GET /cart", "MailJob"]),
        };
        const events = {
          ...scope,
          kind: pick([undefined, undefined, "client", "internal"] as const),
          requiredAttributes: pick<readonly string[]>([[], [], ["db.system.name"]]),
          excludedAttributes: [],
          limit: pick([100, 3]),
        };
        const revision = { ...scope, revision: pick(["r1", "r2", "s1"]) };
        const budget = createWatchedBudget();
        const label = `round ${round}`;
        expect(toPlain(await running.store.actions({ ...actions, budget }, unaborted)), label).toEqual(
          toPlain(await store.actions({ ...actions, budget }, unaborted)),
        );
        expect(toPlain(await running.store.slowEvents({ ...events, budget }, unaborted)), label).toEqual(
          toPlain(await store.slowEvents({ ...events, budget }, unaborted)),
        );
        const [found, wanted] = [
          await running.store.revisionStats({ ...revision, budget }, unaborted),
          await store.revisionStats({ ...revision, budget }, unaborted),
        ];
        const revisions = ["r1", "r2", "s1", "none"];
        const together = await running.store.statsOfRevisions({ ...scope, revisions, budget }, unaborted);
        expect(together.get(revision.revision), label).toEqual(found);
        expect(together.has("none")).toBe(false);
        const all = await running.store.statsOfRevisions({ ...scope, budget }, unaborted);
        expect(all.get(revision.revision), label).toEqual(found);
        const figures = { p_90: 0, p_95: 0 };
        expect(toPlain(found && { ...found, ...figures }), label).toEqual(
          toPlain(wanted && { ...wanted, ...figures }),
        );
        for (const key of ["p_90", "p_95"] as const) {
          const [value = 0, exact = 0] = [found?.[key], wanted?.[key]];
          expect(Math.abs(value - exact), `${label} ${key}`).toBeLessThanOrEqual(exact * 0.02);
        }
      }
    });
  });
}

/** Sorted rows with numbers rounded to nine digits. */
function toPlain(value: unknown): unknown {
  const text = JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "bigint"
      ? `${inner}n`
      : typeof inner === "number"
        ? Number(inner.toPrecision(9))
        : inner,
  );
  const parsed: unknown = text === undefined ? undefined : JSON.parse(text);
  return Array.isArray(parsed) ? parsed.map((row) => JSON.stringify(sortKeys(row))).sort() : parsed;
}

function sortKeys(row: unknown): unknown {
  return typeof row === "object" && row !== null
    ? Object.fromEntries(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)))
    : row;
}
