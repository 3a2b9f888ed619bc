// A parent may have tens of thousands of calls, and a statement takes some ten microseconds: they are looked at in turns.
import { expect, test } from "vitest";
import type { Span } from "#src/core/rows.ts";
import { findNPlusOnes } from "#src/tracing/spans/n-plus-one.ts";
import { countTurns } from "../../support/event-loop-turns.ts";
import { createSpan, signal } from "../span-builder.ts";

test("normalises the statements of one parent in turns", async () => {
  const children = Array.from({ length: 200 }, (_, n) =>
    createSpan({
      span_id: `c${n}`,
      parent_span_id: "p",
      span_kind: "client",
      statement: `SELECT * FROM t${n < 195 ? n : ""}`,
    }),
  );
  let found: readonly Span[] = [];
  const turns = await countTurns(async () => {
    found = await findNPlusOnes(children, signal);
  });
  expect(found.map(({ span_id }) => span_id)).toEqual(["c195"]);
  // Each is put to its parent, and then to its statement.
  expect(turns).toBeGreaterThanOrEqual(2 * children.length);
});
