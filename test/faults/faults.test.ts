// Every kind of fault of a source, at every question that reads one. A request ends by its deadline, with the right status
// and sentence and no text of the source. A response under way is cut visibly, and a complete one equals that without a
// fault. `npm run test:faults` draws place and time of a fault from ten seeds, or from SEED=7; `npm run test:program`
// combines each kind of fault with one in eighteen questions. The clock is fake and advances only while nothing happens on
// the wire.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { type Failure, failures } from "#src/core/errors.ts";
import { createRandom } from "../conformance/trace-fixture.ts";
import { type FaultKind, faultKinds, secret } from "../support/fault-proxy.ts";
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
} from "./harness.ts";

const { SEED, SEEDS } = process.env;
const seeds = Array.from({ length: Number(SEEDS ?? 1) }, (_, n) => Number(SEED ?? 1) + n);
const hermetic = SEED === undefined && SEEDS === undefined;
/** A kind of fault is combined with one in so many questions; with other forms of the same question less often. */
const chooseShare = ({ accept, form }: Question): number =>
  !hermetic ? 1 : accept === undefined && form === undefined ? 18 : 36;

/** What a request ends with that was still reading at its deadline. */
const lateReading =
  /^The request took longer than 30s; [\d,]+ (?:of about [\d,]+ )?(?:documents|samples) were read; /;

/** The failures that a kind of fault may lead to. A request to a slow source may last until the deadline. */
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

