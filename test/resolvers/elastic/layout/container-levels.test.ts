// Severities of containers' lines, where the application's own level stands beside the stream that it wrote to. Levels are words,
// the numbers of pino and bunyan, or nothing that anybody can read.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Severity, severities } from "#src/core/rows.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import {
  at,
  buildMapping,
  createFakeIndex,
  type JsonObject,
  openIndices,
  readSingleDocument,
} from "../../../support/elastic/layout-harness.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const kubernetes = { pod_name: "api-1", host: "node-3", container_name: "api", namespace_name: "shop" };
const pino = { time: 1_768_471_200_000, pid: 1, hostname: "api-1", msg: "m" };
/** By layout: what a container's line of JSON becomes with the JSON's members at the root. */
const shipped: Readonly<Record<string, JsonObject>> = {
  "fluent-bit": { _p: "F", kubernetes },
  fluentd: { "@log_name": "kubernetes.api", kubernetes: { container_name: "api" } },
  plain: { source_type: "kubernetes_logs", message: "m", kubernetes: { pod_node_name: "node-3" } },
};
const layouts = Object.keys(shipped);

describe("a container's level", () => {
  test.each(layouts)("is read as pino's number beside a stream, by %s", async (layout) => {
    for (const [level, severity] of [
      [10, "trace"],
      [20, "debug"],
      [30, "info"],
      [40, "warn"],
      [50, "error"],
      [55, "error"],
      [60, "fatal"],
      [61, "unknown"],
      [9, "unknown"],
      ["50", "error"],
      ["ERR", "error"],
      ["odd", "unknown"],
      ["", "info"],
      [null, "info"],
      [{ own: "odd" }, "info"],
    ] as const) {
      const document = { ...pino, ...shipped[layout], stream: "stdout", level };
      const found = await readSingleDocument(document);
      expect([level, found.layout, found.line.severity]).toEqual([level, layout, severity]);
    }
  });

  test("is read where a logger of Elastic's has it, beside a stream", async () => {
    const document = { msg: "m", ...shipped["fluent-bit"], stream: "stdout", "log.level": "error" };
    expect(await readSingleDocument(document)).toMatchObject({
      layout: "fluent-bit",
      line: { severity: "error" },
    });
  });

  test("is read as a number below log_processed, and Docker's source gives way to one too", async () => {
    const below = { ...shipped["fluent-bit"], stream: "stdout", log: "{}", log_processed: { level: 50 } };
    expect((await readSingleDocument(below)).line.severity).toBe("error");
    const driver = { container_id: "c1", container_name: "/web", source: "stderr", log: "m" };
    expect((await readSingleDocument({ ...driver, level: 30 })).line.severity).toBe("info");
    expect((await readSingleDocument({ ...driver, level: 5 })).line.severity).toBe("unknown");
  });

  test("is found where one index has words and numbers", async () => {
    const levels = ["error", 50, "50", "info", 30, 7, undefined];
    const documents = levels.map((level, n) => ({
      ...pino,
      ...shipped["fluent-bit"],
      stream: "stdout",
      ...(level !== undefined && { level }),
      n,
    }));
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents, mapLevel("text")) });
    const numbers = async (query: string) => (await read(query)).map(({ json }) => JSON.parse(json).n).sort();
    expect(await numbers("severity=error OR severity=fatal")).toEqual([0, 1, 2]);
    expect(await numbers("severity=info")).toEqual([3, 4, 6]);
    expect(await numbers("severity=unknown")).toEqual([5]);
  });
});

/** A mapping of such documents in which the level has this type. */
function mapLevel(type: string): object {
  const known = { stream: "stdout", source: "stderr", severity: "error", n: 1, msg: "m" };
  const { properties } = buildMapping([known]) as { readonly properties: object };
  // An index does not group by keywords and numbers together.
  const priority = type === "keyword" ? {} : { PRIORITY: { type: "long" } };
  const level = type === "text" ? { type, fields: { keyword: { type: "keyword" } } } : { type };
  return { properties: { ...properties, ...priority, ...(type !== "" && { level }) }, dynamic: type !== "" };
}

