// Lines are matched for many tails without holding the event loop up, and remembered for each query alone.
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createHeldBytes, createHeldLedger } from "#src/core/async/held-bytes.ts";
import { runInUnownedTurns, type Steps, takeSteps } from "#src/core/async/turns.ts";
import { Refused } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createAccountTurns } from "#src/tail/account-turns.ts";
import type { Listener } from "#src/tail/audience.ts";
import { createPoller, type Poller, type PollerOptions } from "#src/tail/poller.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { findCollector } from "../support/garbage.ts";
import { never } from "../support/signals.ts";
import { createSubject } from "./harness.ts";

const base = Date.UTC(2026, 0, 15);
const lines = Array.from(
  { length: 100 },
  (_, n): LogLine => ({
    id: `l${n}`,
    source_id: "app",
    time: fromMillis(base - 1_000),
    severity: "info",
    json: JSON.stringify({ path: `/orders/${n}` }),
  }),
);

function listen(poller: Poller, listener: Pick<Listener, "filter"> & Partial<Listener>) {
  const deaf = {
    onLines: () => undefined,
    onClosed: () => undefined,
    onFailure: () => undefined,
    onRefusal: () => undefined,
  };
  return poller.listen({ ...deaf, ...listener }, "ana");
}

function createPollerOf(store: LogStore, over: Partial<PollerOptions> = {}) {
  return createPoller({
    store,
    sources: [{ id: "app", index: "x", layout: "ecs", tenantFilter: undefined }],
    deadline: 30_000,
    lateness: 60_000,
    tieLimit: 10_000,
    seenLimit: 10_000,
    openHeld: (account) => createHeldBytes(1_000_000, { ledger: createHeldLedger(), account }),
    now: () => fromMillis(base),
    pause: (_, signal) => delay(60_000, undefined, { signal }).catch(() => undefined),
    turns: createAccountTurns(4),
    log: () => undefined,
    ...over,
  });
}

test("a query waits no longer for its turn than for its source", async () => {
  const turns = createAccountTurns(1);
  const endTurn = await turns.take("ana", new AbortController().signal);
  const poller = createPollerOf(createMemoryLogs(), { turns, deadline: 20 });
  const { outcome, leave } = listen(poller, { filter: parse("") });
  await expect(outcome).rejects.toMatchObject({ limit: "deadline" });
  leave();
  endTurn();
  // It has left the queue.
  (await turns.take("ana", never))();
});

test("lines are delivered in turns of their own, however much is done for nobody", async () => {
  const over = new AbortController();
  let steps = 0;
  function* workForNobody(): Steps<void> {
    for (;;) {
      steps += 1;
      yield;
    }
  }
  await countTurns(async () => {
    const others = Array.from({ length: 30 }, () =>
      runInUnownedTurns(() => takeSteps(workForNobody(), over.signal)),
    );
    let polls = 0;
    const poller = createPollerOf({
      async *lines() {
        if (polls++ === 0) yield lines;
      },
    });
    const onLines = () => over.abort(new Error("delivered"));
    const { leave } = listen(poller, { filter: parse("path:orders"), onLines });
    await expect(Promise.all(others)).rejects.toThrow("delivered");
    leave();
  });
  expect(steps).toBeGreaterThan(lines.length);
  expect(steps).toBeLessThan(5 * lines.length);
});

