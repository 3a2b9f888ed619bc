// The events of a tail, its limits and its end. laws.test.ts checks that it sends the right lines.
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Principal } from "#src/access/auth.ts";
import { BackendError, Refused } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import type { LogStore } from "#src/store/logs.ts";
import { ana, base, createSubject } from "./harness.ts";

const named = (events: readonly { event: string }[]) => events.map(({ event }) => event);

/** A store that fails with `failure.now` while that is set. */
function breakable() {
  const failure: { now: Error | undefined } = { now: undefined };
  const wrap = (store: LogStore): LogStore => ({
    async *lines(query, signal) {
      if (failure.now !== undefined) throw failure.now;
      yield* store.lines(query, signal);
    },
  });
  return { failure, wrap };
}

describe("tail events", () => {
  test("a line event holds the row of a page and the id of the last closed millisecond", async () => {
    const { open, add, clock } = createSubject();
    const client = await open();
    add("a", 500, "hello\nworld");
    await clock.advance(1_000);
    expect(client.events).toEqual([
      {
        event: "line",
        id: Buffer.from(String(base)).toString("base64url"),
        data: {
          id: "a",
          timestamp: "2026-01-15T10:00:00.500Z",
          source_id: "app",
          severity: "info",
          message: "hello\nworld",
          hostname: "",
          group: "",
          json: "{}",
          attributes: {},
        },
      },
    ]);
  });

  test("a future line waits for its time and a late line follows newer ones", async () => {
    const { open, add, clock } = createSubject();
    const client = await open();
    add("future", 5_000);
    await clock.advance(2_000);
    add("late", 100);
    await clock.advance(1_000);
    expect(client.lines()).toEqual(["late"]);
    await clock.advance(3_000);
    expect(client.lines()).toEqual(["late", "future"]);
  });

  test("heartbeats advance the id of a quiet tail, so that it rereads little on reconnect", async () => {
    const { open, clock } = createSubject({ tail: { lateness: 20_000 } });
    const client = await open();
    await clock.advance(120_000);
    expect(client.text().match(/^:$/gm)).toHaveLength(8);
    expect(client.events).toEqual([]);
    const closed = Number(Buffer.from(client.lastId() ?? "", "base64url").toString()) - base;
    expect(closed).toBeGreaterThan(70_000);
    expect(closed).toBeLessThanOrEqual(100_000);
  });

  test("`to` ends the tail when no line of its range can arrive any more", async () => {
    const { open, add, clock } = createSubject({ tail: { lateness: 20_000 } });
    const client = await open({ to: 2_000 });
    await clock.advance(15_000);
    add("late", 1_999);
    add("beyond", 2_001);
    await clock.advance(15_000);
    expect([client.lines(), client.events.at(-1)?.data]).toEqual([["late"], { reason: "complete" }]);
    expect([client.state(), client.wasCut()]).toEqual(["ended", false]);
  });

  test("a past range is read and ended at once", async () => {
    const { open, add, clock } = createSubject();
    for (let n = 0; n < 2_000; n += 1) add(`l${n}`, -500_000 + n);
    const client = await open({ from: -500_000, to: -499_000 });
    await clock.advance(0);
    expect(client.lines()).toHaveLength(1_001);
    expect(named(client.events).at(-1)).toBe("end");
  });
});

