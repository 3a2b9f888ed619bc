// Tests a cron schedule. croner alone decides what is a schedule and when it runs; cronstrue puts it into words, and
// is asked only afterwards, because it describes much that never runs.
import { Cron } from "croner";
import { toString as describeCron } from "cronstrue";
import * as z from "zod";
import { toErrorMessage, Unprocessable } from "../core/errors.ts";
import { fromMillis, type Instant, printMillis, toDate } from "../core/time.ts";
import type { Operation } from "./runtime/operation.ts";
import { isObject, optional, time } from "./runtime/request-body.ts";

/** Names of one thing, of which one is required. */
const expressionKeys: readonly string[] = ["expression", "cron", "schedule"];

interface CronTest {
  readonly expression: string;
  readonly timezone: string;
  /** Absent is now. */
  readonly from?: Instant | undefined;
}
export interface CronResult {
  readonly valid: true;
  readonly expression: string;
  readonly timezone: string;
  readonly description: string;
  /** The next five, none before `from`. */
  readonly next_occurrences: readonly string[];
}

const occurrenceCount = 5;
/** All sixty minutes as a list are 169 characters. */
const maxExpressionLength = 1_000;
/** croner looks no further than the year 3000, and 29 February falls on one weekday five times in 200 years. */
const earliest = fromMillis(Date.UTC(1970));
const latest = fromMillis(Date.UTC(2500));

const text = z
  .string()
  .max(maxExpressionLength, `expected at most ${maxExpressionLength} characters`)
  .meta({ description: "The same under another name.", examples: ["0 3 * * *"] });
const timezone = z
  .string()
  .refine(isTimezone, "expected an IANA time zone such as Europe/Berlin, or an offset such as +02:00");
const from = time.refine(
  ({ instant }) => instant >= earliest && instant < latest,
  "expected a year from 1970 to 2499",
);
const body = z
  .object({
    expression: optional(text).meta({
      description:
        "A cron schedule of five fields, six with seconds first, or an alias such as @daily. Required, under this or one of the two other names; the first that is there counts.",
      examples: ["0 9-17 * * MON-FRI"],
    }),
    cron: optional(text),
    schedule: optional(text),
    timezone: optional(timezone).meta({
      description: "An IANA time zone or an offset. The default is UTC.",
      examples: ["Europe/Berlin"],
    }),
    from: optional(from).meta({
      description: "Occurrences from then on. The default is now.",
      examples: ["2026-01-31T12:00:00Z"],
    }),
  })
  .refine(({ expression, cron, schedule }) => (expression ?? cron ?? schedule) !== undefined, {
    path: ["expression"],
    message: "is required: expected a string",
    // Also where something else is wrong, so that all is told at once.
    when: ({ value, issues }) =>
      isObject(value) && !issues.some(({ path }) => expressionKeys.includes(String(path?.[0]))),
  })
  .transform(({ expression, cron, schedule, timezone = "UTC", from }): CronTest => {
    return { expression: expression ?? cron ?? schedule ?? "", timezone, from: from?.instant };
  })
  .meta({ examples: [{ expression: "0 9-17 * * MON-FRI", timezone: "Europe/Berlin" }] });

const answer = z
  .object({
    // Always true; several generators of clients can make nothing of a boolean that is a constant.
    valid: z.boolean().meta({ description: "An expression that is not valid is a 422.", examples: [true] }),
    expression: z.string().meta({ description: "As sent.", examples: ["0 9-17 * * MON-FRI"] }),
    timezone: z.string().meta({ description: "The zone it runs in.", examples: ["Europe/Berlin"] }),
    description: z.string().meta({
      description: "The schedule in words.",
      examples: ["Every hour, between 09:00 and 17:00, Monday through Friday"],
    }),
    next_occurrences: z.array(z.string().meta({ format: "date-time" })).meta({
      description: "The next five, none before `from`.",
      examples: [["2026-02-02T08:00:00.000Z"]],
    }),
  })
  .meta({ id: "CronTest", description: "What a cron schedule means." });

function isTimezone(name: string): boolean {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** Contract, "check_ins/test_cron". */
export const testCron: Operation<CronTest, CronResult> = {
  name: "check_ins.test_cron",
  method: "POST",
  path: "/api/v2/check_ins/test_cron",
  access: "token",
  scope: "none",
  summary: "What a cron schedule means, and when it runs next",
  request: body,
  answer,
  sites: () => [],
  async run({ expression, timezone, from }, { now }) {
    const schedule = parseSchedule(expression, timezone);
    const times = schedule.nextRuns(occurrenceCount, toDateBefore(from ?? now()));
    if (times.length === 0) throw createCronError(expression, "it never runs: no date fits all its fields");
    return {
      valid: true,
      expression,
      timezone,
      description: describeSchedule(expression),
      next_occurrences: times.map((time) => printMillis(time.getTime())),
    };
  },
};

/** @throws {Unprocessable} `invalid_cron_expression` */
function parseSchedule(expression: string, timezone: string): Cron {
  const trimmed = expression.trim();
  const fields = trimmed.split(/\s+/);
  // croner also takes a seventh field for the year, and a single date as a schedule; crontabs have neither.
  if (!trimmed.startsWith("@") && fields.length !== 5 && fields.length !== 6) {
    const count = trimmed === "" ? 0 : fields.length;
    throw createCronError(
      expression,
      `expected five fields, or six with seconds first, or an alias such as @daily; found ${count}`,
    );
  }
  try {
    return new Cron(trimmed, {
      timezone,
      paused: true,
      mode: "5-or-6-parts",
      // As cron does: only a time that is named, not one that `*` or a step comes to, is made up for after a gap.
      fixedTimeRule: "no-wildcard",
    });
  } catch (error) {
    const reason = trimmed.startsWith("@")
      ? "there is no such alias; expected @hourly, @daily, @weekly, @monthly or @yearly, or fields"
      : rewriteCronerMessage(toErrorMessage(error));
    throw createCronError(expression, reason);
  }
}

function createCronError(expression: string, reason: string): Unprocessable<"invalid_cron_expression"> {
  return new Unprocessable("invalid_cron_expression", `The cron expression is not valid: ${reason}`, {
    expression,
    reason,
  });
}

/** croner's words. It counts days and months from 0, people do not. */
function rewriteCronerMessage(message: string): string {
  return message
    .replace(/^\w+: (?:Syntax error, )?/, "")
    .replace(/(value for (?:day|month): )(-?\d+)/, (_, words, value) => `${words}${Number(value) + 1}`);
}

/** croner's next run is after the time that it is given, and an occurrence at `from` itself counts. */
function toDateBefore(instant: Instant): Date {
  return toDate((instant - 1n) as Instant);
}

function describeSchedule(expression: string): string {
  const trimmed = expression.trim();
  try {
    return describeCron(normaliseExpression(trimmed), { use24HourTimeFormat: true });
  } catch {
    // It has no words for `+5` (and on Friday) and `1W,15W`, which croner takes.
    return trimmed;
  }
}

/** What croner takes in any spelling, in the one that cronstrue knows: aliases small, all else in capitals. */
function normaliseExpression(expression: string): string {
  if (expression.startsWith("@")) return expression.toLowerCase();
  return expression
    .toUpperCase()
    .replace(/\s+/g, " ")
    .replace(/\b0+(?=\d)/g, "")
    .replaceAll("?", "*")
    .replaceAll("#L", "L");
}
