// How many log lines lie behind a page, for readers that page through them. Only what the sources count themselves is counted:
// to read the rest of a range for its number alone would cost more than the page.
import {
  endOfMilli,
  type Instant,
  isFinerThanMilli,
  parseInstant,
  printInstant,
  toInclusiveEnd,
} from "../core/time.ts";
import { countWithoutReading } from "./logs/counts.ts";
import type { PreparedOperation } from "./runtime/operation.ts";

/** Of a page: the request that it answers, and its last line. */
interface AnsweredPage {
  readonly site_id: string;
  readonly source_ids: unknown;
  readonly query: unknown;
  readonly use_expressions: unknown;
  readonly from?: unknown;
  readonly to?: unknown;
  readonly order: "ASC" | "DESC";
  /** The `timestamp` of the last line, whose millisecond is answered whole. */
  readonly last: string;
}

/** Undefined where a source does not count. @throws {Unprocessable} as `logs/counts` */
export function prepareRemainingLines({
  order,
  last,
  ...request
}: AnsweredPage): PreparedOperation<Promise<number | undefined>> {
  const time = parseInstant(last);
  return {
    name: "logs",
    scopes: ["logs"],
    sites: () => [request.site_id],
    // A last line with digits below the millisecond ends a part of a crowded millisecond. Only reading that millisecond would
    // say how many of its lines follow, so nothing is counted.
    run: async (context) => {
      if (time === undefined || isFinerThanMilli(time)) return undefined;
      const next = (order === "DESC" ? time - 1n : endOfMilli(time) + 1n) as Instant;
      if (isBeyondRange(next, request)) return 0;
      const rest = order === "DESC" ? { to: printInstant(next) } : { from: printInstant(next) };
      return await countWithoutReading({ ...request, ...rest }, context);
    },
  };
}

/** Whether an instant lies before or after all of the range. */
function isBeyondRange(instant: Instant, { from, to }: Pick<AnsweredPage, "from" | "to">): boolean {
  const parse = (text: unknown) => (typeof text === "string" ? parseInstant(text) : undefined);
  const first = parse(from);
  const last = parse(to);
  return (first !== undefined && instant < first) || (last !== undefined && instant > toInclusiveEnd(last));
}
