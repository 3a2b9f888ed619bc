// Random texts in the query languages: log queries, trace queries and cron schedules.
import { describe, expect, test } from "vitest";
import { Unprocessable } from "#src/core/errors.ts";
import { compileMatcher } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { print } from "#src/log-query/print.ts";
import { slugSchemas } from "#src/operations/runtime/error-response.ts";
import { parseTraceQuery, printTraceQuery } from "#src/tracing/listing/trace-query.ts";
import { toLogLine } from "../log-query/script.ts";
import { createDemo } from "../support/demo-server.ts";
import { absurdTimes, hostileText } from "./hostile-values.ts";
import { type Draw, fuzz } from "./seeded-generator.ts";

const words = [
  "severity=error",
  "message:timeout",
  "a.b.c>=10",
  "a\\.b=1",
  "x!=y",
  "x!:y",
  "n<1e999",
  "n>-0",
  "a.0.b=1",
  "attributes.user_id_int=5",
  "user_string=[a,b]",
  "attributes.a",
  "__proto__=1",
  "constructor.name:x",
  "a.__proto__.b=1",
  '"',
  '\\"',
  "\\",
  "(",
  ")",
  "[",
  "]",
  " ",
  "\t",
  "\n",
  ",",
  ".",
  "=",
  ":",
  "!",
  "<",
  ">",
  "AND",
  "OR",
  " AND ",
  " OR ",
  '"quoted text"',
  'a="b c"',
  "a=[x, y]",
  "x=[",
  "tag.plan=pro",
  "trace_id=0AF",
  "span_id:ff",
  "revision!=1",
  "1e99999999999999999999",
  "é",
  "😀",
  "\ud83d",
  "\0",
  "\u2028",
  "﻿",
  "a",
  "0",
  "-1.5e+3",
] as const;

interface Query {
  readonly text: string;
  readonly legacy: boolean;
}
function drawQuery(draw: Draw): Query {
  const legacy = draw.chance(0.5);
  const word = () => draw.pick(words);
  switch (draw.below(6)) {
    case 0:
      return { legacy, text: hostileText(draw) };
    case 1:
      return { legacy, text: word().repeat(10 ** draw.below(4)) };
    case 2:
      return { legacy, text: draw.some(1_500, word).join(draw.pick([" ", "", " OR ", "("])) };
    case 3:
      return { legacy, text: `${"(".repeat(draw.below(70))}${word()}${")".repeat(draw.below(70))}` };
    case 4:
      return { legacy, text: `${word()}${hostileText(draw)}` };
    default:
      return { legacy, text: draw.some(12, word).join(draw.chance(0.7) ? " " : "") };
  }
}

const bodies = [
  '{"a":{"b":{"c":10}},"x":"y","n":1e400,"user_id":5,"__proto__":{"b":1},"constructor":{"name":"x"}}',
  `{"a":${"[".repeat(3_000)}1${"]".repeat(3_000)}}`,
  '{"a":[{"b":1},{"b":[2,{"c":"3"}]}],"a.b":1,"user":["a","b"]}',
  "{}",
];
const lines = bodies.map((json) => ({
  ...toLogLine({ id: "a", json }),
  message: "a timeout of é",
  severity: "error" as const,
}));

/** What `read` makes of the text; undefined for a refusal whose details are as they are documented. */
function attempt<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    const { slug, details } = error;
    expect(
      slugSchemas[slug as keyof typeof slugSchemas].details.safeParse(details).error?.issues ?? [],
    ).toEqual([]);
    return undefined;
  }
}

test("random queries are refused or keep their meaning when printed and parsed", async () => {
  let understood = 0;
  await fuzz(100_000, drawQuery, ({ text, legacy }) => {
    const filter = attempt(() => parse(text, { legacy }));
    const trace = attempt(() => parseTraceQuery(text));
    if (trace !== undefined) {
      const printed = printTraceQuery(trace);
      if (printTraceQuery(parseTraceQuery(printed)) !== printed) throw new Error(printed);
    }
    if (filter === undefined) return;
    understood += 1;
    const [means, again] = [compileMatcher(filter), compileMatcher(parse(print(filter), { legacy }))];
    for (const line of lines) if (means(line) !== again(line)) throw new Error(print(filter));
  });
  expect(understood).toBeGreaterThan(100);
});