/** A question to one source, and the response without a fault. */
interface Case {
  readonly question: Question;
  readonly source: SourceName;
  readonly program: () => Promise<Program>;
  readonly reply: Reply;
  /** The number of requests to the source. */
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

/** Runs before the clock is fake, so that what is loaded for good uses the real one. */
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
  // Time for each question once, on a busy machine.
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

describe("every question", () => {
  test.each(names.map((name, n) => [name, n] as const))("answers without a fault: %s", (name, n) => {
    const { question, source, reply, asked } = cases[n] ?? {};
    expect(`${source}: ${question?.name}`).toBe(name);
    expect(reply).toMatchObject({ status: 200, complete: true });
    expect(reply?.body.length).toBeGreaterThan(4);
    expect(reply?.body).not.toContain('"errors":[{"message"');
    expect(asked).toBeGreaterThan(0);
  });

  test("counts at the source equal what is read when it refuses aggregations", async () => {
    vi.useRealTimers();
    const reading = await openSources({ aggregates: false });
    const asked = questions.filter(({ name }) => name in countedQuestions);
    for (const question of asked) {
      const { reply } = cases.find((one) => one.question === question) ?? {};
      const program = await startProgram(reading, "Elasticsearch", 64 * 1_048_576);
      const read = JSON.parse((await program.ask(question)).body);
      const counted = JSON.parse(reply?.body ?? "");
      // Percentiles from aggregations come from duration buckets, and are within 2 %.
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
    // All aggregations were used: groups, groups with durations, N+1 parents, failed ids, and a split point.
    for (const product of ["Elasticsearch", "OpenSearch"] as const) {
      const asked = sources.counts(product);
      for (const name of ["groups", "single0", "single1", "statements0", "heap0", "ids", "milestone"])
        expect(asked).toContain(name);
    }
  });
});

const waitTurns = async (count: number): Promise<void> => {
  for (let n = 0; n < count; n++) await new Promise((resolve) => setImmediate(resolve));
};

/** Decompression is not visible on the wire and waits for no timer. */
const clockless: readonly FaultKind[] = ["bad gzip", "gzip bomb"];

/** Advances the clock, if it `moves`, to the next timer whenever nothing else happens. Returns how far it went. */
async function settle<T>(
  promise: Promise<T>,
  moves: () => boolean = () => true,
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
    await waitTurns(40);
    const idle = !over && activity() === before;
    if (!idle || !moves()) continue;
    // What waits by the real clock sees the other one pass too: a failure is remembered for a while.
    if (vi.getTimerCount() === 0) vi.advanceTimersByTime(10);
    else vi.advanceTimersToNextTimer();
  }
  return { result: await settled, elapsed: performance.now() - started };
}

/** The sentence of a failure, by REST or GraphQL or in an explanation; undefined for a successful response. */
function readSentence({ status, body }: Reply): string | undefined {
  const value = JSON.parse(body);
  const error = value.errors?.[0];
  if (error !== undefined) {
    expect(error.extensions.status).toBe(500);
    expect(Object.values(value.data ?? {}).every((one) => one === null)).toBe(true);
    return error.message;
  }
  if (status === 200) return value.answer?.failed?.error;
  expect(status).toBe(500);
  expect(Object.keys(value)).toEqual(["error"]);
  return value.error;
}

async function closeProgram(program: Program): Promise<void> {
  await settle(program.close());
  for (const { connections } of Object.values(sources.proxies)) {
    for (let n = 0; n < 100 && connections() > 0; n++) await waitTurns(10);
    expect(connections()).toBe(0);
  }
}

/** The part of a response that is equal each time: an explanation also lists requests and durations. */
function toComparable({ form }: Question, { status, body }: Reply): string {
  if (form !== "explanation" || status !== 200) return body;
  const { requests: _, more_requests, time, ...same } = JSON.parse(body);
  return JSON.stringify(same);
}

/** The events of a tail, with their data. */
function readEvents(body: string): readonly (readonly [event: string, data: string])[] {
  return [...body.matchAll(/^event: (\w+)$[\s\S]*?^data: (.*)$/gm)].map(([, event = "", data = ""]) => [
    event,
    data,
  ]);
}
const listOfKind = (events: ReturnType<typeof readEvents>, kind: string) =>
  events.filter(([event]) => event === kind).map(([, data]) => data);

/** A tail reports the failure of its source and resumes. It sends each line once and in order, and all of them if it ends. */
function checkTail(reply: Reply, expected: Reply, sentences: readonly string[], context: string): void {
  const events = readEvents(reply.body);
  const lines = listOfKind(events, "line");
  const expectedLines = listOfKind(readEvents(expected.body), "line");
  for (const data of listOfKind(events, "retry"))
    expect(sentences, context).toContain(JSON.parse(data).error);
  const states = events.map(([event]) => event).filter((event) => event !== "line");
  // Nothing is sent between a failure and its end.
  expect(states.join(" "), context).toMatch(/^((retry )+resumed )*(end|retry)$/);
  for (const [n, [event]] of events.entries()) {
    if (event === "line") expect(events[n - 1]?.[0], context).not.toBe("retry");
  }
  if (states.at(-1) === "retry") {
    expect(expectedLines.slice(0, lines.length), context).toEqual(lines);
    return;
  }
  expect(listOfKind(events, "end"), context).toEqual(['{"reason":"complete"}']);
  expect(lines, context).toEqual(expectedLines);
}

/** Asks one question while the source fails at one request, or from it on. */
async function runTrial(kind: FaultKind, { question, source, ...of }: Case, seed: number): Promise<void> {
  const { reply: expected, asked } = of;
  const random = createRandom(seed * 7_919 + faultKinds.indexOf(kind) * 101 + questions.indexOf(question));
  const from = Math.floor(random() * asked);
  const lasting = random() < 0.5;
  const proxy = sources.proxies[source];
  proxy.plan((n) => ((lasting ? n >= from : n === from) ? { kind, chance: random } : undefined));
  const program = await of.program();
  try {
    // A follower of a source that keeps failing leaves at the first `retry`.
    let waits = false;
    const isEnough = (text: string) => {
      waits ||= question.form === "tail" && text.includes("event: retry");
      return waits && lasting;
    };
    const moves = () => waits || !clockless.includes(kind);
    const { result: reply, elapsed } = await settle(program.ask(question, isEnough), moves);
    const context = `${kind} of ${source} at ${question.name}, seed ${seed}: ${lasting ? "from" : "at"} request ${from} of ${asked}`;
    expect(reply.body, context).not.toContain(secret);
    const sentences = outcomes[kind].map((failure) => failures[failure]);
    if (question.form === "tail" && reply.status === 200) {
      checkTail(reply, expected, sentences, context);
      return;
    }
    // The deadline of an export holds for each response of its source.
    const steps = /ndjson|csv/.test(question.accept ?? "") ? Math.max(1, proxy.seen.asked) : 1;
    expect(elapsed, context).toBeLessThanOrEqual(steps * defaults.limits.deadline);
    if (!reply.complete) {
      // What was sent before the cut is a true prefix of the response.
      expect(reply.status, context).toBe(200);
      expect(expected.body.startsWith(reply.body) && reply.body.length < expected.body.length, context).toBe(
        true,
      );
      expect(kind === "latency" || kind === "bandwidth", context).toBe(false);
      return;
    }
    const same = toComparable(question, expected);
    const sentence = toComparable(question, reply) === same ? undefined : readSentence(reply);
    if (sentence === undefined) {
      expect(toComparable(question, reply), context).toBe(same);
      return;
    }
    expect(proxy.seen.struck + (proxy.seen.asked === 0 ? 1 : 0), context).toBeGreaterThan(0);
    const isSlow = kind === "latency" || kind === "bandwidth";
    // A source that is slow with each of many answers is not late with any.
    if (!isSlow || !lateReading.test(sentence))
      expect(sentences, `${context}\n${program.logged()}`).toContain(sentence);
    if (isSlow) expect(elapsed, context).toBe(defaults.limits.deadline);
    if (sentence === failures.overloaded && reply.status === 500 && question.path !== "/graphql") {
      const seconds = kind === "429 with Retry-After" ? "7" : "1";
      expect(reply.headers["retry-after"], context).toBe(seconds);
    }
  } finally {
    await closeProgram(program);
    proxy.plan(() => undefined);
    // The pause before a retry, the clock of a cache, and the second after which tails are read again.
    await vi.advanceTimersByTimeAsync(1_000);
    // Decompression runs beside the event loop and takes real time, and the cache may then read the clock.
    for (let n = 0; n < 1_000 && vi.getTimerCount() > 0; n++) {
      await waitTurns(200);
      await vi.advanceTimersByTimeAsync(1);
    }
    expect(vi.getTimerCount()).toBe(0);
    expect(uncaught.splice(0)).toEqual([]);
  }
}

describe.each(seeds)("every question under faults, seed %i", (seed) => {
  test.each(faultKinds)("ends in time with the right answer or failure: %s", async (kind) => {
    const failed: unknown[] = [];
    for (const one of cases) {
      // The products differ only in their clients, so a seed uses one of them for each question.
      const turn = questions.indexOf(one.question) + seed;
      if (one.source === (turn % 2 === 0 ? "OpenSearch" : "Elasticsearch")) continue;
      if ((questions.indexOf(one.question) + faultKinds.indexOf(kind)) % chooseShare(one.question) !== 0)
        continue;
      await runTrial(kind, one, seed).catch((error: unknown) => failed.push(error));
    }
    if (failed.length > 0) throw new AggregateError(failed, failed.map(String).join("\n"));
  });
});

describe("response under way when its source fails", () => {
  const askWhileFailing = async (
    name: string,
    source: SourceName,
    broken: (asked: number) => (n: number) => boolean,
  ) => {
    const one = cases.find((found) => found.source === source && found.question.name === name);
    if (one === undefined) throw new Error("never asked");
    const strikes = broken(one.asked);
    sources.proxies[source].plan((n) => (strikes(n) ? { kind: "reset", chance: () => 0 } : undefined));
    const program = await one.program();
    try {
      return { reply: (await settle(program.ask(one.question))).result, whole: one.reply };
    } finally {
      await closeProgram(program);
      await vi.advanceTimersByTimeAsync(1_000);
    }
  };

  test.each(["logs/lines, as NDJSON", "logs/lines, as CSV"])(
    "cuts off the rest visibly: %s",
    async (name) => {
      const { reply, whole } = await askWhileFailing(name, "Elasticsearch", (asked) => (n) => n >= asked - 3);
      expect(reply).toMatchObject({ status: 200, complete: false });
      expect(reply.body.length).toBeGreaterThan(0);
      expect(whole.body.startsWith(reply.body)).toBe(true);
    },
  );

  test("reports retries in a tail and resumes when the source answers again", async () => {
    const name = "logs/lines, followed";
    // A broken connection is retried once, invisibly, and a search that was sent ahead is sent again when its turn comes.
    const { reply, whole } = await askWhileFailing(
      name,
      "Elasticsearch",
      (asked) => (n) => n >= asked - 3 && n <= asked + 2,
    );
    expect(reply).toMatchObject({ status: 200, complete: true });
    const states = readEvents(reply.body).map(([event]) => event);
    // A search that was sent ahead may have met the failures that are left, or the next readings do.
    const others = states.filter((event) => event !== "line");
    expect(others.filter((event, at) => event !== others[at - 1])).toEqual(["retry", "resumed", "end"]);
    expect(states[0]).toBe("line");
    checkTail(reply, whole, [failures.unreachable], name);
  });
});

describe("source that recovers", () => {
  test.each(["Elasticsearch", "OpenSearch", "Prometheus"] as const)(
    "is left alone while its circuit breaker is open and asked by the first request after: %s",
    async (source) => {
      // Neither question remembers a failure for longer than a moment of the fake clock.
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
          expect(readSentence(await ask())).toBe(failures.unreachable);
          // Pass the moment for which caches repeat a failure.
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
        await closeProgram(program);
      }
    },
  );
});

describe("program after all faults", () => {
  test("leaves no socket, timer or unhandled error", async () => {
    vi.useRealTimers();
    const open = () => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;
    const wired = () =>
      Object.values(sources.proxies).reduce((sum, { connections }) => sum + connections(), 0);
    await expect.poll(wired).toBe(0);
    // Connections between the proxies and the servers behind them stay open.
    const { proxies } = sources;
    await Promise.all(Object.values(proxies).map((proxy) => proxy.close()));
    await expect.poll(open).toBeLessThanOrEqual(before);
  });
});
