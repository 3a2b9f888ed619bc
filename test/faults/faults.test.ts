// Every way in which a source fails, at every question that reads one: a request ends at its deadline at the latest, with
// the right status and sentence and nothing of the source's words; what has begun to stream is visibly cut; and an answer
// that looks whole is the one that is given without a fault. `npm run test:faults` draws where and when a fault strikes
// from ten seeds, or from SEED=7 alone; `npm test` puts each kind of fault to a quarter of the questions. The clock of the program is the test's: it moves on only
// while nothing happens on the wire.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { defaults } from "#src/config.ts";
import { type Failure, failures } from "#src/errors.ts";
import { createRandom } from "../conformance/traces.ts";
import { type FaultKind, faultKinds, secret } from "../support/proxy.ts";
import {
  countedQuestions,
  openSources,
  type Program,
  type Question,
  questions,
  type Reply,
  type SourceName,
  type Sources,
  startProgram,
} from "./subject.ts";

const { SEED, SEEDS } = process.env;
const seeds = Array.from({ length: Number(SEEDS ?? 1) }, (_, n) => Number(SEED ?? 1) + n);
const parts = SEED === undefined && SEEDS === undefined ? 4 : 1;

/** What may become of a request whose source fails so; one that is only slow may take until the deadline, and no less. */
const outcomes: Readonly<Record<FaultKind, readonly Failure[]>> = {
  latency: ["timeout"],
  bandwidth: ["timeout"],
  cut: ["unreachable", "malformed"],
  reset: ["unreachable"],
  silence: ["timeout"],
  "half-open": ["timeout"],
  "slow loris": ["timeout"],
  "truncated JSON": ["malformed"],
  "Content-Length too long": ["unreachable", "malformed"],
  "Content-Length too short": ["unreachable", "malformed"],
  "bad gzip": ["malformed"],
  "gzip bomb": ["malformed"],
  "429": ["overloaded"],
  "429 with Retry-After": ["overloaded"],
  "503": ["overloaded"],
  "an error with status 200": ["malformed"],
  "a part with status 200": ["partial"],
  "a page with status 200": ["malformed"],
};

/** A question of a source, and the answer without a fault. */
interface Case {
  readonly question: Question;
  readonly source: SourceName;
  readonly program: () => Promise<Program>;
  readonly reply: Reply;
  /** How many requests it took. */
  readonly asked: number;
}
const cases: Case[] = [];
const names = questions.flatMap(({ name, source }) =>
  source === "series" ? [`Prometheus: ${name}`] : [`Elasticsearch: ${name}`, `OpenSearch: ${name}`],
);
const uncaught: unknown[] = [];
const catchIt = (error: unknown) => void uncaught.push(error);
let sources: Sources;
let before = 0;

/** Before the clock is the test's, so that what is loaded and kept for good is on the real one. */
beforeAll(async () => {
  process.on("uncaughtException", catchIt);
  process.on("unhandledRejection", catchIt);
  before = process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;
  sources = await openSources();
  for (const question of questions) {
    const products = ["Elasticsearch", "OpenSearch"] as const;
    for (const product of question.source === "series" ? products.slice(0, 1) : products) {
      const source = question.source === "series" ? "Prometheus" : product;
      const start = () => startProgram(sources, product);
      const proxy = sources.proxies[source];
      proxy.plan(() => undefined);
      const program = await start();
      const reply = await program.ask(question);
      cases.push({ question, source, program: start, reply, asked: proxy.seen.asked });
      await program.close();
    }
  }
  // Each question once, on a machine that may be busy with others.
}, 300_000);
afterAll(async () => {
  await sources.close();
  process.off("uncaughtException", catchIt);
  process.off("unhandledRejection", catchIt);
});
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

test.each(names.map((name, n) => [name, n] as const))("without a fault there is an answer, %s", (name, n) => {
  const { question, source, reply, asked } = cases[n] ?? {};
  expect(`${source}: ${question?.name}`).toBe(name);
  expect(reply).toMatchObject({ status: 200, complete: true });
  expect(reply?.body.length).toBeGreaterThan(4);
  expect(reply?.body).not.toContain('"errors":[{"message"');
  expect(asked).toBeGreaterThan(0);
});

