// Compares occurrences with an oracle: its own reader of cron fields, and a walk over every minute of a year with the
// offsets of Intl. The oracle never uses the library under test.
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { Unprocessable } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { type CronResult, testCron } from "#src/operations/check-ins.ts";
import type { Context } from "#src/operations/runtime/operation.ts";
import { parseRequest } from "#src/operations/runtime/request-body.ts";
import { sampleCases } from "../support/law-runs.ts";

const expressions = readFileSync(new URL("cron.txt", import.meta.url), "utf8")
  .split("\n")
  .filter((line) => line !== "" && !line.startsWith("#"))
  .map((line) => line.replaceAll("\\t", "\t"));

const now = Date.UTC(2026, 2, 27, 21, 7, 30);
const context = { now: () => fromMillis(now) } as Context;
async function ask(body: unknown): Promise<CronResult> {
  const answer = testCron.run(parseRequest(testCron.request, body), context);
  if (!("then" in answer)) throw new Error("an object was expected, not rows");
  return answer;
}

// ---- The oracle ---------------------------------------------------------------------------------------------

/** Consecutive minutes of a zone: the packed local fields of each, and where its clock jumps. */
interface Walk {
  readonly start: number;
  /** Local time as if it were UTC, in minutes since 1970, of each minute of UTC. */
  readonly local: Int32Array;
}
const minute = 60_000;
const days = 400;

function walk(zone: string, start: number): Walk {
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
  });
  const localAt = (index: number): number => {
    const parts = Object.fromEntries(
      format.formatToParts(start + index * minute).map(({ type, value }) => [type, Number(value)]),
    );
    const { year = 0, month = 0, day = 0, hour = 0, minute: minutes = 0 } = parts;
    return Date.UTC(year, month - 1, day, hour, minutes) / minute;
  };
  const local = new Int32Array(days * 1_440);
  for (let day = 0; day < local.length; day += 1_440) {
    const base = localAt(day);
    const changes = localAt(day + 1_440) !== base + 1_440;
    for (let past = 0; past < 1_440; past += 1)
      local[day + past] = changes ? localAt(day + past) : base + past;
  }
  return { start, local };
}

interface Rule {
  readonly seconds: readonly number[];
  readonly named: boolean;
  /** Of a local minute, in minutes since 1970. */
  readonly matches: (local: number) => boolean;
  /** Whether any minute of this one's local day may match. */
  readonly matchesDay: (local: number) => boolean;
}

const aliases: Readonly<Record<string, string>> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
};
const monthNames = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split(" ");
const dayNames = "SUN MON TUE WED THU FRI SAT".split(" ");