describe("a tail over a failing source", () => {
  test("fails to open when the source fails before its first answer", async () => {
    const { failure, wrap } = breakable();
    const { open } = createSubject({ store: wrap });
    failure.now = new BackendError("elk", "overloaded", "secret");
    await expect(open()).rejects.toBe(failure.now);
    failure.now = new Refused("not_supported_by_backend", "no", { backend: "elk", feature: "x" });
    await expect(open()).rejects.toBe(failure.now);
  });

  test("sends a safe retry event, backs off and delivers all lines afterwards", async () => {
    const { failure, wrap } = breakable();
    const { open, add, clock, logged } = createSubject({ store: wrap });
    const client = await open();
    await clock.advance(2_500);
    failure.now = new BackendError("elk", "unreachable", "secret");
    add("a", 2_000);
    await clock.advance(20_000);
    expect(client.events.map(({ event, data }) => [event, data.error, data.retry_in_ms])).toEqual(
      [1_000, 2_000, 4_000, 8_000, 16_000].map((rest) => ["retry", "A data source cannot be reached", rest]),
    );
    failure.now = undefined;
    await clock.advance(16_000);
    expect(named(client.events).slice(5).sort()).toEqual(["line", "resumed"]);
    expect(client.text()).not.toContain("secret");
    expect(logged()).toContain("tail: reading failed");
  });

  test("ends with the refusal when the source refuses the query", async () => {
    const { failure, wrap } = breakable();
    const { open, clock } = createSubject({ store: wrap });
    const client = await open();
    failure.now = new Refused("result_too_large", "too many", { limit: 7 });
    await clock.advance(2_000);
    expect(client.events.at(-1)).toEqual({
      event: "end",
      id: Buffer.from(String(base)).toString("base64url"),
      data: { reason: "refused", error: "result_too_large", message: "too many", details: { limit: 7 } },
    });
  });

  /** A store that refuses every query that compares `severity`, as if the index could not evaluate it. */
  const choosy = (store: LogStore): LogStore => ({
    async *lines(query, signal) {
      if (JSON.stringify(query.filter).includes("severity"))
        throw new Refused("result_too_large", "too many", { limit: 7 });
      yield* store.lines(query, signal);
    },
  });

  test("ends only the tails of a refused query and loses no line of the others", async () => {
    const refusing = { now: false };
    const { open, add, clock, readings } = createSubject({
      store: (store) => {
        const strict = choosy(store);
        return { lines: (query, signal) => (refusing.now ? strict : store).lines(query, signal) };
      },
    });
    const [all, some, own, twin] = [
      await open({ query: "message:line" }),
      await open({ query: "message:other" }),
      await open({ query: "severity=error" }),
      await open({ query: "severity=error" }),
    ];
    refusing.now = true;
    add("a", 500, "line other");
    await clock.advance(1_000);
    for (const client of [own, twin]) {
      expect(client.events.at(-1)).toMatchObject({
        event: "end",
        data: { reason: "refused", error: "result_too_large" },
      });
      expect([client.state(), client.wasCut()]).toEqual(["ended", false]);
    }
    const before = readings();
    add("b", 1_500, "line");
    add("c", 1_600, "other");
    await clock.advance(2_000);
    expect(all.lines()).toEqual(["a", "b"]);
    expect(some.lines()).toEqual(["a", "c"]);
    expect(all.text() + some.text()).not.toMatch(/event: (retry|end)/);
    // The remaining filters are read as one query again.
    expect(readings() - before).toBe(2);
  });

  test("refuses a new query without an effect on open tails", async () => {
    const { open, add, clock } = createSubject({ store: choosy });
    const there = await open({ query: "message:line" });
    const late = await open({ query: "severity=error" }).catch((error: unknown) => error);
    await clock.advance(1_000);
    if (late instanceof Error) expect(late).toBeInstanceOf(Refused);
    else expect(late).toMatchObject({ events: [{ event: "end", data: { reason: "refused" } }] });
    // No state remains: the next tail receives the refusal too.
    await expect(open({ query: "severity=error", from: -60_000 })).rejects.toBeInstanceOf(Refused);
    add("a", 1_500, "line");
    await clock.advance(2_000);
    expect([there.lines(), there.state()]).toEqual([["a"], "open"]);
  });

  test("ends all tails when every query is refused", async () => {
    const refusing = { now: false };
    const { open, clock, readings } = createSubject({
      store: (store) => {
        const strict = choosy(store);
        return { lines: (query, signal) => (refusing.now ? strict : store).lines(query, signal) };
      },
    });
    const clients = [await open({ query: "severity=error" }), await open({ query: "severity=warn" })];
    refusing.now = true;
    await clock.advance(1_000);
    for (const { events } of clients) expect(events.at(-1)?.data).toMatchObject({ reason: "refused" });
    const before = readings();
    await clock.advance(5_000);
    expect(readings()).toBe(before);
  });

  test("treats a hanging source as failed after the deadline", async () => {
    const { open } = createSubject({
      limits: { deadline: 20 },
      store: () => ({
        async *lines() {
          await new Promise(() => {});
        },
      }),
    });
    await expect(open()).rejects.toMatchObject({ failure: "timeout" });
  });

  test("extends the deadline while the source makes progress and sends heartbeats", async () => {
    let over = false;
    const { open, clock } = createSubject({
      limits: { deadline: 1_500 },
      store: () => ({
        // biome-ignore lint/correctness/useYield: there are no lines
        async *lines({ progressed }) {
          for (let n = 0; n < 8; n += 1) {
            await delay(300);
            progressed?.(1);
          }
          over = true;
        },
      }),
    });
    const client = await open({ from: -3_600_000 });
    expect(over).toBe(false);
    await clock.advance(20_000);
    expect(client.text()).toContain("\n:\nid: ");
    await expect.poll(() => over).toBe(true);
    expect(client.state()).toBe("open");
    client.leave();
  });
});

