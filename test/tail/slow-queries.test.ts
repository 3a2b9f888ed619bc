// A query that is slow at the source, or fails there, harms its own tails and no others.
import { expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import type { Principal } from "#src/access/auth.ts";
import { BackendError, type Failure } from "#src/core/errors.ts";
import { fromMillis, type Millis, second } from "#src/core/time.ts";
import { createAccountTurns } from "#src/tail/account-turns.ts";
import { ana, type Client, createSubject } from "./harness.ts";

const bob: Principal = { ...ana, account: "bob" };

/** What the source does with each query that contains `word`. */
interface Script {
  word: string;
  /** How long it takes. */
  spent?: Millis;
  failure?: Failure | undefined;
}

function createScriptedSubject(script: Script) {
  const read: string[] = [];
  /** What the source takes to read a range of more than half a minute. */
  const delays = { whole: 0 };
  let passed = 0;
  const subject = createSubject({
    store: (store) => ({
      async *lines(query, signal) {
        const text = JSON.stringify(query.filter);
        read.push(text);
        const isScripted = text.includes(script.word);
        const { from, to } = query.range;
        if (to - from > fromMillis(30 * second)) await subject.clock.pause(delays.whole, signal);
        if (isScripted && script.spent !== undefined) await subject.clock.pause(script.spent, signal);
        if (isScripted && script.failure !== undefined)
          throw new BackendError("elk", script.failure, "secret");
        yield* store.lines(query, signal);
      },
    }),
  });
  /** Adds a line each second. */
  async function pass(seconds: number): Promise<void> {
    for (let n = 0; n < seconds; n += 1) {
      subject.add(`l${passed}`, passed * 1_000 + 500, "line slow");
      passed += 1;
      await subject.clock.advance(1_000);
    }
  }
  /** Opens a tail whose first answer takes some time. */
  async function openWithin(seconds: number, query: string, principal = ana): Promise<Client | Error> {
    const opening = subject.open({ query, principal }).catch((error: Error) => error);
    await pass(seconds);
    return await opening;
  }
  return { ...subject, script, delays, read, pass, openWithin, countLines: () => passed };
}

const listKinds = (client: Client) => [...new Set(client.events.map(({ event }) => event))];

/** @throws the failure of a tail that was not opened */
function requireOpened(opened: Client | Error): Client {
  if (opened instanceof Error) throw opened;
  return opened;
}

test("a query that times out at the source holds up no other, however often its client comes back", async () => {
  const { openWithin, pass } = createScriptedSubject({ word: "slow", spent: 11_000, failure: "timeout" });
  const other = requireOpened(await openWithin(1, "message:line", bob));
  for (let n = 0; n < 3; n += 1) {
    expect(await openWithin(12, "message:slow")).toMatchObject({ failure: "timeout" });
    // No more than the line of the last second is not there yet.
    expect(other.lines().length).toBeGreaterThanOrEqual(12 * (n + 1));
  }
  await pass(1);
  expect(listKinds(other)).toEqual(["line"]);
});

test("a query that is slow at the source gets its own lines late, whoever came first", async () => {
  for (const order of [["line", "slow"] as const, ["slow", "line"] as const]) {
    const { openWithin, pass, countLines } = createScriptedSubject({ word: "slow", spent: 8_000 });
    const clients = new Map<string, Client>();
    for (const word of order) {
      clients.set(word, requireOpened(await openWithin(9, `message:${word}`)));
      // What was read together with the slow one may take as long once.
      await pass(20);
    }
    const before = countLines();
    for (let n = 0; n < 20; n += 1) {
      await pass(1);
      expect(clients.get("line")?.lines()).toContain(`l${before + n - 1}`);
    }
    await pass(20);
    expect(clients.get("slow")?.lines()).toContain(`l${before + 19}`);
    for (const client of clients.values()) expect(listKinds(client)).toEqual(["line"]);
  }
});

test("a query that becomes slow among others is put aside, whoever came first, and read with them again later", async () => {
  for (const words of [
    ["slow", "line", "li"],
    ["line", "li", "slow"],
  ]) {
    const { open, pass, script, read, countLines } = createScriptedSubject({ word: "slow" });
    const clients = new Map<string, Client>();
    for (const word of words) clients.set(word, await open({ query: `message:${word}` }));
    await pass(5);
    script.spent = 8_000;
    // Two slow polls, and what is read alone after them.
    await pass(30);
    for (let n = 0; n < 40; n += 1) {
      await pass(1);
      for (const word of ["line", "li"]) expect(clients.get(word)?.lines()).toContain(`l${countLines() - 2}`);
    }
    expect(clients.get("slow")?.lines()).toContain(`l${countLines() - 20}`);
    script.spent = 0;
    await pass(20);
    const before = read.length;
    await pass(10);
    expect(read.length - before).toBe(10);
    for (const client of clients.values()) {
      expect(listKinds(client)).toEqual(["line"]);
      expect(client.lines().length).toBe(new Set(client.lines()).size);
      expect(client.lines()).toContain(`l${countLines() - 2}`);
    }
  }
});

test("a source that is slow for each query, or for a long range, is asked for little more than one query", async () => {
  const { open, pass, script, read, countLines, delays } = createScriptedSubject({ word: "message" });
  const clients: Client[] = [];
  for (let n = 0; n < 20; n += 1) clients.push(await open({ query: `message:line OR message:m${n}` }));
  await pass(5);
  delays.whole = 3_000;
  const early = read.length;
  await pass(60);
  expect(read.length - early).toBeLessThanOrEqual(60);
  script.spent = 4_000;
  const before = read.length;
  await pass(420);
  // One each 4.2 seconds, and two that are read alone meanwhile.
  expect(read.length - before).toBeLessThanOrEqual(100 + 10);
  for (const client of clients) {
    expect(listKinds(client)).toEqual(["line"]);
    expect(client.lines()).toContain(`l${countLines() - 10}`);
  }
});

test("a query that begins to fail among others is told apart from them, and read with them again later", async () => {
  const { open, pass, script, read, countLines } = createScriptedSubject({ word: "slow" });
  const others = [await open({ query: "message:line" }), await open({ query: "message:li" })];
  const failing = await open({ query: "message:slow" });
  await pass(5);
  script.failure = "timeout";
  // The failure of all, the pause after it, and the reading of one of them; that may be the failing one.
  await pass(12);
  const told = others.map((other) => other.events.length);
  await pass(20);
  for (const [at, other] of others.entries()) {
    expect(other.events.length).toBe((told[at] ?? 0) + 20);
    expect(other.lines()).toContain(`l${countLines() - 2}`);
  }
  expect(listKinds(failing)).toContain("retry");
  script.failure = undefined;
  await pass(40);
  for (const client of [...others, failing]) {
    expect(new Set(client.lines()).size).toBe(client.lines().length);
    expect(client.lines()).toContain(`l${countLines() - 2}`);
    expect(client.lines().length).toBeGreaterThanOrEqual(countLines() - 1);
  }
  const before = read.length;
  await pass(10);
  expect(read.length - before).toBe(10);
});

test("a doubt whose other queries have left tells nothing apart: one that becomes slow then is put aside", async () => {
  const { open, pass, script, countLines } = createScriptedSubject({ word: "slow" });
  const other = await open({ query: "message:line" });
  const failing = await open({ query: "message:slow" });
  await pass(5);
  script.failure = "timeout";
  while (!listKinds(failing).includes("retry")) await pass(1);
  failing.leave();
  script.failure = undefined;
  await pass(10);
  const slow = await open({ query: "message:slow" });
  await pass(5);
  script.spent = 8_000;
  // Two slow polls, and what is read alone after them.
  await pass(30);
  for (let n = 0; n < 20; n += 1) {
    await pass(1);
    expect(other.lines()).toContain(`l${countLines() - 2}`);
  }
  expect(slow.lines()).toContain(`l${countLines() - 20}`);
});

test("queries that fail together again are kept apart for minutes", async () => {
  const { open, pass, read, countLines } = createScriptedSubject({ word: '"or"', failure: "timeout" });
  const clients = [await open({ query: "message:line" }), await open({ query: "message:slow" })];
  await pass(30);
  const before = countLines();
  const readBefore = read.length;
  await pass(200);
  for (const client of clients) {
    const recent = client.events.slice(-200);
    expect(recent.map(({ event }) => event)).toEqual(Array(200).fill("line"));
    expect(client.lines().at(-1)).toBe(`l${before + 199}`);
  }
  expect(read.slice(readBefore).join()).not.toContain('"or"');
});

test("a source that is down is asked for one query, whatever the number of tails", async () => {
  for (const failure of ["unreachable", "timeout"] as const) {
    const { open, clock, script, read } = createScriptedSubject({ word: "message" });
    for (let n = 0; n < 20; n += 1) await open({ query: `message:m${n}` });
    await clock.advance(2_000);
    script.failure = failure;
    const before = read.length;
    // The pauses are 1, 2, 4, 8 and 16 seconds.
    await clock.advance(32_500);
    expect(read.length - before).toBe(6);
  }
});

test("few queries of one account are read alone at once, and those of another account at once too", async () => {
  const { openWithin, open, read, clock } = createScriptedSubject({ word: "slow", spent: 9_000 });
  const opening = Array.from({ length: 10 }, (_, n) => open({ query: `message:slow${n}` }));
  await clock.advance(0);
  expect(read).toHaveLength(4);
  requireOpened(await openWithin(0, "message:line", bob));
  expect(read).toHaveLength(5);
  await clock.advance(40_000);
  await Promise.all(opening);
});

test("slow queries at one store keep no tail of another one from beginning", async () => {
  const { open, read, clock } = createScriptedSubject({ word: "slow", spent: 9_000 });
  const opening = Array.from({ length: 10 }, (_, n) => open({ query: `message:slow${n}` }));
  await clock.advance(0);
  expect(read).toHaveLength(4);
  const other = open({ query: "message:line", store: createMemoryLogs() });
  await clock.advance(0);
  expect((await other).state()).toBe("open");
  await clock.advance(40_000);
  await Promise.all(opening);
});

test("a turn that ends is that of the next who waits, and who gives up loses nothing of it", async () => {
  const turns = createAccountTurns(1);
  const leaving = new AbortController();
  const never = new AbortController().signal;
  const end = await turns.take("ana", never);
  const lost = turns.take("ana", leaving.signal);
  const second = turns.take("ana", never);
  leaving.abort(new Error("the client left"));
  await expect(lost).rejects.toThrow("the client left");
  end();
  (await second)();
  await turns.take("ana", never);
});
