// What every log store must do, run against each of them. A subject is a store on a server with a data layout; it
// writes lines the way that layout's shipper would, which is how a layout is tested.
import { afterAll, beforeAll, describe, expect, test as vitestTest } from "vitest";
import { Refused } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { floorToMilli, fromMillis, type Instant } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogQuery, LogSource, LogStore } from "#src/store/logs.ts";
import { type LoadedLine, loadScripts, toLogLine } from "../log-query/script.ts";

export interface Subject {
  readonly name: string;
  readonly start: () => Promise<Running>;
  /** Known inabilities by test title. Such a test still runs and must fail as stated. */
  readonly excuses: Readonly<Record<string, Excuse>>;
}
export interface Excuse {
  readonly reason: string;
  /** Matches the failure's message. */
  readonly failure: RegExp;
}
interface Running {
  readonly store: LogStore;
  /** `twin` reads the same documents as `app`. */
  readonly sources: Readonly<Record<"app" | "nginx" | "twin", LogSource>>;
  /** Replaces the source's lines; resolves when they can be found. `source_id` of the lines is ignored. */
  readonly seed: (source: "app" | "nginx", lines: readonly SourceLine[]) => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** A line as its source stores it: the severity in the source's spelling, or none. */
type SourceLine = Omit<LogLine, "severity"> & Pick<LoadedLine, "severity">;

const base = Date.UTC(2026, 0, 15, 10);
const wide = { from: fromMillis(base - 86_400_000), to: fromMillis(base + 86_400_000) };

export function logStoreSuite(subject: Subject): void {
  const unused = new Set(Object.keys(subject.excuses));
  function test(name: string, body: () => Promise<void>): void {
    const excuse = subject.excuses[name];
    unused.delete(name);
    if (excuse === undefined) vitestTest(name, body, 120_000);
    else
      vitestTest(
        `${name} (cannot: ${excuse.reason})`,
        () => expect(body()).rejects.toThrow(excuse.failure),
        120_000,
      );
  }

  describe(`${subject.name}: log store`, () => {
    let running: Running;
    beforeAll(async () => {
      running = await subject.start();
    });
    afterAll(() => running.stop());

    const queryOf = (over: Partial<LogQuery>): LogQuery => ({
      sources: [running.sources.app],
      range: wide,
      filter: parse(""),
      order: "asc",
      expectedLines: 100,
      documentLimit: 100_000,
      tieLimit: 10_000,
      ...over,
    });
    async function batches(
      over: Partial<LogQuery>,
      text = "",
      signal = never(),
    ): Promise<(readonly LogLine[])[]> {
      const query = queryOf({ filter: parse(text), ...over });
      const found: (readonly LogLine[])[] = [];
      for await (const batch of running.store.lines(query, signal)) found.push(batch);
      return found;
    }
    /** The lines up to the batch that completes the wanted number. */
    async function page(over: Partial<LogQuery>): Promise<LogLine[]> {
      const query = queryOf(over);
      const found: LogLine[] = [];
      for await (const batch of running.store.lines(query, never())) {
        found.push(...batch);
        if (found.length >= query.expectedLines) break;
      }
      return found;
    }
    const read = async (over: Partial<LogQuery> = {}, text = "") => (await batches(over, text)).flat();

    test("returns lines as they were written", async () => {
      const written = make({
        at: 5,
        severity: "warn",
        message: 'a "b" \\ \t 🎉\u0000',
        hostname: "web-1",
        group: "g",
      });
      await running.seed("app", [written]);
      const [found] = await read();
      const { json, ...fields } = written;
      expect(found).toMatchObject(fields);
      expect(JSON.parse(found?.json ?? "")).toMatchObject(JSON.parse(json));
    });

    test("leaves missing fields absent and the severity unknown", async () => {
      await running.seed("app", [{ id: "bare", time: fromMillis(base), source_id: "app", json: "{}" }]);
      const [found] = await read();
      expect([found?.message, found?.hostname, found?.group]).toEqual([undefined, undefined, undefined]);
      expect(found?.severity).toBe("unknown");
    });

    describe("order and batches", () => {
      const app = Array.from({ length: 60 }, (_, n) =>
        make({ at: (n * 7) % 10, id: `${String.fromCharCode(90 - (n % 26))}-${n}` }),
      );
      const nginx = Array.from({ length: 40 }, (_, n) => make({ at: (n * 3) % 10, id: `z${n}` }));
      beforeAll(async () => {
        await running.seed("app", app);
        await running.seed("nginx", nginx);
      });

      test("orders by time, source and id; descending is the exact reverse", async () => {
        const sources = [running.sources.nginx, running.sources.app] as const;
        const found = await read({ sources });
        const expected = [
          ...app.map((line) => ({ ...line, source_id: "app" })),
          ...nginx.map((line) => ({ ...line, source_id: "nginx" })),
        ].sort(compare);
        expect(found.map(place)).toEqual(expected.map(place));
        expect((await read({ sources, order: "desc" })).map(place)).toEqual(expected.map(place).reverse());
      });

      test("yields no empty batch and ends batches between milliseconds", async () => {
        const ties = Array.from({ length: 3_000 }, (_, n) => make({ at: Math.floor(n / 300), id: `t${n}` }));
        await running.seed("nginx", ties);
        for (const order of ["asc", "desc"] as const) {
          const found = await batches({ sources: [running.sources.nginx], order, expectedLines: 50 });
          expect(found.flat()).toHaveLength(ties.length);
          for (const [index, batch] of found.entries()) {
            expect(batch.length).toBeGreaterThan(0);
            const last = batch.at(-1);
            const next = found[index + 1]?.[0];
            if (last !== undefined && next !== undefined) {
              expect(floorToMilli(next.time)).not.toBe(floorToMilli(last.time));
            }
          }
        }
      });

      test("yields a document once for each source that holds it", async () => {
        const found = await read({ sources: [running.sources.twin, running.sources.app] });
        expect(found).toHaveLength(2 * app.length);
        expect(found.filter((line) => line.source_id === "twin")).toHaveLength(app.length);
        expect(found.slice(0, 2).map((line) => line.source_id)).toEqual(["app", "app"]);
      });
    });

    describe("ranges", () => {
      const lines = [0, 1, 2, 3, 4].map((at) => make({ at, id: `m${at}` }));
      beforeAll(() => running.seed("app", lines));

      test("includes both ends of the range", async () => {
        const found = await read({ range: { from: fromMillis(base + 1), to: fromMillis(base + 3) } });
        expect(found.map((line) => line.id)).toEqual(["m1", "m2", "m3"]);
        const one = await read({ range: { from: fromMillis(base + 2), to: fromMillis(base + 2) } });
        expect(one.map((line) => line.id)).toEqual(["m2"]);
      });

      test("applies bounds below the millisecond exactly", async () => {
        const shifted = (at: number, nanos: bigint) => (fromMillis(base + at) + nanos) as Instant;
        const found = await read({ range: { from: shifted(0, 1n), to: shifted(3, -1n) } });
        expect(found.map((line) => line.id)).toEqual(["m1", "m2"]);
      });

      test("reads only the milliseconds that a query names, within the range", async () => {
        const moments = (...at: readonly [number, ...number[]]) =>
          at.map((milli) => fromMillis(base + milli)) as [Instant, ...Instant[]];
        const find = async (over: Partial<LogQuery>) => (await read(over)).map((line) => line.id);
        expect(await find({ moments: moments(4, 1, 7) })).toEqual(["m1", "m4"]);
        const range = { from: fromMillis(base + 2), to: fromMillis(base + 4) };
        expect(await find({ moments: moments(1, 4), range, order: "desc" })).toEqual(["m4"]);
        // What is not named is not read, so it counts against no limit.
        expect(await find({ moments: moments(2, 3), documentLimit: 2 })).toEqual(["m2", "m3"]);
      });

      test("orders and bounds lines by nanoseconds", async () => {
        const at = (nanos: bigint) => (fromMillis(base) + nanos) as Instant;
        await running.seed("app", [
          { ...make({ at: 0, id: "b" }), time: at(2n) },
          { ...make({ at: 0, id: "c" }), time: at(1n) },
          { ...make({ at: 0, id: "a" }), time: at(3n) },
        ]);
        expect((await read()).map((line) => line.id)).toEqual(["c", "b", "a"]);
        const cut = await read({ range: { from: at(2n), to: at(2n) } });
        expect(cut.map((line) => line.id)).toEqual(["b"]);
        await running.seed("app", lines);
      });

      test("yields nothing when nothing matches", async () => {
        expect(await batches({ range: { from: fromMillis(base + 5), to: fromMillis(base + 9) } })).toEqual(
          [],
        );
        expect(await batches({}, "message=nowhere")).toEqual([]);
      });
    });

    describe("limits", () => {
      const lines = Array.from({ length: 100 }, (_, n) => make({ at: n < 40 ? 0 : n, id: `l${n}` }));
      beforeAll(() => running.seed("app", lines));

      test("reads as many documents as the limit and refuses one more", async () => {
        expect(await read({ documentLimit: 100, expectedLines: 1_000 })).toHaveLength(100);
        await expect(read({ documentLimit: 99, expectedLines: 1_000 })).rejects.toBeInstanceOf(Refused);
        await expect(read({ documentLimit: 99, expectedLines: 1_000 })).rejects.toMatchObject({
          slug: "result_too_large",
        });
      });

      test("holds as many lines of one millisecond as the limit and refuses one more", async () => {
        expect(await read({ tieLimit: 40 })).toHaveLength(100);
        await expect(read({ tieLimit: 39 })).rejects.toMatchObject({ slug: "result_too_large" });
      });
    });

    describe("fits", () => {
      const ample = 10_000;
      const fits = async (over: Partial<LogQuery>) =>
        running.store.isWithinLimits?.(
          queryOf({ expectedLines: 1_500, tieLimit: ample, documentLimit: ample, ...over }),
          never(),
        );

      test("is true only for pages that are not refused", async () => {
        const lines = Array.from({ length: 2_400 }, (_, n) => make({ at: n >> 2, id: `f${n}` }));
        await running.seed("app", lines);
        expect(await fits({})).toBe(true);
        expect(await fits({ filter: parse("message:nowhere") })).toBe(true);
        expect(await fits({ filter: parse("at>=0"), documentLimit: 2_399 })).toBe(false);
        for (const order of ["asc", "desc"] as const) {
          for (const limit of [500, 1_499, 1_500, 1_504, 2_016, 2_399, 2_400, 3_000]) {
            for (const bound of [{ documentLimit: limit }, { tieLimit: limit }]) {
              if ((await fits({ order, ...bound })) !== true) continue;
              expect((await page({ order, expectedLines: 1_500, ...bound })).length).toBeGreaterThanOrEqual(
                1_500,
              );
            }
          }
        }
      });

      test("foresees an oversized millisecond at the end of the page and ignores one behind it", async () => {
        const burst = Array.from({ length: 1_800 }, (_, n) => make({ at: 900, id: `b${n}` }));
        await running.seed("app", [
          ...Array.from({ length: 900 }, (_, n) => make({ at: n, id: `s${n}` })),
          ...burst,
        ]);
        for (const bound of [{ documentLimit: 2_600 }, { tieLimit: 1_700 }]) {
          expect(await fits({ expectedLines: 901, ...bound })).toBe(false);
          await expect(page({ expectedLines: 901, ...bound })).rejects.toMatchObject({
            slug: "result_too_large",
          });
          if (await fits({ expectedLines: 300, ...bound })) await page({ expectedLines: 300, ...bound });
        }
      });
    });

    describe("abort", () => {
      const lines = Array.from({ length: 3_000 }, (_, n) => make({ at: n, id: `a${n}` }));
      beforeAll(() => running.seed("app", lines));

      test("rejects with the reason before the first batch", async () => {
        const reason = new Error("gone");
        await expect(batches({}, "", AbortSignal.abort(reason))).rejects.toBe(reason);
      });

      test("rejects with the reason between batches", async () => {
        const control = new AbortController();
        const reason = new Error("gone");
        const reading = async () => {
          const query = { sources: [running.sources.app], range: wide, filter: parse("") } as const;
          const limits = {
            order: "asc",
            expectedLines: 10,
            documentLimit: 100_000,
            tieLimit: 10_000,
          } as const;
          for await (const _ of running.store.lines({ ...query, ...limits }, control.signal))
            control.abort(reason);
        };
        await expect(reading()).rejects.toBe(reason);
      });

      test("ends without a failure when the consumer leaves early", async () => {
        const query = { sources: [running.sources.app], range: wide, filter: parse("") } as const;
        const limits = {
          order: "desc",
          expectedLines: 10,
          documentLimit: 100_000,
          tieLimit: 10_000,
        } as const;
        for await (const batch of running.store.lines({ ...query, ...limits }, never())) {
          expect(batch[0]?.id).toBe("a2999");
          break;
        }
      });
    });

    for (const { name, steps } of loadScripts()) {
      // In order: a `load` applies to the steps after it.
      test(`script ${name}`, async () => {
        for (const step of steps) {
          if (step.kind === "load") {
            await running.seed(
              "app",
              step.lines.map((line) => ({
                ...toLogLine(line),
                severity: line.severity,
                time: timeOf(toLogLine(line)),
              })),
            );
          } else if (step.kind === "eval") {
            const filter = parse(step.query, { legacy: step.legacy });
            const ids = (await read({ filter })).map((line) => line.id).sort();
            const { line, query } = step;
            expect({ line, query, ids }).toEqual({ line, query, ids: step.ids });
          }
        }
      });
    }

    vitestTest("every excuse is for a test", () => {
      expect([...unused]).toEqual([]);
    });
  });
}

/** Script lines without a time are at the epoch, outside every range of the suite. */
function timeOf({ time }: LogLine): Instant {
  return time === 0n ? fromMillis(base) : time;
}

function make({ at, ...fields }: { readonly at: number } & Partial<LogLine>): LogLine {
  return {
    id: `line-${at}`,
    time: fromMillis(base + at),
    source_id: "app",
    severity: "info",
    message: `line ${at}`,
    json: `{"at":${at},"price":200.0}`,
    ...fields,
  };
}

const place = ({ time, source_id, id }: LogLine): string => `${time} ${source_id} ${id}`;

function compare(a: LogLine, b: LogLine): number {
  if (a.time !== b.time) return a.time < b.time ? -1 : 1;
  if (a.source_id !== b.source_id) return a.source_id < b.source_id ? -1 : 1;
  return a.id === b.id ? 0 : a.id < b.id ? -1 : 1;
}

const never = (): AbortSignal => new AbortController().signal;
