// What becomes of a range on its way. Frontends move it: Mimir's begins it where its retention does, wherever that lies
// between two steps, and Thanos' moves it to whole steps. A value at another time than was asked for would be noticed, but
// not one that is lost because the end was moved along; so a range is asked in a form that nobody moves.
import type { Millis } from "../../../src/core/time.ts";
import type { Expression } from "./promql.ts";

/** Milliseconds since 1970; `start`, `start + step`, … `end`. */
export interface QueryRange {
  readonly start: Millis;
  readonly end: Millis;
  readonly step: Millis;
}

export interface RangeAlignment {
  /** No range begins before this time of the source, which goes on as its clock does; undefined where any may. */
  readonly oldest: Millis | undefined;
  /** A range begins and ends at whole multiples of its step. */
  readonly aligned: boolean;
}

/** What moved a range that began here, of which the first value came for that time. */
export function detectAlignment(start: Millis, first: Millis): RangeAlignment {
  return { oldest: first > start ? first : undefined, aligned: first < start };
}

/** Times that come are `shift` later than those that were meant. */
interface AlignedQuery {
  readonly expression: Expression;
  readonly range: QueryRange;
  readonly shift: Millis;
}

/** The same values in a range that is not moved; undefined where nothing of it can be asked. */
export function alignRange(
  expression: Expression,
  range: QueryRange,
  { oldest, aligned }: RangeAlignment,
): AlignedQuery | undefined {
  const { step, end } = range;
  const late = Math.max(0, (oldest ?? range.start) - range.start);
  const start = range.start + Math.ceil(late / step) * step;
  if (start > end) return undefined;
  const by = aligned && start % step !== 0 ? step - (start % step) : 0;
  const looking = by === 0 ? expression : shiftBack(expression, by);
  // What cannot look further back is asked as it is: values at other times are an error on receipt.
  if (looking === undefined) return { expression, range: { start, end, step }, shift: 0 };
  return { expression: looking, range: { start: start + by, end: end + by, step }, shift: by };
}

/** The expression that has at a time the value that this one had `shift` before; undefined for a selector without a window. */
function shiftBack(expression: Expression, by: Millis): Expression | undefined {
  switch (expression.kind) {
    case "selector":
      return undefined;
    case "number":
      return expression;
    case "window":
      return { ...expression, offset: expression.offset + by };
    case "call": {
      const own = expression.arguments.flatMap((one) => shiftBack(one, by) ?? []);
      return own.length < expression.arguments.length ? undefined : { ...expression, arguments: own };
    }
    case "aggregate": {
      const of = shiftBack(expression.of, by);
      return of && { ...expression, of };
    }
    case "binary": {
      const [left, right] = [shiftBack(expression.left, by), shiftBack(expression.right, by)];
      return left && right && { ...expression, left, right };
    }
  }
  return expression satisfies never;
}
