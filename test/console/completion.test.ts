// What the console reads of a query is what the parser reads, and what it offers goes on as it says.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { splitMatches } from "#src/console/base/format.js";
import {
  applySuggestion,
  locateCompletion,
  suggestFields,
  suggestValues,
} from "#src/console/search/completion.js";
import { listSoughtTexts, readTerms } from "#src/console/search/tokens.js";
import { type Filter, listComparisons } from "#src/log-query/ast.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { sampleRuns } from "../support/law-runs.ts";

const text = fc.string({ unit: fc.constantFrom(...'ab01.\\"()=:<>! \t_-'.split("")), maxLength: 8 });
const written = fc
  .array(
    fc.oneof(
      fc.tuple(text, fc.constantFrom("=", "!=", ":", "!:", ">="), text).map((parts) => parts.join("")),
      fc.constantFrom("AND", "OR", "(", ")", "a.b=1", 'message:"x y"', "timeout", "severity=error"),
      text,
    ),
    { maxLength: 6 },
  )
  .map((parts) => parts.join(" "));

function parsed(query: string): Filter | undefined {
  try {
    return parse(query);
  } catch {
    return undefined;
  }
}

describe("the terms of a query", () => {
  test("are the comparisons of the parser, at their places", () => {
    const runs = sampleRuns(3_000);
    let meant = 0;
    fc.assert(
      fc.property(written, (query) => {
        const filter = parsed(query);
        if (filter === undefined) return;
        meant += 1;
        const expected = listComparisons(filter).map(({ span, operator, value }) => ({
          ...span,
          operator,
          value,
        }));
        const found = readTerms(query).map(({ field, operator, value }) => ({
          start: field?.start ?? value?.start,
          end: value?.end,
          operator: operator?.text ?? ":",
          value: value?.text,
        }));
        expect(found).toEqual(expected);
      }),
      { numRuns: runs },
    );
    expect(meant).toBeGreaterThan(runs / 10);
  });

  test("are read of any text, in order, and never overlap", () => {
    fc.assert(
      fc.property(written, (query) => {
        let end = 0;
        for (const { field, value } of readTerms(query)) {
          expect(field?.start ?? value?.start).toBeGreaterThanOrEqual(end);
          end = value?.end ?? 0;
        }
        expect(end).toBeLessThanOrEqual(query.length);
      }),
    );
  });
});

describe("a completion", () => {
  const fields = ["severity", "hostname", "http.response.status_code", "user\\ name"];
  const complete = (query: string, choose: string) => {
    const place = locateCompletion(query, query.length);
    const offered =
      place.kind === "value"
        ? suggestValues(place, [{ value: "error", count: 3 }, { value: "a b" }])
        : suggestFields(place, fields);
    const chosen = offered.find(({ label }) => label === choose);
    return chosen === undefined ? offered.map(({ label }) => label) : applySuggestion(query, place, chosen);
  };

  test.each([
    ["", "severity", "severity"],
    ["a=b sev", "severity", "a=b severity"],
    ["(stat", "http.response.status_code", "(http.response.status_code"],
    ["severity", "severity!=", "severity!="],
    ["x=1 severity=", "error", "x=1 severity=error"],
    ["severity=er", "error", "severity=error"],
    ["severity=", "a b", 'severity="a b"'],
    ['severity="a', "a b", 'severity="a b"'],
  ])("of %j by %j", (query, choose, expected) => {
    expect(complete(query, choose)).toEqual({ query: expected, cursor: expected.length });
  });

  test("takes the place of the whole word that the cursor is in", () => {
    const place = locateCompletion("a=b seve=x c=d", 6);
    expect(applySuggestion("a=b seve=x c=d", place, { text: "severity", label: "" })).toEqual({
      query: "a=b severity=x c=d",
      cursor: 12,
    });
  });

  test.each([
    ["severity|=error", "severity!=", "severity!=error"],
    ["severity|!=error", "severity=", "severity=error"],
    ["severity|", "severity>=", "severity>="],
    ["sev|=error", "severity", "severity=error"],
    ["severity!|=error", "severity=", "severity=error"],
  ])("of %j, the cursor within it, by %j", (marked, choose, expected) => {
    const [query, cursor] = [marked.replace("|", ""), marked.indexOf("|")];
    const place = locateCompletion(query, cursor);
    const chosen = suggestFields(place, fields).find(({ label }) => label === choose);
    if (chosen === undefined) throw new Error("a suggestion expected");
    expect(applySuggestion(query, place, chosen).query).toBe(expected);
  });

  test("offers what begins as typed before what only contains it", () => {
    expect(complete("s", "nothing")).toEqual([
      "severity",
      "hostname",
      "http.response.status_code",
      "user\\ name",
    ]);
  });

  test("of a value means that value", () => {
    const value = text.filter((one) => one !== "");
    fc.assert(
      fc.property(value, (one) => {
        const place = locateCompletion("key=", 4);
        const [suggestion] = suggestValues(place, [{ value: one }]);
        if (suggestion === undefined) throw new Error("a suggestion expected");
        const { query } = applySuggestion("key=", place, suggestion);
        expect(listComparisons(parse(query)).map((comparison) => comparison.value)).toEqual([one]);
      }),
    );
  });
});

describe("what is sought in messages", () => {
  test("stands in a message that matches", () => {
    fc.assert(
      fc.property(
        text.filter((one) => one.trim() !== ""),
        text,
        (sought, around) => {
          const query = `message:"${sought.replace(/["\\]/g, "\\$&")}"`;
          const message = `${around}${sought}${around}`;
          const line = { message, severity: "info", json: "{}" } as Parameters<typeof matches>[1];
          expect(matches(parse(query), line)).toBe(true);
          const hits = splitMatches(message, listSoughtTexts(query)).filter(({ isHit }) => isHit);
          expect(hits.length).toBeGreaterThan(0);
          expect(hits.some((hit) => hit.text.includes(sought))).toBe(true);
        },
      ),
    );
  });

  test.each([
    ["timeout severity=error", ["timeout"]],
    ["message!:x message!=y host:z", []],
    ['"a b" OR message=c', ["a b", "c"]],
  ])("of %j", (query, expected) => {
    expect(listSoughtTexts(query)).toEqual(expected);
  });

  test("pieces make up the text", () => {
    const short = fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 6 });
    fc.assert(
      fc.property(short, fc.array(short, { maxLength: 3 }), (whole, sought) => {
        const pieces = splitMatches(whole, sought);
        expect(pieces.map((piece) => piece.text).join("")).toBe(whole);
        for (const { text: piece, isHit } of pieces) {
          expect(piece).not.toBe("");
          if (!isHit) expect(sought.some((one) => one !== "" && piece.includes(one))).toBe(false);
        }
      }),
    );
  });
});
