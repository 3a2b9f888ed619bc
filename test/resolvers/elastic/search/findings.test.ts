// What is found of many indices is told once, however many mappings they have.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Finding, formatFindings } from "#resolvers/elastic/search/findings.ts";
import { openIndices } from "../../../support/elastic/layout-harness.ts";

test("check tells a limitation of 70 mappings in one line", async () => {
  const at = "2026-01-15T10:00:00Z";
  const indices = Object.fromEntries(
    Array.from({ length: 70 }, (_, number) => {
      const properties = {
        "@timestamp": { type: "date" },
        message: { type: "text", index: false },
        log: { properties: { level: { type: "keyword" } } },
        // A mapping of its own for each.
        [`own${number}`]: { type: "keyword" },
      };
      const mappings = { dynamic: "false", properties };
      const documents = [{ "@timestamp": at, message: "m", log: { level: "info" } }];
      return [`logs-${String(number).padStart(2, "0")}`, { mappings, documents }];
    }),
  );
  const report = await (await openIndices(indices)).report({ layout: "ecs" });
  const all = "70 indices (logs-00, logs-01 and 68 more)";
  expect(report.problems).toEqual([]);
  expect(report.limitations).toEqual(
    expect.arrayContaining([
      `${all}: message is not searchable; filters on message read every line of the range`,
      expect.stringMatching(/^70 indices \(logs-00, logs-01 and 68 more\): hostname .* is not mapped/),
      expect.stringMatching(/^70 indices \(logs-00, logs-01 and 68 more\): names that are not mapped/),
    ]),
  );
  expect(report.limitations.length).toBeLessThan(7);
});

describe("formatFindings", () => {
  test.each<[readonly string[], string]>([
    [["a"], "a: t"],
    [["b", "a"], "a, b: t"],
    [["c", "b", "a"], "3 indices (a, b and 1 more): t"],
  ])("names %j as %s", (indices, sentence) => {
    expect(formatFindings([{ indices, text: "t" }])).toEqual([sentence]);
  });

  test("has one sentence for each text, with every index that it holds for", () => {
    const text = fc.constantFrom("x", "y", "z");
    const finding: fc.Arbitrary<Finding> = fc.oneof(
      text.map((one) => `all: ${one}`),
      fc.record({ text, indices: fc.array(fc.constantFrom("a", "b", "c", "d"), { minLength: 1 }) }),
    );
    fc.assert(
      fc.property(fc.array(finding), (findings) => {
        const sentences = formatFindings(findings);
        const texts = new Set(findings.map((one) => (typeof one === "string" ? one : one.text)));
        expect(sentences).toHaveLength(texts.size);
        for (const text of texts) {
          const indices = new Set(
            findings.flatMap((one) => (typeof one !== "string" && one.text === text ? one.indices : [])),
          );
          const [first = "", second] = [...indices].sort();
          const names = [
            ...(indices.size > 2
              ? [`${indices.size} indices (${first}, ${second} and ${indices.size - 2} more): `]
              : []),
            ...(indices.size > 0 && indices.size <= 2 ? [`${[...indices].sort().join(", ")}: `] : []),
          ];
          expect(sentences).toContain(`${names.join("")}${text}`);
        }
      }),
    );
  });
});
