// What becomes of a range on its way. Frontends move it: Mimir's begins it where its retention does, wherever that lies
// between two steps, and Thanos' moves it to whole steps. A value at another time than was asked for would be noticed, but
// not one that is lost because the end was moved along; so a range is asked in a form that nobody moves.
import type { Millis } from "../../../src/core/time.ts";
import type { Expression } from "./promql.ts";

/** Milliseconds since 1970; `start`, `start + step`, … `end`. */
export interface Range {
  readonly start: Millis;
  readonly end: Millis;
  readonly step: Millis;
}

export interface Movements {
  /** No range begins before this time of the source, which goes on as its clock does; undefined where any may. */
  readonly oldest: Millis | undefined;
  /** A range begins and ends at whole multiples of its step. */
  readonly aligned: boolean;
}

/** What moved a range that began here, of which the first value came for that time. */
export function movementsOf(start: Millis, first: Millis): Movements {
  return { oldest: first > start ? first : undefined, aligned: first < start };
}

/** Times that come are `by` later than those that were meant. */
interface Moved {
  readonly expression: Expression;
  readonly range: Range;
  readonly by: Millis;
}

/** The same values in a range that is not moved; undefined where nothing of it can be asked. */
export function unmoved(
  expression: Expression,
  range: Range,
  { oldest, aligned }: Movements,
): Moved | undefined {
  const { step, end } = range;
  const late = Math.max(0, (oldest ?? range.start) - range.start);
  const start = range.start + Math.ceil(late / step) * step;
  if (start > end) return undefined;
  const by = aligned && start % step !== 0 ? step - (start % step) : 0;
  const looking = by === 0 ? expression : back(expression, by);
  // What cannot look further back is asked as it is: values at other times are an error on receipt.
  if (looking === undefined) return { expression, range: { start, end, step }, by: 0 };
  return { expression: looking, range: { start: start + by, end: end + by, step }, by };
}

/** The expression that has at a time the value that this one had `by` before; undefined for a selector without a window. */
function back(expression: Expression, by: Millis): Expression | undefined {
  switch (expression.kind) {
    case "selector":
      return undefined;
    case "number":
      return expression;
    case "window":
      return { ...expression, offset: expression.offset + by };
    case "call": {
      const own = expression.arguments.flatMap((one) => back(one, by) ?? []);
      return own.length < expression.arguments.length ? undefined : { ...expression, arguments: own };
    }
    case "aggregate": {
      const of = back(expression.of, by);
      return of && { ...expression, of };
    }
    case "binary": {
      const [left, right] = [back(expression.left, by), back(expression.right, by)];
      return left && right && { ...expression, left, right };
    }
  }
  return expression satisfies never;
}
