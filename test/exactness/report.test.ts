// The scripts that `npm run test:exact` prints for a difference agree with `matches` when they are read back. Whether the
// server answers them wrongly again is tried by the run itself.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { fromMillis } from "#src/core/time.ts";
import { readScript } from "../log-query/script.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { drawnLines, query } from "./corpus.ts";
import { isConsistent, printScript } from "./law.ts";

const answered = drawnLines(0).map((lines) =>
  lines.map(
    ({ severity, message, hostname, group, json }, at): LogLine => ({
      id: `search-ecs-7-0-${at % 2 === 0 ? "a" : "b"}/d${at}`,
      time: fromMillis(at),
      source_id: "app",
      severity: parseSeverity(severity),
      message,
      hostname,
      group,
      json,
    }),
  ),
);
/** A script names only the fields of a line and of its body. */
const ofBody = query.filter((text) => !/@timestamp|log\.level/.test(text));

describe("script of a difference", () => {
  test("prints a script that is read back and agrees with `matches`", () => {
    fc.assert(
      fc.property(answered, ofBody, (lines, text) => {
        const script = printScript("ecs", lines, text);
        const [load, evaluation] = readScript("found", script).steps;
        const bodies = load?.kind === "load" ? load.lines.map(({ message, json }) => [message, json]) : [];
        expect(bodies).toEqual(lines.map(({ message, json }) => [message, json]));
        expect(evaluation).toMatchObject({ kind: "eval", query: text });
        expect(isConsistent(script)).toBe(true);
      }),
      { numRuns: sampleRuns(100) },
    );
  });

  test("recognises a script that cannot express the difference", () => {
    const line: LogLine = {
      id: "search-ecs-7-0-a/d0",
      time: fromMillis(0),
      source_id: "app",
      severity: "error",
      message: "m",
      json: '{"log":{"level":"ERR"},"k":"x"}',
    };
    expect(isConsistent(printScript("ecs", [line], "k=x severity=error message=m"))).toBe(true);
    expect(isConsistent(printScript("ecs", [line], "log.level=ERR"))).toBe(false);
  });
});
