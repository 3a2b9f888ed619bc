import { describe, expect, test, vi } from "vitest";
import { Unprocessable } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { compileMatcher, compileSteppedMatcher, matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { type LoadedLine, loadScripts, toLogLine } from "./script.ts";

const scripts = loadScripts();

describe.each(scripts)("query script $name", ({ name, steps }) => {
  let lines: readonly LoadedLine[] = [];
  for (const step of steps) {
    if (step.kind === "load") {
      lines = step.lines;
      continue;
    }
    const loaded = lines;
    test(`${name}:${step.line} ${step.kind} ${step.query}`, () => {
      if (step.kind === "eval") {
        const found = compileMatcher(parse(step.query, { legacy: step.legacy }));
        expect(loaded.filter((line) => found(toLogLine(line))).map((line) => line.id)).toEqual(step.ids);
        return;
      }
      expect(refusal(() => parse(step.query, { legacy: step.legacy }))).toEqual({
        slug: step.slug,
        details: step.details,
      });
    });
  }
});

test("query scripts cover enough cases and expect only loaded lines", () => {
  const evaluations = scripts.flatMap((script) => script.steps.filter((step) => step.kind === "eval"));
  expect(evaluations.length).toBeGreaterThan(150);
  for (const { steps } of scripts) {
    const ids = steps.flatMap((step) => (step.kind === "load" ? step.lines.map((line) => line.id) : []));
    for (const step of steps)
      if (step.kind === "eval") expect(ids).toEqual(expect.arrayContaining([...step.ids]));
  }
});

function refusal(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    return { slug: error.slug, details: error.details };
  }
}

function line(json: string): LogLine {
  return toLogLine({ id: "a", json });
}

describe("matches: unusual bodies", () => {
  test.each(["", "{", "nope", '{"a":1}}', '{"a":01}', "\0"])(
    "reads the invalid JSON %j as an empty object",
    (json) => {
      expect(matches(parse("a:1"), line(json))).toBe(false);
      expect(matches(parse("a!:1"), line(json))).toBe(true);
    },
  );

  test.each(["null", "1", '"a"', "true"])("finds no fields in %j", (json) => {
    expect(matches(parse("a!=1"), line(json))).toBe(true);
  });

  test.each([100, 200_000])("reads %i levels of nesting without a stack overflow", (levels) => {
    const arrays = line(`{"a":${"[".repeat(levels)}7.0${"]".repeat(levels)}}`);
    expect(matches(parse("a=7.0"), arrays)).toBe(true);
    expect(matches(parse("a=7"), arrays)).toBe(false);
    const objects = line(`${'{"a":'.repeat(levels)}7.0${"}".repeat(levels)}`);
    expect(matches(parse(`${"a.".repeat(99)}a=7.0`), objects)).toBe(levels === 100);
  });

  test("compares numbers at every place of a body", () => {
    const body = line(
      '{ "s" : "x\\"1.0\\\\" , "a":[1.0,{"b":-2.50e+1,"c":null}, true,false], "d\\u0065":3.0 }',
    );
    for (const query of ["a.0=1.0", "a.1.b=-2.50e+1", "de=3.0", "a=false", 's="x\\"1.0\\\\"']) {
      expect(matches(parse(query), body), query).toBe(true);
    }
  });
});

test("a body is parsed at most once, and only for filters that read it", () => {
  const parsed = vi.spyOn(JSON, "parse");
  try {
    const body = line('{"a":1.0,"b":"x"}');
    expect(matches(parse("severity=unknown message!=x (hostname=x OR group!:x)"), body)).toBe(true);
    expect(parsed).toHaveBeenCalledTimes(0);
    expect(matches(parse("a=1.0 a:.0 b=x b!=y c!=z a>0 a<=1.0"), body)).toBe(true);
    expect(parsed).toHaveBeenCalledTimes(1);
  } finally {
    parsed.mockRestore();
  }
});

describe("many comparisons with a long line", () => {
  const long = toLogLine({ id: "a", json: JSON.stringify({ text: "m".repeat(30_000), a: 1 }) });
  const build = (word: string, last: string) =>
    parse([...Array.from({ length: 300 }, (_, n) => `(text:x${n} AND a=1)`), last].join(` ${word} `));
  const run = (query: string | ReturnType<typeof parse>) => {
    const found = compileSteppedMatcher(typeof query === "string" ? parse(query) : query)(long);
    if (typeof found === "boolean") return { found, pauses: 0 };
    let pauses = 0;
    let step = found.next();
    for (; step.done !== true; step = found.next()) pauses += 1;
    return { found: step.value, pauses };
  };

  test("pause between the comparisons", () => {
    expect(run(build("OR", "a=1"))).toEqual({ found: true, pauses: expect.any(Number) });
    expect(run(build("OR", "a=1")).pauses).toBeGreaterThanOrEqual(8);
    expect(run(build("OR", "a=2"))).toMatchObject({ found: false });
    expect(run(build("AND", "a=1"))).toEqual({ found: false, pauses: 0 });
  });

  test("do not pause where they are few", () => {
    expect(run("text:m OR a=2")).toEqual({ found: true, pauses: 0 });
    expect(run("")).toEqual({ found: true, pauses: 0 });
  });
});