test("what is counted at the source is what is read where it refuses to count", async () => {
  vi.useRealTimers();
  const reading = await openSources({ aggregates: false });
  const asked = questions.filter(({ name }) => name in countedQuestions);
  for (const question of asked) {
    const { reply } = cases.find((one) => one.question === question) ?? {};
    const program = await startProgram(reading, "Elasticsearch", 64 * 1_048_576);
    const read = JSON.parse((await program.ask(question)).body);
    const counted = JSON.parse(reply?.body ?? "");
    // Percentiles of counted spans are those of classes of lengths: within 2 %.
    for (const name of ["p_90", "p_95"]) {
      if (read[name] === undefined) continue;
      expect(Math.abs(counted[name] / read[name] - 1), name).toBeLessThanOrEqual(0.02);
      delete read[name];
      delete counted[name];
    }
    expect(counted, question.name).toEqual(read);
    await program.close();
  }
  await reading.close();
  // Both ways were gone: groups, those with lengths, parents with many children, ids of what failed, and a cut.
  for (const product of ["Elasticsearch", "OpenSearch"] as const) {
    expect(new Set(sources.counts(product))).toEqual(
      new Set(["groups", "single0", "single1", "parents", "ids", "milestone"]),
    );
  }
});

const turns = async (count: number): Promise<void> => {
  for (let n = 0; n < count; n++) await new Promise((resolve) => setImmediate(resolve));
};

/** What is unpacked is not seen on the wire, and nothing about it waits. */
const clockless: readonly FaultKind[] = ["bad gzip", "gzip bomb"];

/** Lets the clock go to the next timer whenever nothing more happens without; tells how far it went. */
async function settle<T>(
  promise: Promise<T>,
  kind?: FaultKind,
): Promise<{ readonly result: T; readonly elapsed: number }> {
  const started = performance.now();
  let over = false;
  const settled = promise.finally(() => {
    over = true;
  });
  settled.catch(() => undefined);
  const activity = () => Object.values(sources.proxies).reduce((sum, proxy) => sum + proxy.activity(), 0);
  while (!over) {
    const before = activity();
    await turns(40);
    const idle = !over && activity() === before;
    if (idle && (kind === undefined || !clockless.includes(kind))) vi.advanceTimersToNextTimer();
  }
  return { result: await settled, elapsed: performance.now() - started };
}

/** The one sentence, by REST or GraphQL; undefined where the answer is none of a failure. */
function sentenceOf({ status, body }: Reply): string | undefined {
  const value = JSON.parse(body);
  const error = value.errors?.[0];
  if (error !== undefined) {
    expect(error.extensions.status).toBe(500);
    expect(Object.values(value.data ?? {}).every((one) => one === null)).toBe(true);
    return error.message;
  }
  if (status === 200) return undefined;
  expect(status).toBe(500);
  expect(Object.keys(value)).toEqual(["error"]);
  return value.error;
}

async function close(program: Program): Promise<void> {
  await settle(program.close());
  for (const { connections } of Object.values(sources.proxies)) {
    for (let n = 0; n < 100 && connections() > 0; n++) await turns(10);
    expect(connections()).toBe(0);
  }
}

