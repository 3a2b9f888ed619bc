// A term made from a value means exactly that value to the parser, whatever the value is.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { addTerm, printFieldTerm, printTagTerm, printTerm } from "#src/console/search/query.js";
import { restoreBreaks } from "#src/console/search/query-box.js";
import type { Filter } from "#src/log-query/ast.ts";
import { parse } from "#src/log-query/parse.ts";
import { print } from "#src/log-query/print.ts";
import { parseTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { sampleRuns } from "../support/law-runs.ts";

const piece = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...'ab01.\\"()[]=!:<>, \t\n-_{}\u202e') },
  { weight: 1, arbitrary: fc.constantFrom("AND", "OR", "attributes", "_int", "_string", "message", "<img>") },
  { weight: 1, arbitrary: fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }) },
);
const text = fc
  .string({ unit: piece, maxLength: 12 })
  .map((value) => value.replaceAll("\0", "").toWellFormed());
const key = fc.oneof(
  text,
  fc.constantFrom("message", "attributes", "user_string", "severity", "k8s.pod.name"),
);
const path = fc
  .array(key, { minLength: 1, maxLength: 4 })
  .filter((keys) => keys.length > 1 || keys[0] !== "");
const operator = fc.constantFrom("=", "!=", ":", "!:");

function meaningOf(filter: Filter<unknown>): unknown {
  if (filter.kind === "all") return [];
  if (filter.kind === "compare")
    return { field: filter.field, operator: filter.operator, value: filter.value };
  return { kind: filter.kind, operands: filter.operands.map(meaningOf) };
}
/** What all has to hold. */
function conditionsOf(filter: Filter): readonly unknown[] {
  if (filter.kind === "all") return [];
  return filter.kind === "and" ? filter.operands.flatMap(conditionsOf) : [meaningOf(filter)];
}

describe("a term of a query", () => {
  test("compares a field of the body", () => {
    fc.assert(
      fc.property(path, operator, text, (keys, sign, value) => {
        const term = printTerm(keys, sign, value) ?? "";
        const field = { kind: "json", path: keys };
        expect(meaningOf(parse(term))).toEqual({ field, operator: sign, value });
      }),
      { numRuns: sampleRuns(2_000) },
    );
  });

  test.each(["message", "severity", "hostname", "group"])("compares the line's own %s", (name) => {
    fc.assert(
      fc.property(operator, text, (sign, value) => {
        const filter = parse(printFieldTerm(name, sign, value) ?? "");
        expect(meaningOf(filter)).toEqual({ field: { kind: "line", name }, operator: sign, value });
      }),
    );
  });

  test("compares a tag of a trace", () => {
    const name = text.filter((one) => one !== "");
    fc.assert(
      fc.property(name, operator, text, (tag, sign, value) => {
        const filter = parseTraceQuery(printTagTerm(tag, sign, value) ?? "");
        expect(meaningOf(filter)).toEqual({ field: { kind: "tag", name: tag }, operator: sign, value });
      }),
      { numRuns: sampleRuns(1_000) },
    );
  });

  test.each([
    [["a"], "x\0y"],
    [["a"], "\ud800"],
    [["\udc00"], "x"],
    [["a\0"], "x"],
    [[""], "x"],
  ])("of %j and %j has no words", (keys, value) => {
    expect(printTerm(keys, "=", value)).toBeUndefined();
  });
});

test("keeps the meaning of a query and adds a term", () => {
  const { filter } = fc.letrec<{ filter: string }>((tie) => ({
    filter: fc.oneof(
      { depthSize: "small" },
      fc.tuple(path, operator, text).map(([keys, sign, value]) => printTerm(keys, sign, value) ?? "a=b"),
      fc
        .tuple(fc.constantFrom(" OR ", " AND ", " "), tie("filter"), tie("filter"))
        .map(([word, one, other]) => `(${one})${word}${other}`),
    ),
  }));
  fc.assert(
    fc.property(fc.oneof(filter, fc.constant(" ")), text, (query, value) => {
      const term = printTerm(["x"], "=", value) ?? "";
      const narrowed = conditionsOf(parse(addTerm(query, term)));
      expect(narrowed).toEqual([...conditionsOf(parse(query)), ...conditionsOf(parse(term))]);
    }),
    { numRuns: sampleRuns(1_000) },
  );
});

test("keeps unusual white space at the end of a value", () => {
  expect(addTerm("a=\u00a0", "b=c")).toBe("a=\u00a0 b=c");
  expect(addTerm(" a=b\t", "a=b")).toBe("a=b");
});

test("adds a term once", () => {
  expect(addTerm("a=b", "a=b")).toBe("a=b");
  expect(print(parse(addTerm("a=b OR c=d", "e=f")))).toBe("(a=b OR c=d) AND e=f");
});

test("a query that was written is read with its own line breaks, and one that was typed as it stands", () => {
  const breaks = fc
    .array(fc.constantFrom("\r\n", "\r", "\n", "a"), { maxLength: 6 })
    .map((all) => all.join(""));
  fc.assert(
    fc.property(breaks, fc.constantFrom("", "b"), (written, typed) => {
      // As the value of a text area: https://html.spec.whatwg.org/#textarea-line-break-normalisation-element
      const shown = written.replaceAll("\r\n", "\n").replaceAll("\r", "\n") + typed;
      expect(restoreBreaks(shown, written)).toBe(typed === "" ? written : shown);
    }),
  );
});
