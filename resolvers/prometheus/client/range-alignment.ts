// Frontends move ranges: Mimir's clips them to its retention, between two steps, and Thanos' aligns them to whole steps. A
// value at a time that was not requested would be an error, but one that is lost at a moved end would go unnoticed. So a
// range is sent in a form that no frontend moves.
import type { Millis } from "../../../src/core/time.ts";
import type { Expression } from "./promql.ts";

/** `start`, `start + step`, … `end`. Milliseconds since 1970. */
export interface QueryRange {
  readonly start: Millis;
  readonly end: Millis;
  readonly step: Millis;
}

export interface RangeAlignment {
  /** No range begins before this time, which moves on with the server's clock; `undefined` if there is no such time. */
  readonly oldest: Millis | undefined;
  /** Ranges begin and end at whole multiples of their step. */
  readonly aligned: boolean;
}

/** How a range was moved that should have begun at `start`, by the time of its first value. */
export function detectAlignment(start: Millis, first: Millis): RangeAlignment {
  return { oldest: first > start ? first : undefined, aligned: first < start };
}

/** A query for the same values, each at a time later by `shift`. */
interface AlignedQuery {
  readonly expression: Expression;
  readonly range: QueryRange;
  readonly shift: Millis;
}

/** The query in a range that is not moved; `undefined` if all of it lies before the oldest time. */
export function alignRange(
  expression: Expression,
  range: QueryRange,
  { oldest, aligned }: RangeAlignment,
): AlignedQuery | undefined {
  const { step, end } = range;
  const clipped = Math.max(0, (oldest ?? range.start) - range.start);
  const start = range.start + Math.ceil(clipped / step) * step;
  if (start > end) return undefined;
  const shift = aligned && start % step !== 0 ? step - (start % step) : 0;
  const shifted = shift === 0 ? expression : shiftBack(expression, shift);
  // Sent as it is: values at other times are then an error.
  if (shifted === undefined) return { expression, range: { start, end, step }, shift: 0 };
  return { expression: shifted, range: { start: start + shift, end: end + shift, step }, shift };
}

/** The expression whose value is that of this one `shift` earlier; `undefined` for an instant selector. */
function shiftBack(expression: Expression, shift: Millis): Expression | undefined {
  switch (expression.kind) {
    case "selector":
      return undefined;
    case "number":
      return expression;
    case "range":
      return { ...expression, offset: expression.offset + shift };
    case "call": {
      const shifted = expression.arguments.flatMap((argument) => shiftBack(argument, shift) ?? []);
      return shifted.length < expression.arguments.length ? undefined : { ...expression, arguments: shifted };
    }
    case "aggregate": {
      const of = shiftBack(expression.of, shift);
      return of && { ...expression, of };
    }
    case "binary": {
      const [left, right] = [shiftBack(expression.left, shift), shiftBack(expression.right, shift)];
      return left && right && { ...expression, left, right };
    }
  }
  return expression satisfies never;
}