/** One question while the source fails from some request on, or at this one alone. */
async function trial(kind: FaultKind, { question, source, ...of }: Case, seed: number): Promise<void> {
  const { reply: expected, asked } = of;
  const random = createRandom(seed * 7_919 + faultKinds.indexOf(kind) * 101 + questions.indexOf(question));
  const from = Math.floor(random() * asked);
  const lasting = random() < 0.5;
  const proxy = sources.proxies[source];
  proxy.plan((n) => ((lasting ? n >= from : n === from) ? { kind, chance: random } : undefined));
  const program = await of.program();
  try {
    const { result: reply, elapsed } = await settle(program.ask(question), kind);
    const context = `${kind} of ${source} at ${question.name}, seed ${seed}: ${lasting ? "from" : "at"} request ${from} of ${asked}`;
    expect(reply.body, context).not.toContain(secret);
    expect(elapsed, context).toBeLessThanOrEqual(defaults.limits.deadline);
    if (!reply.complete) {
      // What came before the cut is the beginning of the answer, and not the whole of it.
      expect(reply.status, context).toBe(200);
      expect(expected.body.startsWith(reply.body) && reply.body.length < expected.body.length, context).toBe(
        true,
      );
      expect(kind === "latency" || kind === "bandwidth", context).toBe(false);
      return;
    }
    const sentence = reply.status === 200 && reply.body === expected.body ? undefined : sentenceOf(reply);
    if (sentence === undefined) {
      expect(reply.body, context).toBe(expected.body);
      return;
    }
    expect(proxy.seen.struck + (proxy.seen.asked === 0 ? 1 : 0), context).toBeGreaterThan(0);
    expect(
      outcomes[kind].map((failure) => failures[failure]),
      `${context}\n${program.logged()}`,
    ).toContain(sentence);
    if (kind === "latency" || kind === "bandwidth") {
      expect(elapsed, context).toBe(defaults.limits.deadline);
    }
    if (sentence === failures.overloaded && question.path !== "/graphql") {
      const seconds = kind === "429 with Retry-After" ? "7" : "1";
      expect(reply.headers["retry-after"], context).toBe(seconds);
    }
  } finally {
    await close(program);
    proxy.plan(() => undefined);
    // The pause before a second try that others wait for as well, and a cache that keeps the time for a moment.
    await vi.advanceTimersByTimeAsync(250);
    // What is unpacked beside the event loop takes its own time.
    for (let n = 0; n < 1_000 && vi.getTimerCount() > 0; n++) await turns(10);
    expect(vi.getTimerCount()).toBe(0);
    expect(uncaught.splice(0)).toEqual([]);
  }
}

describe.each(seeds)("seed %i", (seed) => {
  test.each(faultKinds)("%s", async (kind) => {
    const failed: unknown[] = [];
    for (const one of cases) {
      // Both products share all but their clients: a seed puts each question to one of them.
      const turn = questions.indexOf(one.question) + seed;
      if (one.source === (turn % 2 === 0 ? "OpenSearch" : "Elasticsearch")) continue;
      if ((questions.indexOf(one.question) + faultKinds.indexOf(kind)) % parts !== 0) continue;
      await trial(kind, one, seed).catch((error: unknown) => failed.push(error));
    }
    if (failed.length > 0) throw new AggregateError(failed, failed.map(String).join("\n"));
  });
});

describe("a source that comes back", () => {
  test.each(["Elasticsearch", "OpenSearch", "Prometheus"] as const)(
    "%s: left alone while it rests, and asked again by the first request after it",
    async (source) => {
      // Neither of them remembers a failure for longer than a moment of the test's clock.
      const name = source === "Prometheus" ? "kubernetes/nodes" : "logs/lines";
      const one = cases.find((found) => found.source === source && found.question.name === name);
      if (one === undefined) throw new Error("never asked");
      const proxy = sources.proxies[source];
      proxy.plan(() => ({ kind: "reset", chance: () => 0 }));
      const program = await one.program();
      const ask = async () => (await settle(program.ask(one.question))).result;
      try {
        let asked = -1;
        for (let n = 0; n < 50 && proxy.seen.asked > asked; n++) {
          asked = proxy.seen.asked;
          expect(sentenceOf(await ask())).toBe(failures.unreachable);
          // What is remembered of a failure for a moment is not the breaker's.
          await vi.advanceTimersByTimeAsync(1_001);
        }
        expect(asked).toBeGreaterThanOrEqual(10);
        expect(asked).toBeLessThan(20);
        proxy.plan(() => undefined);
        const rested = performance.now();
        let reply = await ask();
        while (reply.status !== 200 && performance.now() - rested < 6_000) {
          expect(proxy.seen.asked).toBe(0);
          await vi.advanceTimersByTimeAsync(100);
          reply = await ask();
        }
        expect(reply).toMatchObject({ status: 200, body: one.reply.body });
      } finally {
        await close(program);
      }
    },
  );
});

test("nothing is left open", async () => {
  vi.useRealTimers();
  const open = () => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;
  const wired = () => Object.values(sources.proxies).reduce((sum, { connections }) => sum + connections(), 0);
  await expect.poll(wired).toBe(0);
  // Those between the proxies and what stands behind them are kept.
  const { proxies } = sources;
  await Promise.all(Object.values(proxies).map((proxy) => proxy.close()));
  await expect.poll(open).toBeLessThanOrEqual(before);
});