describe("tails of slow clients", () => {
  const long = "x".repeat(2_000);

  test("are ended with an event and continue without loss on reconnect", async () => {
    const { open, add, clock } = createSubject();
    const client = await open({ stalled: true });
    const quick = await open();
    for (let second = 0; second < 8; second += 1) {
      for (let n = 0; n < 100; n += 1) add(`l${second}-${n}`, second * 1_000 + n + 1, long);
      await clock.advance(1_000);
    }
    expect(client.wasCut()).toBeUndefined();
    client.stalled = false;
    await clock.advance(0);
    expect(client.events.at(-1)?.data).toEqual({ reason: "slow" });
    expect(client.state()).toBe("ended");
    const again = await open({ resume: client.lastId() });
    await clock.advance(2_000);
    expect([...new Set([...client.lines(), ...again.lines()])].sort()).toEqual(
      Array.from({ length: 800 }, (_, n) => `l${Math.floor(n / 100)}-${n % 100}`).sort(),
    );
    expect(quick.lines()).toHaveLength(800);
  });

  test("are disconnected when the client does not take the last event", async () => {
    const { open, add, clock } = createSubject();
    const client = await open({ stalled: true });
    for (let n = 0; n < 2_000; n += 1) add(`l${n}`, n, long);
    await clock.advance(14_000);
    expect([client.state(), client.wasCut()]).toEqual(["broken", true]);
  });

  test("wait for a client that catches up, and pause reading meanwhile", async () => {
    const { open, add, clock, readings } = createSubject();
    for (let n = 0; n < 5_000; n += 1) add(`l${n}`, -3_600_000 + n, long);
    const client = await open({ from: -3_600_000, stalled: true });
    const before = readings();
    await clock.advance(30_000);
    expect([client.wasCut(), readings()]).toEqual([undefined, before]);
    client.stalled = false;
    await clock.advance(2_000);
    expect(client.lines()).toHaveLength(5_000);
    expect(client.wasCut()).toBeUndefined();
  });

  test("have progressed when they are cut while catching up with large lines", async () => {
    const { open, add } = createSubject();
    for (let n = 0; n < 200; n += 1) add(`l${n}`, -3_600_000 + Math.floor(n / 2), long.repeat(25));
    const client = await open({ from: -3_600_000 });
    await expect.poll(client.lines).toHaveLength(200);
    const ids = client.events.map(({ id }) => id);
    // At 50,000 characters per line, six lines form one chunk.
    for (let at = 6; at < ids.length; at += 1) expect(ids[at]).not.toBe(ids[at - 6]);
  });
});

