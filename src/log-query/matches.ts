// What a filter means, on one line. This is the definition: stores that compile filters are tested against it.

import type { Steps } from "../core/async/turns.ts";
import type { LogLine } from "../core/rows.ts";
import { type Compare, type Filter, listComparisons, type Operator, type Path, queryLimits } from "./ast.ts";
import { orderDecimals, parseDecimal } from "./decimal.ts";
import { type Body, isNumberText, openBody, spelling } from "./json-body.ts";

type Test = (line: LogLine, body: Body) => boolean;

/** The positive comparison with the filter's value; `!=` and `!:` are its negation. */
interface Comparison {
  readonly matchesText: (text: string) => boolean;
  /** On a number as a double; undefined where only its text can tell. */
  readonly compareNumber: (number: number) => boolean | undefined;
}

/** Whether the line satisfies the filter. Total: no line and no body makes it throw. */
export function matches(filter: Filter, line: LogLine): boolean {
  return compileMatcher(filter)(line);
}

/** `matches` for many lines: what depends on the filter alone is worked out once. A body is read only if asked for. */
export function compileMatcher(filter: Filter): (line: LogLine) => boolean {
  const test = compileFilter(filter);
  return filter.kind === "all" ? () => true : (line) => test(line, openBody(line.json));
}

/** What is compared in one step, in characters: some milliseconds where each comparison searches all of a long text. */
const charsPerStep = 1_000_000;

/** With lines up to this no query of a client passes one step. */
const shortLine = charsPerStep / queryLimits.leaves;

/**
 * The same for stores whose lines may be long: a thousand comparisons with a line of a megabyte take a second. Where comparing may
 * take longer than one step, the answer comes in steps.
 */
export function compileSteppedMatcher(filter: Filter): (line: LogLine) => boolean | Steps<boolean> {
  const test = compileSteppedFilter(filter);
  return filter.kind === "all" ? () => true : (line) => test(line, openBody(line.json));
}

/** The same for lines that many filters are asked about: their bodies are opened once for all of these. */
export function compileSteppedFilter(
  filter: Filter,
): (line: LogLine, body: Body) => boolean | Steps<boolean> {
  const test = compileFilter(filter);
  let stepped: { readonly test: SteppedTest; readonly comparisons: number } | undefined;
  return (line, body) => {
    const chars = line.json.length + (line.message?.length ?? 0);
    if (chars <= shortLine) return test(line, body);
    stepped ??= { test: compileSteps(filter), comparisons: listComparisons(filter).length };
    if (stepped.comparisons * chars <= charsPerStep) return test(line, body);
    return stepped.test(line, body, { charsPerComparison: chars, chars: 0 });
  };
}

/** How much has been compared in the current step. */
interface StepMeter {
  readonly charsPerComparison: number;
  chars: number;
}
type SteppedTest = (line: LogLine, body: Body, meter: StepMeter) => Steps<boolean>;

function compileSteps(filter: Filter): SteppedTest {
  if (filter.kind === "and" || filter.kind === "or") {
    const tests = filter.operands.map(compileSteps);
    const decisive = filter.kind === "or";
    return function* (line, body, meter) {
      for (const test of tests) if ((yield* test(line, body, meter)) === decisive) return decisive;
      return !decisive;
    };
  }
  const test = compileFilter(filter);
  return function* (line, body, meter) {
    if (meter.chars > charsPerStep) {
      yield;
      meter.chars = 0;
    }
    meter.chars += meter.charsPerComparison;
    return test(line, body);
  };
}

function compileFilter(filter: Filter): Test {
  switch (filter.kind) {
    case "all":
      return () => true;
    case "and": {
      const tests = filter.operands.map(compileFilter);
      return (line, body) => tests.every((test) => test(line, body));
    }
    case "or": {
      const tests = filter.operands.map(compileFilter);
      return (line, body) => tests.some((test) => test(line, body));
    }
    case "compare":
      return compileLeaf(filter);
    default:
      return filter satisfies never;
  }
}

/** Contract: a lacking field satisfies only `!=` and `!:`, and those hold when none of its values matches. */
function compileLeaf({ field, operator, value }: Compare): Test {
  const isNegative = operator === "!=" || operator === "!:";
  const comparison = compileComparison(operator, value);
  if (field.kind === "line") {
    const { name } = field;
    return (line) => {
      const text = line[name];
      return text === undefined ? isNegative : comparison.matchesText(text) !== isNegative;
    };
  }
  // As they are: the filter of a tail is kept for long, and has up to a hundred keys in each of a thousand paths.
  const paths = [field.path, ...(field.alternatives ?? [])];
  return (_line, body) => {
    for (const path of paths) {
      const holds = matchAtPath(body, path, comparison);
      if (holds !== undefined) return holds !== isNegative;
    }
    return isNegative;
  };
}

