// The queries behind the log lines of a trace and of a span.
import fc from "fast-check";
import { expect, test } from "vitest";
import { printSpanTerms, printTraceTerms } from "#src/console/traces/trace-logs.js";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { listIdSpellings } from "#src/tracing/spans/span-ids.ts";

const toLine = (body: object): LogLine => ({
  id: "1",
  time: fromMillis(0),
  source_id: "app",
  severity: "info",
  message: "x",
  json: JSON.stringify(body),
});

const hexIds = fc
  .tuple(fc.constantFrom(16, 32), fc.stringMatching(/^[0-9a-f]{1,32}$/))
  .map(([digits, text]) => text.slice(0, digits).padStart(digits, "0"));
const otherIds = fc.oneof(
  fc.constantFrom("a b", "x OR severity=error", "req(7)", 'say "no"', "back\\slash", "*", "tr:1"),
  fc.stringMatching(/^[ -~]{1,12}$/),
);

test.each([
  ["trace", printTraceTerms, [(id: string) => ({ trace_id: id }), (id: string) => ({ trace: { id } })]],
  ["span", printSpanTerms, [(id: string) => ({ span_id: id }), (id: string) => ({ span: { id } })]],
] as const)("the lines of a %s are those with its id in any spelling, and no others", (_, print, forms) => {
  fc.assert(
    fc.property(fc.oneof(hexIds, otherIds), otherIds, (id, other) => {
      const filter = parse(print(id) ?? "id=none");
      for (const form of forms) {
        for (const spelling of listIdSpellings(id))
          expect(matches(filter, toLine(form(spelling)))).toBe(true);
        expect(matches(filter, toLine(form(other)))).toBe(listIdSpellings(id).includes(other));
      }
      expect(matches(filter, toLine({ other: id }))).toBe(false);
    }),
  );
});

test("an id that no query can spell has none", () => {
  for (const print of [printTraceTerms, printSpanTerms]) expect(print("a\0b")).toBeUndefined();
});