describe("a tail that begins far behind is an export until it is near to now", () => {
  const hour = 3_600_000;
  const bob: Principal = { ...ana, user: "bob", token: "bob", account: "bob", limits: { export: 20 } };
  const tooLarge = (limit: number) => ({ slug: "result_too_large", details: { limit } });

  test("and reads no more than an export of its token may", async () => {
    const { open, add, clock, readings } = createSubject({ limits: { export: 40 } });
    for (let n = 0; n < 30; n += 1) add(`l${n}`, -hour + n);
    await expect(open({ principal: bob, from: -hour })).rejects.toMatchObject(tooLarge(20));
    await expect(open({ principal: bob, from: -hour, to: -hour + 100 })).rejects.toMatchObject(tooLarge(20));
    expect(readings()).toBe(0);
    const part = await open({ principal: bob, from: -hour, to: -hour + 9 });
    const all = await open({ from: -hour });
    await clock.advance(0);
    expect([part.lines().length, part.events.at(-1)?.data]).toEqual([10, { reason: "complete" }]);
    expect([all.lines().length, all.state()]).toEqual([30, "open"]);
    for (let n = 0; n < 30; n += 1) add(`more${n}`, -hour + n);
    await expect(open({ from: -hour })).rejects.toMatchObject(tooLarge(40));
    await expect(open({ resume: part.lastId() })).rejects.toMatchObject(tooLarge(40));
  });

  test("and ends where only reading shows that it is too much", async () => {
    const { open, add, clock } = createSubject({
      store: ({ lines }) => ({ lines }),
      limits: { export: 1_200 },
    });
    for (let n = 0; n < 2_000; n += 1) add(`l${n}`, -hour + n);
    const client = await open({ from: -hour });
    await clock.advance(0);
    expect(client.lines().length).toBeLessThanOrEqual(1_200);
    expect(client.events.at(-1)?.data).toMatchObject({ reason: "refused", details: { limit: 1_200 } });
  });

  test("and has a place among them for so long", async () => {
    const { open, add, clock } = createSubject({ places: 1 });
    for (let n = 0; n < 2_000; n += 1) add(`l${n}`, -hour + n);
    const first = await open({ from: -hour, stalled: true });
    const refused = { limit: "streams", failure: "overloaded" };
    await expect(open({ from: -hour })).rejects.toMatchObject(refused);
    await open();
    first.stalled = false;
    await clock.advance(0);
    expect(first.lines()).toHaveLength(2_000);
    const second = await open({ from: -hour, stalled: true });
    await expect(open({ from: -hour })).rejects.toMatchObject(refused);
    second.leave();
    await clock.advance(0);
    await open({ from: -hour, to: -hour + 1 });
    await clock.advance(0);
    expect((await open({ from: -hour })).state()).toBe("open");
  });

  test("but not one whose client was cut and comes back", async () => {
    const { open, add, clock } = createSubject({ limits: { export: 1 }, places: 0 });
    const client = await open();
    for (let n = 0; n < 40; n += 1) {
      add(`l${n}`, n * 1_000 + 500);
      await clock.advance(1_000);
    }
    // Quiet for as long as the last id can be old.
    await clock.advance(14_000);
    client.leave();
    add("missed", 54_500);
    await clock.advance(5_000);
    const again = await open({ resume: client.lastId() });
    await clock.advance(1_000);
    expect(again.lines().toSorted()).toEqual([...client.lines(), "missed"].toSorted());
    expect(again.state()).toBe("open");
  });
});