function compileComparison(operator: Operator, value: string): Comparison {
  const right = Number(value);
  switch (operator) {
    case "=":
    case "!=":
      // A number whose text is `value` has the same double, so a different double settles it.
      return {
        matchesText: (text) => text === value,
        compareNumber: (number) => (number === right ? undefined : false),
      };
    case ":":
    case "!:":
      return { matchesText: (text) => text.includes(value), compareNumber: () => undefined };
    case ">":
      return compileNumericComparison(value, right, (order) => order > 0);
    case ">=":
      return compileNumericComparison(value, right, (order) => order >= 0);
    case "<":
      return compileNumericComparison(value, right, (order) => order < 0);
    case "<=":
      return compileNumericComparison(value, right, (order) => order <= 0);
    default:
      return operator satisfies never;
  }
}

/** Spec: a line whose value is no number is skipped. */
function compileNumericComparison(
  value: string,
  right: number,
  holds: (order: number) => boolean,
): Comparison {
  const decimal = parseDecimal(value);
  if (decimal === undefined) return { matchesText: () => false, compareNumber: () => false };
  return {
    matchesText: (text) => {
      const left = parseDecimal(text);
      return left !== undefined && holds(orderDecimals(left, decimal));
    },
    compareNumber: (number) => (number === right ? undefined : holds(number < right ? -1 : 1)),
  };
}

/** Whether some value at the path satisfies the comparison; undefined where the body lacks the field. */
function matchAtPath(body: Body, path: Path, comparison: Comparison): boolean | undefined {
  const answer = matchAnyValue(body.plain(), path, comparison);
  if (answer !== "unsure") return answer;
  const exact = matchAnyValue(body.exact(), path, comparison);
  return exact === "unsure" ? undefined : exact;
}

/**
 * Contract: a digit segment addresses an array element; without one an array stands for each of its elements, in
 * mid-path and nested too. `null`, an empty array and an object at the end are lacking. The stack of places is ours,
 * since arrays may be nested deeper than the engine's.
 */
function matchAnyValue(root: unknown, path: Path, comparison: Comparison): boolean | undefined | "unsure" {
  let answer: false | undefined | "unsure";
  let node = root;
  let at = 0;
  const waiting: { readonly node: unknown; readonly at: number }[] = [];
  for (;;) {
    const step = path[at];
    if (Array.isArray(node) && !isArrayIndex(step)) {
      for (const element of node) waiting.push({ node: element, at });
    } else if (step === undefined) {
      const holds = matchValue(node, comparison);
      if (holds === true) return true;
      answer = combineVerdicts(answer, holds);
    } else if (typeof node === "object" && node !== null) {
      node = readChild(node, step);
      at++;
      continue;
    }
    const next = waiting.pop();
    if (next === undefined) return answer;
    ({ node, at } = next);
  }
}

/** What two values that do not satisfy the comparison say together. */
function combineVerdicts(
  answer: false | undefined | "unsure",
  next: false | undefined | "unsure",
): false | undefined | "unsure" {
  return answer === "unsure" || next === undefined ? answer : next;
}

/** Whether a key addresses an element of an array: `0`, or digits that do not begin with 0. */
export function isArrayIndex(key: string | undefined): boolean {
  return key !== undefined && /^(?:0|[1-9]\d*)$/.test(key);
}

/** The element or member that a key names. Own keys only: a body's `__proto__` and `constructor` are keys like any other, and absent unless it has them. */
export function readChild(node: object, key: string): unknown {
  if (Array.isArray(node)) return isArrayIndex(key) ? node[Number(key)] : undefined;
  if (node instanceof Map) return node.get(key);
  return Object.hasOwn(node, key) ? (node as Readonly<Record<string, unknown>>)[key] : undefined;
}

function matchValue(value: unknown, comparison: Comparison): boolean | undefined | "unsure" {
  switch (typeof value) {
    case "string":
      return comparison.matchesText(value);
    case "number":
      return comparison.compareNumber(value) ?? "unsure";
    case "boolean":
      return comparison.matchesText(String(value));
    default:
      return isNumberText(value) ? comparison.matchesText(value[spelling]) : undefined;
  }
}
