// Exports (NDJSON and CSV) hold the same lines as all pages concatenated, and obey the document limit.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import { csv, ndjson } from "#src/operations/logs/export.ts";
import { lines } from "#src/operations/logs/lines.ts";
import type { Context, RowBatch } from "#src/operations/runtime/operation.ts";
import type { LogStore } from "#src/store/logs.ts";
import { sampleRuns } from "../support/law-runs.ts";

const base = Date.UTC(2026, 0, 15, 10);

interface Line {
  readonly at: number;
  readonly message: string | undefined;
}

function serve(written: readonly Line[], over: { limits?: Partial<Limits>; store?: LogStore } = {}) {
  const memory = createMemoryLogs();
  memory.add(
    "app",
    written.map(({ at, message }, n) => ({
      id: `l${n}`,
      time: (fromMillis(base) + BigInt(at)) as Instant,
      severity: "info" as const,
      message,
      json: '{"n":1.0}',
    })),
  );
  const store = over.store ?? memory;
  const sources = new Map([["app", { id: "app", index: "app", layout: "auto", tenantFilter: undefined }]]);
  const logs = { backend: "memory", store, sources };
  const context: Context = {
    user: "ana",
    sites: new Map([["shop", { id: "shop", retention: 86_400_000, counterDefault: "cumulative", logs }]]),
    limits: { ...defaults.limits, ...over.limits },
    now: () => fromMillis(base + 3_600_000),
    signal: new AbortController().signal,
  };
  const parsed = (pagination: object, more = {}) =>
    lines.request.parse({ site_id: "shop", source_ids: ["app"], query: "", pagination, ...more });
  const read = async (pieces: AsyncIterable<RowBatch>): Promise<string> => {
    let text = "";
    for await (const piece of pieces) text += piece.text;
    return text;
  };
  return {
    async page(per_page: number, order: string, time: string | null) {
      const answer = lines.run(parsed({ per_page, order, cursor: { time } }), context);
      if (!(Symbol.asyncIterator in answer)) throw new Error("rows expected");
      const rows: string[] = [];
      for await (const { text } of answer) rows.push(text);
      return rows.length === 0 ? [] : JSON.parse(`[${rows.join(",")}]`);
    },
    export(form: typeof ndjson, order = "ASC", time: string | null = null, more = {}) {
      const result = form.run(parsed({ per_page: 1, order, cursor: { time } }, more), context);
      if (!("pieces" in result)) throw new Error("pieces expected");
      return read(result.pieces);
    },
    /** The lengths of the chunks of an export or a page. */
    async pieces(form: typeof ndjson | undefined) {
      const result = (form ?? lines).run(parsed({ per_page: 10_000, order: "ASC" }), context);
      const pieces = "pieces" in result ? result.pieces : result;
      if (!(Symbol.asyncIterator in pieces)) throw new Error("pieces expected");
      const lengths: number[] = [];
      for await (const { text } of pieces) lengths.push(text.length);
      return lengths;
    },
  };
}