describe("tail limits and lifetime", () => {
  test("limits the tails of a token and of the server, and frees the slot at the end", async () => {
    const { open, clock } = createSubject({ tail: { maxOpen: 3, perToken: 2 } });
    const first = await open();
    await open();
    await expect(open()).rejects.toMatchObject({ name: "TooMany" });
    const bob = { user: "bob", token: "bob", account: "bob", maySee: () => true, hasScope: () => true };
    await open({ principal: bob });
    await expect(open({ principal: bob })).rejects.toMatchObject({ failure: "overloaded" });
    first.leave();
    await clock.advance(0);
    expect([first.state(), first.wasCut()]).toEqual(["broken", false]);
    await open();
  });

  test("limits the comparisons in the queries of a token's tails and of all, and frees them at the end", async () => {
    const { open, clock, tails } = createSubject({ tail: { maxOpen: 50, perToken: 30 } });
    const compare = (comparisons: number) =>
      Array.from({ length: comparisons }, (_, n) => `message:m${n}`).join(" OR ");
    const ben: Principal = { ...ana, account: "ben" };
    const eve: Principal = { ...ana, account: "eve" };
    const first = await open({ query: compare(1_000) });
    await open({ query: compare(500) });
    await expect(open()).rejects.toMatchObject({
      limit: "token_tail_comparisons",
      quota: { requests: 1_500, unit: "comparisons" },
    });
    await open({ query: compare(999), principal: ben });
    const refused = { failure: "overloaded", limit: "tail_comparisons" };
    await expect(open({ query: compare(2), principal: eve })).rejects.toMatchObject(refused);
    expect(tails.measureUse()).toMatchObject({ tail_comparisons: 0.9996, token_tail_comparisons: 1 });
    first.leave();
    await clock.advance(0);
    await open({ query: compare(1_000) });
  });

  test("the longest query is followed whatever the limits", async () => {
    const { open } = createSubject({ tail: { maxOpen: 1, perToken: 1 } });
    const query = Array.from({ length: 1_000 }, (_, n) => `message:m${n}`).join(" OR ");
    expect((await open({ query })).state()).toBe("open");
  });

  test("a refused opening takes no slot", async () => {
    const { failure, wrap } = breakable();
    const { open } = createSubject({ store: wrap, tail: { maxOpen: 1, perToken: 1 } });
    failure.now = new BackendError("elk", "unreachable", "down");
    for (let n = 0; n < 3; n += 1) await expect(open()).rejects.toBe(failure.now);
    failure.now = undefined;
    await open();
  });

  test.each([undefined, -1_000])(
    "a client that leaves before the first answer frees its slot (from %s)",
    async (from) => {
      const hung: LogStore = {
        async *lines() {
          await new Promise(() => {});
        },
      };
      const stores: LogStore[] = [hung];
      const { open, leaveAll } = createSubject({
        store: (store) => ({ lines: (query, signal) => (stores.pop() ?? store).lines(query, signal) }),
        tail: { maxOpen: 1, perToken: 1 },
      });
      const opening = open({ from });
      leaveAll();
      await expect(opening).rejects.toThrow("the client left");
      stores.length = 0;
      await open();
    },
  );

  test("ends the tails of a token that expires", async () => {
    const { open, clock } = createSubject();
    const client = await open({ principal: { ...ana, expires: fromMillis(base + 5_000) } });
    await clock.advance(4_000);
    expect(client.state()).toBe("open");
    await clock.advance(2_000);
    expect(client.events.at(-1)?.data).toEqual({ reason: "expired" });
  });

  test.each(["draining", "reloaded"] as const)(
    "closing for %s ends all tails with a last event",
    async (reason) => {
      const { open, clock, tails } = createSubject();
      const clients = [await open(), await open({ query: "message=a" })];
      await tails.close(reason);
      await clock.advance(0);
      for (const client of clients) {
        expect([client.events.at(-1)?.data, client.state()]).toEqual([{ reason }, "ended"]);
      }
    },
  );

  test.each(["", "x", "!!!", Buffer.from("99999999999999999").toString("base64url")])(
    "refuses the event id %j",
    async (resume) => {
      await expect(createSubject().open({ resume })).rejects.toMatchObject({ slug: "invalid_request" });
    },
  );
});

describe("source load of tails", () => {
  test("is one read at a time for any number of tails, and none without tails", async () => {
    const { open, clock, readings } = createSubject();
    const clients = await Promise.all(
      Array.from({ length: 50 }, (_, n) => open({ query: `message=m${n % 40}` })),
    );
    // Each query is asked for alone once.
    expect(readings()).toBeLessThanOrEqual(41);
    const opened = readings();
    await clock.advance(5_000);
    // One read per second.
    expect(readings() - opened).toBeLessThanOrEqual(6);
    for (const client of clients) client.leave();
    await clock.advance(2_000);
    const after = readings();
    await clock.advance(60_000);
    expect(readings()).toBe(after);
  });

  test("stays the same when the server clock is set back", async () => {
    const { open, clock, readings } = createSubject();
    const client = await open();
    await clock.advance(5_000);
    clock.putBack(3_600_000);
    const before = readings();
    await clock.advance(20_000);
    expect(readings() - before).toBeGreaterThanOrEqual(19);
    expect(readings() - before).toBeLessThanOrEqual(21);
    expect(client.text().match(/^:$/gm)).toHaveLength(1);
  });
});
