// Lines are matched for many tails without holding the event loop up.
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createPoller } from "#src/tail/poller.ts";

const base = Date.UTC(2026, 0, 15);
const lines = Array.from(
  { length: 100 },
  (_, n): LogLine => ({
    ...{ id: `l${n}`, source_id: "app", time: fromMillis(base - 1_000), severity: "info" },
    json: JSON.stringify({ path: `/orders/${n}` }),
  }),
);

/** A poller that reads the lines once, and the turns of the event loop that passed while they were delivered. */
async function deliver(tails: number) {
  let polls = 0;
  const store: LogStore = {
    async *lines() {
      if (polls++ === 0) yield lines;
    },
  };
  const poller = createPoller({
    ...{ store, sources: [{ id: "app", index: "x", layout: "ecs", tenantFilter: undefined }] },
    ...{ deadline: 30_000, lateness: 60_000, tieLimit: 10_000, seenLimit: 10_000 },
    now: () => fromMillis(base),
    pause: (_, signal) => delay(60_000, undefined, { signal }).catch(() => undefined),
    log: () => undefined,
  });
  const received = new Map<number, readonly string[]>();
  const leave = Array.from({ length: tails }, (_, tail) => {
    const missed = Array.from({ length: 900 }, (_, n) => `path:q${tail}x${n}`).join(" OR ");
    return poller.listen({
      filter: parse(`${missed} OR path=/orders/${tail}`),
      onLines: (found) => received.set(tail, [...(received.get(tail) ?? []), ...found.map(({ id }) => id)]),
      ...{ onClosed: () => undefined, onFailure: () => undefined, onRefusal: () => undefined },
    });
  });
  let turns = 0;
  let isOver = false;
  const counting = (async () => {
    while (!isOver) {
      await nextTurn();
      if (received.size > 0) turns += 1;
    }
  })();
  await poller.awaitOutcome();
  isOver = true;
  await counting;
  for (const one of leave) one();
  return { received, turns };
}

test("lines of one batch reach many tails in several turns, each what it follows", async () => {
  const { received, turns } = await deliver(40);
  expect(received).toEqual(new Map(Array.from({ length: 40 }, (_, tail) => [tail, [`l${tail}`]])));
  expect(turns).toBeGreaterThan(5);
});