/** Parses strict RFC 4180. */
function readCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let at = 0;
  while (at < text.length) {
    let cell = "";
    if (text[at] === '"') {
      for (at += 1; text[at] !== '"' || text[at + 1] === '"'; at += 1) {
        if (at >= text.length) throw new Error("a quote that does not end");
        if (text[at] === '"') at += 1;
        cell += text[at];
      }
      at += 1;
    } else {
      const end = text.slice(at).search(/,|\r\n/);
      cell = text.slice(at, at + end);
      expect(cell).not.toMatch(/["\r\n]/);
      at += end;
    }
    row.push(cell);
    if (text[at] === ",") at += 1;
    else {
      expect(text.slice(at, at + 2)).toBe("\r\n");
      at += 2;
      rows.push(row);
      row = [];
    }
  }
  return rows;
}

const message = fc.option(fc.string({ unit: fc.constantFrom(..."ab,\"\r\n=+-@ \tä🎉'{") }), {
  nil: undefined,
});
const written = fc.array(fc.record({ at: fc.nat(5_000_000), message }), { maxLength: 60 });

describe("log export: equality with the concatenated pages", () => {
  test("equals the pages in both orders, over split milliseconds and behind a cursor", async () => {
    const law = fc.asyncProperty(
      written,
      fc.constantFrom("ASC", "DESC"),
      fc.integer({ min: 1, max: 9 }),
      fc.integer({ min: 1, max: 9 }),
      fc.nat(3),
      async (written, order, cap, perPage, skipped) => {
        const served = serve(written, { limits: { linesPerMillisecond: cap } });
        const pages: Record<string, string>[][] = [];
        let cursor: string | null = null;
        for (;;) {
          const page: Record<string, string>[] = await served.page(perPage, order, cursor);
          pages.push(page);
          if (page.length < perPage) break;
          cursor = page.at(-1)?.timestamp ?? null;
        }
        const behind = pages.slice(0, skipped).flat().at(-1)?.timestamp ?? null;
        const rows = behind === null ? pages.flat() : pages.slice(skipped).flat();
        const text = await served.export(ndjson, order, behind);
        expect(text).toBe(rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
        const finer = behind?.replace(/(\.\d{3})Z$/, "$1277999Z") ?? null;
        expect(await served.export(ndjson, order, finer)).toBe(text);
        const [header, ...cells] = readCsv(await served.export(csv, order, behind));
        const keys = Object.keys(rows[0] ?? {}).filter((key) => key !== "attributes");
        if (rows.length > 0) expect(header).toEqual(keys);
        expect(cells).toEqual(
          rows.map((row) =>
            keys.map((key) =>
              /^(?:[\t\r\n]| *[\t\r\n ]*[=+\-@])/.test(row[key] ?? "") ? `'${row[key]}` : row[key],
            ),
          ),
        );
      },
    );
    await fc.assert(law, { numRuns: sampleRuns(200) });
  });

  test("equals the pages for thousands of lines and for none", async () => {
    const served = serve(Array.from({ length: 3_456 }, (_, n) => ({ at: n * 400_000, message: `m${n}` })));
    const ids = (text: string) => [...text.matchAll(/"id":"(l\d+)"/g)].map(([, id]) => id);
    expect(ids(await served.export(ndjson))).toEqual(Array.from({ length: 3_456 }, (_, n) => `l${n}`));
    const none = { query: "message=nothing" };
    expect(await served.export(ndjson, "ASC", null, none)).toBe("");
    expect(await served.export(csv, "ASC", null, none)).toBe(
      "id,timestamp,source_id,severity,message,hostname,group,json\r\n",
    );
    expect(await served.export(ndjson, "ASC", "2030-01-01T00:00:00Z")).toBe("");
  });

  test("sends large lines in chunks of bounded size, as a page does", async () => {
    const message = "x".repeat(100_000);
    const served = serve(Array.from({ length: 30 }, (_, n) => ({ at: n, message })));
    for (const form of [ndjson, csv, undefined]) {
      const lengths = await served.pieces(form);
      expect(Math.max(...lengths)).toBeLessThan(400_000);
      expect(lengths.reduce((sum, length) => sum + length)).toBeGreaterThan(3_000_000);
    }
  });
});

describe("log export: document limit", () => {
  const many = Array.from({ length: 100 }, (_, n) => ({ at: n * 1_000_000, message: undefined }));

  test("counts the candidates before it sends the first line", async () => {
    const refused = { slug: "result_too_large", details: { limit: 99 } };
    await expect(serve(many, { limits: { export: 99 } }).export(ndjson)).rejects.toMatchObject(refused);
    expect(
      (await serve(many, { limits: { export: 100, documents: 1 } }).export(ndjson)).split("\n"),
    ).toHaveLength(101);
  });

  test("limits the read itself when the store cannot count candidates", async () => {
    const limits: unknown[] = [];
    const store: LogStore = {
      // biome-ignore lint/correctness/useYield: there are no lines
      async *lines({ documentLimit }) {
        limits.push(documentLimit);
      },
    };
    await serve([], { store, limits: { export: 7 } }).export(ndjson);
    await serve([], { store: { ...store, isWithinLimits: async () => true }, limits: { export: 7 } }).export(
      ndjson,
    );
    expect(limits).toEqual([7, Number.MAX_SAFE_INTEGER]);
  });
});
