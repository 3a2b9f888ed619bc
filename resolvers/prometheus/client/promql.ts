// PromQL as values, and the only place that prints it. Text is never spliced: names, labels and values are data until
// one function quotes them. A selector can be made by `select` alone, which takes the wall of the site; so no query
// without the wall can be built.

import type { Millis } from "../../../src/core/time.ts";
import type { ForcedLabels } from "../../../src/store/store.ts";

export interface Matcher {
  readonly label: string;
  readonly operator: "=" | "!=" | "=~" | "!~";
  readonly value: string;
}

declare const withForcedLabels: unique symbol;
export interface Selector {
  readonly kind: "selector";
  readonly matchers: readonly Matcher[];
  readonly [withForcedLabels]: true;
}

/** A range selector: the samples of the `length` that ends `offset` before the time of evaluation. */
export interface RangeSelector {
  readonly kind: "window";
  readonly of: Selector;
  readonly length: Millis;
  readonly offset: Millis;
}

export type Expression =
  | Selector
  | RangeSelector
  | { readonly kind: "number"; readonly value: number }
  | { readonly kind: "call"; readonly function: string; readonly arguments: readonly Expression[] }
  | {
      readonly kind: "aggregate";
      readonly operator: "sum" | "avg" | "min" | "max" | "count" | "group";
      readonly by: readonly string[];
      readonly of: Expression;
    }
  | {
      readonly kind: "binary";
      readonly operator: "+" | "-" | "*" | "/" | ">" | "!=" | "or" | "and" | "unless";
      readonly left: Expression;
      readonly right: Expression;
    };

/** Series within the wall: the forced labels stand beside `matchers`, so that these can only narrow it. */
export function select(match: ForcedLabels, matchers: readonly Matcher[]): Selector {
  const forced = Object.entries(match).map(([label, value]) => matchEqual(label, value));
  return { kind: "selector", matchers: [...matchers, ...forced] } as Omit<
    Selector,
    typeof withForcedLabels
  > as Selector;
}

export function narrowSelector(selector: Selector, matchers: readonly Matcher[]): Selector {
  return { ...selector, matchers: [...matchers, ...selector.matchers] };
}

export const metricName = "__name__";
export const typeLabel = "__type__";

/**
 * What a series is called and what its target said of it: the last two with `type-and-unit-labels` of version 3. They
 * tell no series apart, since most functions drop them and `last_over_time` and raw samples have them.
 */
export const metadataLabels: readonly string[] = [metricName, typeLabel, "__unit__"];

export function matchEqual(label: string, value: string): Matcher {
  return { label, operator: "=", value };
}

/** The series has the label. To Prometheus an absent label and an empty one are the same. */
export function matchPresent(label: string): Matcher {
  return { label, operator: "!=", value: "" };
}

function isPresenceMatcher({ operator, value }: Matcher): boolean {
  return operator === "!=" && value === "";
}

/** The same series and those that lack a label which theirs have; `hasLabels` tells these apart. */
export function stripPresenceMatchers(selector: Selector): Selector {
  return { ...selector, matchers: selector.matchers.filter((matcher) => !isPresenceMatcher(matcher)) };
}

/** Whether labels are there that the selector wants to be, whatever their value. */
export function hasLabels({ matchers }: Selector, labels: Readonly<Record<string, string>>): boolean {
  // What every object has, whatever its own keys, is no label.
  const isThere = (label: string) => Object.hasOwn(labels, label) && labels[label] !== "";
  return matchers.every((matcher) => !isPresenceMatcher(matcher) || isThere(matcher.label));
}

/** Any of these values; `""` stands for a series without the label. */
export function matchAnyOf(label: string, values: readonly string[]): Matcher {
  const [only] = values;
  if (only !== undefined && values.length === 1) return matchEqual(label, only);
  return { label, operator: "=~", value: buildAlternation(values) };
}

export function matchNoneOf(label: string, values: readonly string[]): Matcher {
  return { label, operator: "!~", value: buildAlternation(values) };
}

function buildAlternation(values: readonly string[]): string {
  return `(?s:${values.map(escapeRegex).join("|")})`;
}

/** A value in which `*` stands for any text, and alone for the presence of the label. */
export function matchGlob(label: string, pattern: string): Matcher {
  if (/^\*+$/.test(pattern)) return matchPresent(label);
  if (!pattern.includes("*")) return matchEqual(label, pattern);
  // 2.x does not let a dot match a newline unless it is told to.
  return { label, operator: "=~", value: `(?s:${pattern.split(/\*+/).map(escapeRegex).join(".*")})` };
}

