// What tails hold of documents counts beside what requests hold: a tail's own reading for its client, and so its polls while it
// is read alone; what is read for several tails for none of their clients.
import { expect, test } from "vitest";
import type { HeldBytes } from "#src/core/async/held-bytes.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createSubject } from "./harness.ts";

/** Holds `bytes` for each reading, until it ends. */
function createHoldingStore(bytes: () => number) {
  const readings: { readonly query: string; readonly held: Map<string, number> }[] = [];
  let ledger = new Map<string, number>();
  const wrap = (store: LogStore): LogStore => ({
    async *lines(query, signal) {
      const held: HeldBytes | undefined = query.held?.openPart();
      held?.hold(bytes());
      readings.push({ query: JSON.stringify(query.filter), held: new Map(ledger) });
      try {
        yield* store.lines(query, signal);
      } finally {
        held?.release();
      }
    },
  });
  return {
    wrap,
    readings,
    watch: (heldBy: Map<string, number>) => {
      ledger = heldBy;
    },
  };
}

test("a reading of one tail is held for its client, one of several for none of them", async () => {
  const { wrap, readings, watch } = createHoldingStore(() => 1_000);
  const { open, add, clock, ledger, leaveAll } = createSubject({ store: wrap });
  watch(ledger.heldBy);
  add("old", -500_000);
  await open({ from: -600_000, query: "severity=info" });
  await open({ query: "severity=warn" });
  expect(readings.map(({ held }) => [...held])).toContainEqual([["ana", 1_000]]);
  await clock.advance(5_000);
  const together = readings.filter(({ query }) => query.includes("info") && query.includes("warn"));
  expect(together.length).toBeGreaterThan(0);
  for (const { held } of together) expect([...held]).toEqual([["tails", 1_000]]);
  expect(ledger.heldBytes).toBe(0);
  leaveAll();
});

test("a tail that finds too much held tries again, and one that would hold too much alone is refused", async () => {
  let bytes = 1_000;
  const { wrap } = createHoldingStore(() => bytes);
  const { open, add, clock, ledger, logged } = createSubject({ store: wrap, limits: { heldBytes: 10_000 } });
  const client = await open();
  ledger.heldBytes = 19_500;
  await clock.advance(2_000);
  expect(client.events.at(-1)?.event).toBe("retry");
  expect(logged()).toContain('"level":"warn"');
  ledger.heldBytes = 0;
  add("a", 500);
  await clock.advance(5_000);
  expect(client.lines()).toEqual(["a"]);
  bytes = 10_001;
  await clock.advance(2_000);
  expect(client.events.at(-1)?.data).toMatchObject({ reason: "refused", error: "result_too_large" });
  expect(ledger.heldBytes).toBe(0);
});

test("tails that find too much held go on being read together", async () => {
  const { wrap, readings } = createHoldingStore(() => 1_000);
  const { open, clock, ledger, leaveAll } = createSubject({ store: wrap, limits: { heldBytes: 10_000 } });
  for (const word of ["info", "warn", "error"]) await open({ query: `severity=${word}` });
  await clock.advance(5_000);
  for (let episode = 0; episode < 3; episode += 1) {
    ledger.heldBytes = 19_500;
    await clock.advance(3_000);
    ledger.heldBytes = 0;
    await clock.advance(20_000);
  }
  const before = readings.length;
  await clock.advance(10_000);
  const later = readings.slice(before).map(({ query }) => query);
  expect(later.length).toBeGreaterThan(5);
  expect(later.every((query) => ["info", "warn", "error"].every((word) => query.includes(word)))).toBe(true);
  leaveAll();
});
