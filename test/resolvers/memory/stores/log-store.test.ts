// Lines are looked at without holding the event loop up. What the store answers is tested by test/conformance/memory.test.ts.
import { expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { never } from "../../../support/signals.ts";

/** The lines that are found, and the turns of the event loop that passed meanwhile. */
async function findLines(messages: readonly string[], query: string) {
  const logs = createMemoryLogs();
  const time = fromMillis(500);
  logs.add(
    "app",
    messages.map((message, n) => ({ id: `l${n}`, time, severity: "info", message, json: "{}" })),
  );
  const found: string[] = [];
  const turns = await countTurns(async () => {
    const all = logs.lines(
      {
        sources: [{ id: "s", index: "app", layout: "memory", tenantFilter: undefined }],
        range: { from: fromMillis(0), to: fromMillis(1_000) },
        filter: parse(query),
        order: "asc",
        expectedLines: 1,
        documentLimit: 10_000,
        tieLimit: 10_000,
      },
      never,
    );
    for await (const lines of all) found.push(...lines.map(({ id }) => id));
  });
  return { found, turns };
}

test("a long line is compared with many words in several turns", async () => {
  const words = Array.from({ length: 400 }, (_, n) => `message:mx${n}`).join(" OR ");
  const { found, turns } = await findLines(
    [`${"lorem ipsum ".repeat(30_000)} end`],
    `${words} OR message:end`,
  );
  expect(found).toEqual(["l0"]);
  expect(turns).toBeGreaterThanOrEqual(120);
});

test("many lines are compared in several turns", async () => {
  const { found, turns } = await findLines(Array(500).fill("line"), "message:l");
  expect(found).toHaveLength(500);
  expect(turns).toBeGreaterThanOrEqual(400);
});