export function number(value: number): Expression {
  return { kind: "number", value };
}

export function call(name: string, ...args: readonly Expression[]): Expression {
  return { kind: "call", function: name, arguments: args };
}

export function aggregate(
  operator: Extract<Expression, { kind: "aggregate" }>["operator"],
  by: readonly string[],
  of: Expression,
): Expression {
  return { kind: "aggregate", operator, by, of };
}

export function binary(
  left: Expression,
  operator: Extract<Expression, { kind: "binary" }>["operator"],
  right: Expression,
): Expression {
  return { kind: "binary", operator, left, right };
}

/**
 * Zero, and no finite number where a sample of the window is none. Not zero times the sum: of infinity that is NaN, and
 * VictoriaMetrics leaves out what is NaN, and the whole that it would be part of.
 */
export function markNonFinite(samples: Expression): Expression {
  // Less than 1 times any finite sum.
  return call("floor", binary(number(1e-310), "*", call("abs", call("sum_over_time", samples))));
}

/**
 * Whether a range selector takes the sample at its left end: `onClosed` in Prometheus 2, `open` since 3. Every form that
 * is exact on the one is wrong on the other.
 */
export type RangeEdge = "closed" | "open";

/**
 * The samples from `from` to `to` before the time of evaluation, both inclusive: `{ from: 60_000, to: 1 }` is the minute
 * `[t - 60 s, t)`. `from` is greater than `to`: a closed edge has no form for a single millisecond.
 */
export function selectRange(
  of: Selector,
  edge: RangeEdge,
  { from, to }: { from: Millis; to: Millis },
): RangeSelector {
  return { kind: "window", of, length: edge === "closed" ? from - to : from - to + 1, offset: to };
}

// ---- Printing ----------------------------------------------------------------------------------------------------

export function printExpression(expression: Expression): string {
  switch (expression.kind) {
    case "selector":
      return printSelector(expression);
    case "window": {
      // A zero offset is a parse error in 2.x.
      const offset = expression.offset === 0 ? "" : ` offset ${printDuration(expression.offset)}`;
      return `${printSelector(expression.of)}[${printDuration(expression.length)}]${offset}`;
    }
    case "number":
      return String(expression.value);
    case "call":
      return `${expression.function}(${expression.arguments.map(printExpression).join(",")})`;
    case "aggregate": {
      const by =
        expression.by.length === 0 ? "" : ` by (${expression.by.map(printGroupingLabel).join(",")}) `;
      return `${expression.operator}${by}(${printExpression(expression.of)})`;
    }
    case "binary":
      return `(${printExpression(expression.left)} ${expression.operator} ${printExpression(expression.right)})`;
    default:
      return expression satisfies never;
  }
}

export function printSelector({ matchers }: Selector): string {
  return `{${matchers.map(({ label, operator, value }) => `${printLabel(label)}${operator}${quote(value)}`).join(",")}}`;
}

/** `90061001` is `90061s1ms`. */
export function printDuration(millis: Millis): string {
  const rest = millis % 1_000;
  const seconds = (millis - rest) / 1_000;
  return `${seconds === 0 ? "" : `${seconds}s`}${rest === 0 ? "" : `${rest}ms`}`;
}

const identifier = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

/** Only a name that needs quotes gets them: 2.42 knows no quoted names, and can hold no series that has one. */
function printLabel(name: string): string {
  return identifier.test(name) ? name : quote(name);
}

function printGroupingLabel(name: string): string {
  return isPlainLabel(name) ? name : quote(name);
}

/** Where labels are listed, a number's name has to be quoted too, and the one keyword that the grammar forgot. */
export function isPlainLabel(name: string): boolean {
  return identifier.test(name) && !/^(nan|inf|without)$/i.test(name);
}

const escapes: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  '"': '\\"',
  "\n": "\\n",
  "\r": "\\r",
  // As itself it is what the lexer takes for broken UTF-8.
  "\ufffd": "\\ufffd",
};

/**
 * The one function that turns data into query text. Half of a pair of surrogates, which no label holds, becomes what
 * it would become on its way, and is escaped as that.
 */
function quote(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what has to be escaped
  const escaped = text.toWellFormed().replace(/[\\"\u0000-\u001f\u007f\ufffd]/g, (char) => {
    return escapes[char] ?? `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;
  });
  return `"${escaped}"`;
}

function escapeRegex(text: string): string {
  return text.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&");
}