/** `test`: whether the field contains a value on a date. `any`: whether the field restricts nothing. */
function field(text: string, low: number, high: number, names: readonly string[] = []) {
  const number = (word: string) => {
    const at = names.indexOf(word.toUpperCase());
    return at === -1 ? Number(word) : at + low;
  };
  const values = new Set<number>();
  const special: string[] = [];
  for (const part of text.split(",")) {
    const [span = "", step = "1"] = part.split("/");
    if (/[LW#]/.test(names.reduce((rest, name) => rest.replace(name, ""), part.toUpperCase()))) {
      special.push(part.toUpperCase());
      continue;
    }
    const [from, to = from] = span === "*" || span === "?" ? [low, high] : span.split("-").map(number);
    for (let value = from ?? low; value <= (to ?? high); value += Number(step)) values.add(value);
  }
  return { values, special, number, any: text === "*" || text === "?" };
}

function read(expression: string): Rule {
  const text = aliases[expression.toLowerCase()] ?? expression.trim();
  const fields = text.split(/\s+/);
  const [second = "0", minutes = "", hours = "", date = "", months = "", weekdays = ""] =
    fields.length === 6 ? fields : ["0", ...fields];
  const dates = field(date, 1, 31);
  const week = field(weekdays, 0, 7, dayNames);
  const [minuteSet, hourSet] = [field(minutes, 0, 59).values, field(hours, 0, 23).values];
  const monthSet = field(months, 1, 12, monthNames).values;
  const onDate = (year: number, month: number, day: number, weekday: number): boolean => {
    if (dates.values.has(day)) return true;
    const last = new Date(Date.UTC(year, month, 0)).getUTCDate();
    return dates.special.some((word) => {
      if (word === "L") return day === last;
      // The working day nearest to a day, within the same month.
      const wanted = word === "LW" ? last : Number(word.replace("W", ""));
      if (wanted > last || weekday === 0 || weekday === 6) return false;
      const workdays = Array.from({ length: last }, (_, index) => index + 1).filter((candidate) => {
        const at = new Date(Date.UTC(year, month - 1, candidate)).getUTCDay();
        return at !== 0 && at !== 6;
      });
      if (word === "LW") return day === workdays.at(-1);
      return day === workdays.toSorted((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted) || a - b)[0];
    });
  };
  const onWeekday = (year: number, month: number, day: number, weekday: number): boolean => {
    if (week.values.has(weekday) || (weekday === 0 && week.values.has(7))) return true;
    const last = new Date(Date.UTC(year, month, 0)).getUTCDate();
    return week.special.some((word) => {
      const [, name = "", nth = ""] = /^(.+?)#?(L|\d)$/.exec(word) ?? [];
      if (week.number(name) % 7 !== weekday) return false;
      return nth === "L" ? day + 7 > last : Math.ceil(day / 7) === Number(nth);
    });
  };
  const goodMinutes = Uint8Array.from({ length: 60 }, (_, at) => Number(minuteSet.has(at)));
  const goodHours = Uint8Array.from({ length: 24 }, (_, at) => Number(hourSet.has(at)));
  const known = new Map<number, boolean>();
  const dayMatches = (number: number): boolean => {
    const found = known.get(number);
    if (found !== undefined) return found;
    const at = new Date(number * 1_440 * minute);
    const parts = [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCDay()] as const;
    const day = dates.any
      ? week.any || onWeekday(...parts)
      : onDate(...parts) || (!week.any && onWeekday(...parts));
    const result = monthSet.has(parts[1]) && day;
    known.set(number, result);
    return result;
  };
  const matchesDay = (local: number) => dayMatches(Math.floor(local / 1_440));
  return {
    matchesDay,
    seconds: [...field(second, 0, 59).values].sort((a, b) => a - b),
    named: [second, minutes, hours].every((part) => !/[*?/]/.test(part)),
    matches: (local) =>
      goodMinutes[local % 60] === 1 && goodHours[Math.floor(local / 60) % 24] === 1 && matchesDay(local),
  };
}

/** The first five, or fewer if the walk ends earlier. */
function expected({ start, local }: Walk, rule: Rule, from: number): string[] {
  const found: number[] = [];
  const add = (time: number) => {
    if (time >= from && found.at(-1) !== time) found.push(time);
  };
  let highest = (local[0] ?? 0) - 1;
  for (let index = 0; index < local.length && found.length < 5; index += 1) {
    const here = local[index] ?? 0;
    const dayLater = index + 1_439;
    // Skips a whole day without a clock change that the rule does not select.
    if (
      here === highest + 1 &&
      local[dayLater] === here + 1_439 &&
      !rule.matchesDay(here) &&
      !rule.matchesDay(here + 1_439)
    ) {
      highest = here + 1_439;
      index = dayLater;
      continue;
    }
    const time = start + index * minute;
    // Skipped time: an explicitly named occurrence happens right after the gap.
    if (rule.named) {
      for (let skipped = highest + 1; skipped < here; skipped += 1) {
        if (rule.matches(skipped)) add(time);
      }
    }
    // Repeated time: an explicitly named occurrence happens the first time only.
    if (rule.matches(here) && (here > highest || !rule.named)) {
      for (const second of rule.seconds) add(time + second * 1_000);
    }
    highest = Math.max(highest, here);
  }
  return found.slice(0, 5).map((time) => new Date(time).toISOString());
}

// ---- The tables ---------------------------------------------------------------------------------------------

/** Each start is shortly before a change of the zone's clock. */
const places: readonly (readonly [zone: string, starts: readonly string[]])[] = [
  ["UTC", ["2026-03-01T00:00:00.000Z"]],
  ["Europe/Berlin", ["2026-03-28T12:00:00.000Z", "2026-10-24T12:00:00.000Z"]],
  ["America/New_York", ["2026-03-07T20:30:00.000Z", "2026-10-31T20:30:00.000Z"]],
  // A change of half an hour, in the southern hemisphere.
  ["Australia/Lord_Howe", ["2026-04-04T02:00:00.000Z", "2026-10-03T02:00:00.000Z"]],
  // From midnight to 01:00, and back to 23:00.
  ["Africa/Cairo", ["2026-04-23T12:00:00.000Z", "2026-10-29T12:00:00.000Z"]],
];

const starts = places.flatMap(([zone, starts]) => starts.map((start) => [zone, start] as const));
describe.each(starts.map(([zone, start], at) => [zone, start, at] as const))(
  "cron schedules in %s from %s",
  (timezone, from, at) => {
    const minutes = walk(timezone, Date.parse(from) - 1_440 * minute);
    const end = minutes.start + minutes.local.length * minute;
    // Each start takes other expressions, so that the sample has all of them.
    test.each(sampleCases(expressions, { share: 9, first: at }))(
      "finds the next occurrences of %s",
      async (expression) => {
        const { next_occurrences: answered } = await ask({ expression, timezone, from });
        const times = expected(minutes, read(expression), Date.parse(from));
        expect(times.length).toBeGreaterThan(0);
        expect(answered).toHaveLength(5);
        expect(answered.filter((time) => Date.parse(time) < end)).toEqual(times);
      },
    );
  },
);

test("the schedule table has at least 200 distinct expressions and covers clock changes", () => {
  expect(new Set(expressions).size).toBe(expressions.length);
  expect(expressions.length).toBeGreaterThanOrEqual(200);
  for (const [zone, starts] of places.slice(1)) {
    for (const start of starts) {
      const { local } = walk(zone, Date.parse(start));
      const jumps = [...local.subarray(0, 2 * 1_440)].filter(
        (at, index, all) => at !== (all[index - 1] ?? at - 1) + 1,
      );
      expect(jumps).toHaveLength(1);
    }
  }
});

describe("check_ins/test_cron: answer", () => {
  test("returns the expression, its description and the next occurrences from now", async () => {
    expect(await ask({ expression: "*/15 9-17 * * MON-FRI", timezone: null, from: null })).toEqual({
      valid: true,
      expression: "*/15 9-17 * * MON-FRI",
      timezone: "UTC",
      description: "Every 15 minutes, between 09:00 and 17:59, Monday through Friday",
      next_occurrences: ["09:00", "09:15", "09:30", "09:45", "10:00"].map((at) => `2026-03-30T${at}:00.000Z`),
    });
  });

  test.each(["expression", "cron", "schedule"])("accepts the expression under the key `%s`", async (name) => {
    const { expression } = await ask({ [name]: "@daily" });
    expect(expression).toBe("@daily");
  });

  test("reads five fields as minutes first and six fields as seconds first", async () => {
    expect((await ask({ expression: "30 2 * * *" })).description).toBe("At 02:30");
    expect((await ask({ expression: "30 2 * * * *" })).description).toBe(
      "At 30 seconds past the minute, at 2 minutes past the hour",
    );
  });

  test.each([
    ["0 0 L * *", "At 00:00, on the last day of the month"],
    ["0 0 1,L * *", "At 00:00, on day 1 and the last day of the month"],
    ["0 0 LW * *", "At 00:00, on the last weekday of the month"],
    ["0 0 15W * *", "At 00:00, on the weekday nearest day 15 of the month"],
    ["0 0 * * 5L", "At 00:00, on the last Friday of the month"],
    ["0 0 * * FRIL", "At 00:00, on the last Friday of the month"],
    ["0 0 * * 5#L", "At 00:00, on the last Friday of the month"],
    ["0 0 * * SUN#L", "At 00:00, on the last Sunday of the month"],
    ["0 0 * * MON#3", "At 00:00, on the third Monday of the month"],
    ["0 0 1W,15W * *", "0 0 1W,15W * *"],
  ])("describes %s as it runs, in any letter case", async (expression, wanted) => {
    expect((await ask({ expression })).description).toBe(wanted);
    const small = expression.toLowerCase();
    expect((await ask({ expression: small })).description).toBe(wanted === expression ? small : wanted);
  });

  test("describes every schedule, in the same words for each spelling", async () => {
    const describedAs = async (expression: string) => (await ask({ expression })).description;
    for (const expression of expressions) {
      const description = await describedAs(expression);
      expect(description).not.toBe(expression.trim());
      expect(await describedAs(expression.toLowerCase())).toBe(description);
      expect(await describedAs(expression.toUpperCase())).toBe(description);
    }
  });

  test("includes an occurrence at `from` and excludes one a nanosecond earlier", async () => {
    const first = async (from: string) => (await ask({ cron: "0 0 * * *", from })).next_occurrences[0];
    expect(await first("2026-06-01T00:00:00Z")).toBe("2026-06-01T00:00:00.000Z");
    expect(await first("2026-06-01T02:00:00+02:00")).toBe("2026-06-01T00:00:00.000Z");
    expect(await first("2026-06-01T00:00:00.000000001Z")).toBe("2026-06-02T00:00:00.000Z");
    expect(await first("2026-05-31T23:59:59.999999999Z")).toBe("2026-06-01T00:00:00.000Z");
  });

  test("leaves out an occurrence in the last hour of a day that the clocks skip", async () => {
    const body = { expression: "30 23 * * *", timezone: "America/Nuuk", from: "2026-03-28T00:00:00Z" };
    const { next_occurrences } = await ask(body);
    expect(next_occurrences.slice(0, 2)).toEqual(["2026-03-28T01:30:00.000Z", "2026-03-30T00:30:00.000Z"]);
  });

  test("finds rare dates: 29 February, and 29 February on a Monday", async () => {
    expect((await ask({ cron: "0 0 29 2 *" })).next_occurrences[4]).toBe("2044-02-29T00:00:00.000Z");
    const { description, next_occurrences: times } = await ask({ cron: "0 0 29 2 +MON" });
    expect(times.slice(0, 2)).toEqual(["2044-02-29T00:00:00.000Z", "2072-02-29T00:00:00.000Z"]);
    expect(description).toBe("0 0 29 2 +MON");
  });
});

describe("check_ins/test_cron: invalid input", () => {
  const count = (found: number) =>
    `expected five fields, or six with seconds first, or an alias such as @daily; found ${found}`;
  const never = "it never runs: no date fits all its fields";
  const alias = "there is no such alias; expected @hourly, @daily, @weekly, @monthly or @yearly, or fields";
  test.each([
    ["", count(0)],
    ["   ", count(0)],
    ["* * * *", count(4)],
    ["* * * * * * *", count(7)],
    ["2026-12-24T10:00:00", count(1)],
    ["*/61 * * * *", "steps cannot be greater than maximum value of part (60)"],
    ["*/0 * * * *", "illegal stepping: 0"],
    ["60 * * * *", "Invalid value for minute: 60"],
    ["* 24 * * *", "Invalid value for hour: 24"],
    ["* * 0 * *", "Invalid value for day: 0"],
    ["* * 32 * *", "Invalid value for day: 32"],
    ["* * * 0 *", "Invalid value for month: 0"],
    ["* * * 13 *", "Invalid value for month: 13"],
    ["* * * * 8", "Invalid value for dayOfWeek: 8"],
    ["0 0 30 2 *", never],
    ["0 0 31 2,4,6,9,11 *", never],
    ["0 0 30W 2 *", never],
    ["* * * 31 4 *", never],
    ["@reboot", alias],
    ["@fortnightly", alias],
    ["@every 5m", alias],
  ])("refuses the expression %j with its reason", async (expression, reason) => {
    const refusal = await ask({ expression }).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(Unprocessable);
    expect(refusal).toMatchObject({ slug: "invalid_cron_expression", details: { expression, reason } });
  });

  test.each([
    "H * * * *",
    "5/15 * * * *",
    "22-2 * * * *",
    "1,,2 * * * *",
    "-1 * * * *",
    "1.5 * * * *",
    "0x1 * * * *",
    "a b c d e",
    "0 0 * * XYZ",
    "0 0 * * 5#6",
    "0 0 L-3 * *",
    "* * * * *; x",
  ])("refuses the expression %j", async (expression) => {
    const refusal = await ask({ expression }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ slug: "invalid_cron_expression", details: { expression } });
  });

  test.each([
    [{}, "expression"],
    [{ expression: null }, "expression"],
    [{ cron: 5 }, "cron"],
    [{ expression: "x".repeat(1_001) }, "expression"],
    [{ expression: "* * * * *", timezone: "Mars/Olympus" }, "timezone"],
    [{ expression: "* * * * *", timezone: "" }, "timezone"],
    [{ expression: "* * * * *", from: "2026-02-30T00:00:00Z" }, "from"],
    [{ expression: "* * * * *", from: "1969-12-31T23:59:59Z" }, "from"],
    [{ expression: "* * * * *", from: "2500-01-01T00:00:00Z" }, "from"],
  ])("refuses the body %j as an invalid request", (body, path) => {
    expect(() => parseRequest(testCron.request, body)).toThrow(
      expect.objectContaining({
        slug: "invalid_request",
        details: { issues: [expect.objectContaining({ path })] },
      }),
    );
  });
});

test("tells that there is no expression beside what else is wrong", () => {
  expect(() => parseRequest(testCron.request, { timezone: "Mars", from: "x" })).toThrow(
    expect.objectContaining({
      details: {
        issues: ["timezone", "from", "expression"].map((path) => expect.objectContaining({ path })),
      },
    }),
  );
});

test.each([1_795_386_261, true, "yesterday", {}])("explains the time format when `from` is %j", (from) => {
  const message = "expected an ISO 8601 time with a zone, such as 2026-01-31T12:00:00.000Z";
  expect(() => parseRequest(testCron.request, { expression: "* * * * *", from })).toThrow(
    expect.objectContaining({ details: { issues: [{ path: "from", message }] } }),
  );
});