/** What the documentation of the layouts says, in other words than the code. */
function expectSeverity(layout: string, document: JsonObject): Severity {
  const own = [document.level, document.severity].filter((value) => value !== undefined);
  const named = own.map((value) => parseSeverity(String(value))).find((word) => word !== "unknown");
  if (named !== undefined) return named;
  const number = /^\d+$/.test(String(document.level)) ? Number(document.level) : Number.NaN;
  const steps: readonly Severity[] = ["trace", "debug", "info", "warn", "error", "fatal"];
  if (number >= 10 && number <= 60) return steps[Math.floor(number / 10) - 1] ?? "unknown";
  const streams = [document.stream, ...(layout === "fluentd" ? [document.source] : [])];
  const first = own.length > 0 ? undefined : streams.find((value) => value !== undefined);
  if (first === "stderr") return "error";
  if (first === "stdout") return "info";
  return document.PRIORITY === 3 ? "error" : document.PRIORITY === 6 ? "info" : "unknown";
}

describe("laws of a container's level", () => {
  const level = {
    long: fc.constantFrom(3, 7, 10, 29, 30, 50, 60, 61, 99),
    // As the index in memory has it: it makes no text of a number, and does not analyse texts.
    keyword: fc.constantFrom<unknown>("error", "WARN", "odd", "50", "30", "7"),
    text: fc.constantFrom<unknown>("error", "warn", "odd", "50", "7", 50, 30, 7),
    "": fc.constantFrom<unknown>("error", "WARN", "odd", "50", "7", 50, 30, 7),
  };
  const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
  const cases = layouts.flatMap((layout) =>
    Object.entries(level).map(([type, values]) => [layout, type, values] as const),
  );
  test.each(cases)(
    "%s finds and counts what it answers, level mapped as '%s'",
    async (layout, type, values) => {
      const document = fc.record({
        level: optional(values),
        severity: optional(fc.constantFrom("info", "odd", "fatal")),
        stream: optional(fc.constantFrom("stdout", "stderr", "odd")),
        source: optional(fc.constantFrom("stdout", "stderr")),
        PRIORITY: type === "keyword" ? fc.constant(undefined) : optional(fc.constantFrom(3, 6)),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(document, { minLength: 1, maxLength: 12 }), async (drawn) => {
          const documents = drawn.map((own, n): JsonObject => {
            return JSON.parse(JSON.stringify({ "@timestamp": at, msg: "m", n, ...own }));
          });
          const { read, count } = await openIndices({ "logs-1": createFakeIndex(documents, mapLevel(type)) });
          const expected = documents.map((document) => expectSeverity(layout, document));
          const byNumber = async (query: string) =>
            (await read(query, { layout }))
              .map(({ json }): number => JSON.parse(json).n)
              .sort((a, b) => a - b);
          for (const severity of severities) {
            const own = expected.flatMap((one, n) => (one === severity ? [n] : []));
            const others = expected.flatMap((one, n) => (one === severity ? [] : [n]));
            expect(await byNumber(`severity=${severity}`)).toEqual(own);
            expect(await byNumber(`severity!=${severity}`)).toEqual(others);
          }
          const source = { id: "app", index: "logs-*", layout, tenantFilter: undefined };
          const counted = await count({ source, grouping: { kind: "line", name: "severity" } });
          const tally = new Map<string, number>();
          for (const severity of expected) tally.set(severity, (tally.get(severity) ?? 0) + 1);
          if (type === "keyword") expect(counted?.groups).toEqual(tally);
          else expect(counted).toBeUndefined();
        }),
        { numRuns: sampleRuns(25, { share: 12, least: 2 }), seed: 31 },
      );
    },
  );
});
