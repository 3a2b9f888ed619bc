// PromQL as values, and the only place that prints it. Text is never spliced: names, labels and values are data until
// one function quotes them. Only `select` creates a selector, and it requires the forced labels of the site; so no query
// can be built without them.

import { requireFirst } from "../../../src/core/collections.ts";
import type { Millis } from "../../../src/core/time.ts";
import type { ForcedLabels } from "../../../src/store/metrics.ts";

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

/** The samples of the `length` that ends `offset` before the time of evaluation. */
export interface RangeSelector {
  readonly kind: "range";
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
      readonly operator: "+" | "-" | "*" | "/" | "%" | ">" | "<" | "!=" | "or" | "and" | "unless";
      readonly left: Expression;
      readonly right: Expression;
      /** Matches the sides by these labels only, instead of by all but the name. */
      readonly on?: readonly string[];
      /** Labels that matching series may differ in. */
      readonly ignoring?: readonly string[];
    };

/** The forced labels are matchers beside `matchers`, so that these can only narrow the selection. */
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
 * The name of a series and what its target declares (with `type-and-unit-labels` of version 3). They do not identify a
 * series: most functions drop them, while `last_over_time` and raw samples keep them.
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

/** Also matches series without the labels that must be present; `hasLabels` filters these out. */
export function stripPresenceMatchers(selector: Selector): Selector {
  return { ...selector, matchers: selector.matchers.filter((matcher) => !isPresenceMatcher(matcher)) };
}

/** Whether all labels are there that must be present by the selector. Its other matchers are not checked. */
export function hasLabels({ matchers }: Selector, labels: Readonly<Record<string, string>>): boolean {
  // Not a property of every object, such as `constructor`.
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

/** In the pattern `*` stands for any text; by itself it only requires the label. */
export function matchGlob(label: string, pattern: string): Matcher {
  if (/^\*+$/.test(pattern)) return matchPresent(label);
  if (!pattern.includes("*")) return matchEqual(label, pattern);
  // By default a dot does not match a newline in 2.x.
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

/** The series of the left without one on the right, which may differ in the labels of `ignoring`. */
export function exclude(left: Expression, right: Expression, ignoring: readonly string[]): Expression {
  return { kind: "binary", operator: "unless", left, right, ignoring };
}

/** The name that all its series have. */
export function readMetricName({ matchers }: Selector): string {
  return requireFirst(matchers.filter(({ label }) => label === metricName)).value;
}

/**
 * One expression for several metrics: the union of what `build` makes of the matcher of each name. It has to keep the name.
 * A regular expression on `__name__` is not an option, since Google's managed Prometheus takes exact names only. A union is
 * one backend request however many names there are, where a request for each name would be dozens for one answer; a name
 * that the server does not hold costs it a look-up in its index. The union is balanced, so that a series passes through
 * the logarithm of the number of names. By default `or` takes series that differ in the name alone for the same.
 */
export function combineMetrics(names: readonly string[], build: (name: Matcher) => Expression): Expression {
  return joinHalves(names.map((name) => build(matchEqual(metricName, name))));
}

function joinHalves(parts: readonly Expression[]): Expression {
  if (parts.length < 2) return requireFirst(parts);
  const half = parts.length >> 1;
  const [left, right] = [joinHalves(parts.slice(0, half)), joinHalves(parts.slice(half))];
  return { kind: "binary", operator: "or", left, right, on: [metricName] };
}

/**
 * Zero if all samples of the range are finite, and otherwise NaN or infinite: never NaN if the source `losesNaN`, which
 * has none among its samples, but makes some of infinities.
 */
export function markNonFinite(samples: Expression, losesNaN: boolean): Expression {
  // The product with any finite number is less than 1, and so is the sum of two of them.
  const shrink = (of: "sum_over_time" | "min_over_time" | "max_over_time") =>
    binary(number(1e-310), "*", call("abs", call(of, samples)));
  // One pass over the samples, where that is enough.
  const shrunk = losesNaN
    ? binary(shrink("min_over_time"), "+", shrink("max_over_time"))
    : shrink("sum_over_time");
  return call("floor", shrunk);
}

/**
 * Whether a range selector takes the sample at its left end: `closed` in Prometheus 2, `open` since 3. A form that is
 * exact with one edge is wrong with the other.
 */
export type RangeEdge = "closed" | "open";

/**
 * The samples from `from` to `to` before the time of evaluation, both inclusive: `{ from: 60_000, to: 1 }` is the minute
 * `[t - 60 s, t)`. `from` has to be greater than `to`: a closed edge cannot express a single millisecond.
 */
export function selectRange(
  of: Selector,
  edge: RangeEdge,
  { from, to }: { readonly from: Millis; readonly to: Millis },
): RangeSelector {
  return { kind: "range", of, length: edge === "closed" ? from - to : from - to + 1, offset: to };
}

// ---- Printing ----------------------------------------------------------------------------------------------------

export function printExpression(expression: Expression): string {
  switch (expression.kind) {
    case "selector":
      return printSelector(expression);
    case "range": {
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
    case "binary": {
      const { operator, on, ignoring, left, right } = expression;
      const listed = on ?? ignoring;
      const labels = listed?.map(printGroupingLabel).join(",");
      const matched = labels === undefined ? "" : ` ${on === undefined ? "ignoring" : "on"} (${labels})`;
      return `(${printExpression(left)} ${operator}${matched} ${printExpression(right)})`;
    }
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

/** Quoted only if needed: 2.42 does not know quoted names, and cannot hold a series that has one. */
function printLabel(name: string): string {
  return identifier.test(name) ? name : quote(name);
}

function printGroupingLabel(name: string): string {
  return isPlainLabel(name) ? name : quote(name);
}

/** In lists of labels also the names of numbers need quotes, and the one keyword that the grammar forgot. */
export function isPlainLabel(name: string): boolean {
  return identifier.test(name) && !/^(nan|inf|without)$/i.test(name);
}

const escapes: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  '"': '\\"',
  "\n": "\\n",
  "\r": "\\r",
  // The lexer takes the character itself for broken UTF-8.
  "\ufffd": "\\ufffd",
};

/**
 * The one function that turns data into query text. A lone surrogate, which no label holds, would become U+FFFD on its
 * way, and is escaped as that.
 */
function quote(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these have to be escaped
  const escaped = text.toWellFormed().replace(/[\\"\u0000-\u001f\u007f\ufffd]/g, (char) => {
    return escapes[char] ?? `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;
  });
  return `"${escaped}"`;
}

/** How long a value is as one of several that a matcher has. */
export function measureAlternative(value: string): number {
  return Buffer.byteLength(quote(`${escapeRegex(value)}|`)) - 2;
}

function escapeRegex(text: string): string {
  return text.replace(/[\\.+*?()|[\]{}^$]/g, "\\$&");
}