/** A poller that reads the lines once, and the turns of the event loop that passed while they were delivered. */
async function deliver(tails: number) {
  let polls = 0;
  const poller = createPollerOf({
    async *lines() {
      if (polls++ === 0) yield lines;
    },
  });
  const received = new Map<number, readonly string[]>();
  const listening = Array.from({ length: tails }, (_, tail) => {
    const missed = Array.from({ length: 900 }, (_, n) => `path:q${tail}x${n}`).join(" OR ");
    return listen(poller, {
      filter: parse(`${missed} OR path=/orders/${tail}`),
      onLines: (found) => received.set(tail, [...(received.get(tail) ?? []), ...found.map(({ id }) => id)]),
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
  await Promise.all(listening.map(({ outcome }) => outcome));
  isOver = true;
  await counting;
  for (const { leave } of listening) leave();
  return { received, turns };
}

test("lines of one batch reach many tails in several turns, each what it follows", async () => {
  const { received, turns } = await deliver(40);
  expect(received).toEqual(new Map(Array.from({ length: 40 }, (_, tail) => [tail, [`l${tail}`]])));
  expect(turns).toBeGreaterThan(5);
});

test("a long line is compared with the words of a query in several turns", async () => {
  const message = `${"lorem ipsum ".repeat(30_000)} end`;
  const poller = createPollerOf({
    async *lines() {
      yield lines.slice(0, 1).map((line) => ({ ...line, message }));
    },
  });
  const words = Array.from({ length: 400 }, (_, n) => `message:mx${n}`).join(" OR ");
  const found: string[] = [];
  const turns = await countTurns(async () => {
    const { outcome, leave } = listen(poller, {
      filter: parse(`${words} OR message:end`),
      onLines: (own) => found.push(...own.map(({ id }) => id)),
    });
    await outcome;
    leave();
  });
  expect(found).toEqual(["l0"]);
  expect(turns).toBeGreaterThanOrEqual(120);
});

test("lines reach the tails with the shortest queries first", async () => {
  const poller = createPollerOf({
    async *lines() {
      yield lines;
    },
  });
  const reached: number[] = [];
  const listening = [900, 1, 30].map((comparisons) =>
    listen(poller, {
      filter: parse(Array.from({ length: comparisons }, (_, n) => `path:orders/${n}`).join(" OR ")),
      onLines: () => reached.push(comparisons),
    }),
  );
  await Promise.all(listening.map(({ outcome }) => outcome));
  expect(reached).toEqual([1, 30, 900]);
  for (const { leave } of listening) leave();
});

test("lines that are read for one query reach the others when its tail has left meanwhile", async () => {
  const poller = createPollerOf({
    async *lines({ filter }) {
      if (JSON.stringify(filter).includes("leaving")) yield lines;
    },
  });
  const missed = Array.from({ length: 900 }, (_, n) => `path:q${n}`).join(" OR ");
  const received: LogLine[] = [];
  const long = listen(poller, {
    filter: parse(`${missed} OR path:orders`),
    onLines: (found) => received.push(...found),
  });
  const leaving = listen(poller, { filter: parse("path:leaving") });
  const short = listen(poller, { filter: parse("path:orders"), onLines: leaving.leave });
  await expect.poll(() => received.length).toBe(lines.length);
  for (const { leave } of [long, short]) leave();
});

test("the longest query of a tail takes little more memory than its comparisons", () => {
  const collectGarbage = findCollector();
  const measureHeap = () => {
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const poller = createPollerOf({ async *lines() {} });
  const tails = 20;
  const before = measureHeap();
  const listening = Array.from({ length: tails }, (_, tail) => {
    const path = `a${tail}${".b".repeat(25)}`;
    const filter = parse(Array.from({ length: 1_000 }, (_, n) => `${path}=${n % 10}`).join(" OR "));
    return listen(poller, { filter });
  });
  const grown = measureHeap() - before;
  expect(grown / tails).toBeLessThan(1_700_000);
  for (const { leave } of listening) leave();
});

describe("a tail among lines that others follow", () => {
  const limits = { documents: 100 };
  const refusal = { event: "end", data: { reason: "refused", error: "result_too_large" } };

  /** Adds lines of one second, so many that a query of all lines cannot be answered. */
  function addNoise(add: ReturnType<typeof createSubject>["add"], second: number) {
    for (let n = 0; n < 150; n += 1) add(`noise${second}-${n}`, second * 1_000 + n + 1, "noise");
  }

  test("goes on when a tail of all lines is refused", async () => {
    const { open, add, clock } = createSubject({ limits });
    const narrow = await open({ query: "message:needle" });
    const broad = await open();
    addNoise(add, 0);
    add("a", 500, "needle");
    await clock.advance(1_000);
    expect(broad.events.at(-1)).toMatchObject(refusal);
    expect(narrow.lines()).toEqual(["a"]);
    add("b", 1_500, "needle");
    await clock.advance(1_000);
    expect([narrow.lines(), narrow.state()]).toEqual([["a", "b"], "open"]);
  });

  test("goes on where there are more queries than one reading compares", async () => {
    const { open, add, clock } = createSubject({ limits });
    const clients = await Promise.all(
      Array.from({ length: 40 }, (_, n) => open({ query: `message=needle${n}` })),
    );
    for (let second = 0; second < 30; second += 1) {
      addNoise(add, second);
      for (let n = 0; n < 40; n += 1) add(`${n}-${second}`, second * 1_000 + 500, `needle${n}`);
      await clock.advance(1_000);
    }
    await clock.advance(60_000);
    for (const [n, client] of clients.entries()) {
      expect(client.lines()).toEqual(Array.from({ length: 30 }, (_, second) => `${n}-${second}`));
      expect(client.state()).toBe("open");
    }
  });

  test("is refused when its own query matches too many lines, and may come back when those are past", async () => {
    const { open, add, clock } = createSubject({ limits, tail: { lateness: 20_000 } });
    const narrow = await open({ query: "message:needle" });
    const [own, twin] = [await open({ query: "message:noise" }), await open({ query: "message:noise" })];
    addNoise(add, 0);
    await clock.advance(1_000);
    for (const { events } of [own, twin]) expect(events.at(-1)).toMatchObject(refusal);
    await clock.advance(40_000);
    const again = await open({ query: "message:noise" });
    add("c", 41_500, "noise");
    await clock.advance(1_000);
    expect([again.lines(), again.state(), narrow.state()]).toEqual([["c"], "open", "open"]);
  });

  test("is read for alone once the query of the others is refused", async () => {
    let read = 0;
    const { open, add, clock } = createSubject({
      limits,
      store: (store) => ({
        async *lines(query, signal) {
          for await (const batch of store.lines(query, signal)) {
            for (let first = 0; first < batch.length; first += 10) {
              const lines = batch.slice(first, first + 10);
              read += lines.length;
              yield lines;
            }
          }
        },
      }),
    });
    const narrow = await open({ query: "message:needle" });
    await open();
    for (let n = 0; n < 900; n += 1) add(`l${n}`, n + 1, n < 890 ? "noise" : "needle");
    await clock.advance(1_000);
    expect(narrow.lines()).toHaveLength(10);
    // What shows that all lines are too many, and the lines of the other query.
    expect(read).toBeLessThanOrEqual(120);
  });

  test("loses nothing when another query is found too broad while each is read alone", async () => {
    const refusing = { now: false };
    const { open, add, clock } = createSubject({
      limits,
      store: (store) => ({
        async *lines(query, signal) {
          if (refusing.now && query.filter.kind === "or")
            throw new Refused("result_too_large", "too many", { limit: 7 });
          yield* store.lines(query, signal);
        },
      }),
    });
    const narrow = await open({ query: "message:needle" });
    const broad = await open({ query: "message:noise" });
    refusing.now = true;
    addNoise(add, 0);
    for (let n = 0; n < 50; n += 1) add(`both${n}`, 500 + n, "noise needle");
    await clock.advance(1_000);
    expect(broad.events.at(-1)).toMatchObject(refusal);
    expect(narrow.lines()).toHaveLength(50);
    expect(narrow.state()).toBe("open");
  });
});

test.each([
  ["its own query", "message:line"],
  ["another query", "message:li"],
])(
  "a tail that comes back to a copy of a shard that is refreshed later gets what the poll for %s has found before, once",
  async (_, query) => {
    /** What the copy that answers does not show yet. */
    const stale = new Set<string>();
    const { open, add, clock } = createSubject({
      tail: { lateness: 20_000 },
      store: (store) => ({
        async *lines(query, signal) {
          for await (const batch of store.lines(query, signal))
            yield batch.filter(({ id }) => !stale.has(id));
        },
      }),
    });
    const there = await open({ query });
    await clock.advance(0);
    const resume = there.lastId();
    for (const id of ["a", "b"]) add(id, 500, "line");
    await clock.advance(1_000);
    stale.add("a");
    const again = await open({ query: "message:line", resume });
    await clock.advance(0);
    expect(again.lines()).toEqual(["b"]);
    stale.clear();
    await clock.advance(60_000);
    for (const client of [there, again]) expect(client.lines().toSorted()).toEqual(["a", "b"]);
  },
);

test("what was matched already is matched again for the query of who has joined alone", async () => {
  const compared: string[] = [];
  /** Notes each comparison with its hostname. */
  const createWatched = (n: number) => {
    const line = { ...lines[n], id: `w${n}` } as LogLine;
    return Object.defineProperty(line, "hostname", {
      enumerable: true,
      get: () => {
        compared.push(line.id);
        return "line";
      },
    });
  };
  const watched = [0, 1, 2].map(createWatched);
  let polled = Promise.withResolvers<void>();
  const poller = createPollerOf(
    {
      async *lines() {
        yield watched;
      },
    },
    { pause: () => polled.promise },
  );
  const poll = async () => {
    const pending = polled;
    polled = Promise.withResolvers();
    pending.resolve();
    for (let n = 0; n < 12; n += 1) await nextTurn();
    return compared.splice(0).length;
  };
  const first = listen(poller, { filter: parse("hostname=line") });
  await first.outcome;
  const others = [1, 2].map((n) => listen(poller, { filter: parse(`hostname=other${n}`) }));
  await Promise.all(others.map(({ outcome }) => outcome));
  await poll();
  expect(await poll()).toBe(0);
  const late = listen(poller, { filter: parse("hostname=line") });
  expect(await poll()).toBe(watched.length);
  expect(await poll()).toBe(0);
  for (const { leave } of [first, late, ...others]) leave();
});