describe("random cron schedules", () => {
  const numbers = [
    "0",
    "1",
    "5",
    "7",
    "12",
    "23",
    "29",
    "30",
    "31",
    "59",
    "60",
    "99",
    "-1",
    "00",
    "1.5",
    "1e1",
    "999999999999999999999",
  ];
  const symbols = [
    "MON",
    "sun",
    "JAN",
    "feb",
    "L",
    "W",
    "LW",
    "15W",
    "5#3",
    "5#L",
    "MON#1",
    "+5",
    "?",
    "*",
    "H",
    "X",
    "$",
    "mon-fri",
    "é",
    "0x1",
  ];
  const ends = [60, 24, 29, 12, 7];
  /** Of the field that is `at` from the left, of five; now and then of none. */
  const field = (draw: Draw, at: number): string => {
    const strange = draw.chance(0.15);
    const one = () =>
      strange ? draw.pick([...numbers, ...symbols]) : String(1 + draw.below((ends[at] ?? 8) - 1));
    if (!strange && draw.chance(0.4)) return "*";
    switch (draw.below(6)) {
      case 0:
        return `${one()}-${one()}`;
      case 1:
        return `${one()}/${one()}`;
      case 2:
        return draw.some(60, one).join(",");
      case 3:
        return `${one()}-${one()}/${one()}`;
      default:
        return one() ?? "";
    }
  };
  const drawCron = (draw: Draw) => {
    const fields = () =>
      Array.from({ length: draw.pick([5, 5, 5, 5, 5, 5, 6, 6, 4, 7, 1]) }, (_, at) => field(draw, at));
    const expression = draw.chance(0.1)
      ? draw.pick([
          hostileText(draw),
          "@daily",
          "@reboot",
          "@every 5m",
          "@",
          "@DAILY",
          "2026-01-01T00:00:00Z",
          "* ".repeat(500),
        ])
      : fields().join(draw.pick([" ", " ", " ", "  ", "\t", "\n", "\u00a0"]));
    const zones = [
      "UTC",
      "Europe/Berlin",
      "America/St_Johns",
      "Asia/Kathmandu",
      "+14:00",
      "-12:00",
      "Pacific/Apia",
      "Nowhere/None",
      "",
      "__proto__",
    ];
    return {
      expression,
      ...(draw.chance(0.4) ? { timezone: draw.pick(zones) } : {}),
      ...(draw.chance(0.2)
        ? {
            from: draw.pick([
              ...absurdTimes,
              "2024-02-28T23:59:59.999999999Z",
              "2026-03-29T00:59:59Z",
              "2499-12-31T23:59:59Z",
            ]),
          }
        : {}),
    };
  };

  test("are refused or have five ordered occurrences", async () => {
    const demo = await createDemo();
    let understood = 0;
    await fuzz(10_000, drawCron, async (asked) => {
      const { status, body } = await demo.rest("POST", "/api/v2/check_ins/test_cron", asked);
      if (status !== 200) {
        expect(status).toBe(422);
        expect(body).toMatchObject({ error: expect.stringMatching(/^invalid_(request|cron_expression)$/) });
        return;
      }
      understood += 1;
      const told = body as { expression: string; description: string; next_occurrences: string[] };
      expect(told.expression).toBe(asked.expression);
      expect(told.description).toMatch(/\S/);
      expect(told.description).not.toMatch(/undefined|NaN|null/);
      expect(told.next_occurrences).toEqual([...new Set(told.next_occurrences)].sort());
      expect(told.next_occurrences.length).toBeGreaterThan(0);
      const [first = ""] = told.next_occurrences;
      if (asked.from !== undefined)
        expect(Date.parse(first)).toBeGreaterThanOrEqual(Date.parse(asked.from) || 0);
    });
    await demo.close();
    expect(understood).toBeGreaterThan(10);
  });
});
