// Hours in front of real servers: mixed traffic at 70 % of what the program can do, and for ten seconds of each minute
// sources whose answers are spoiled at random. Memory and descriptors must not grow, no request may fail but in the
// wake of a fault, and each error report that was taken in is in its source at the end, once.
//   npm run soak -- --minutes 60 --servers es8,prom2 [--record]     exit code 1 when a bound is broken
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { hashToken } from "../../src/access/auth.ts";
import { prometheusNames, startPrometheus } from "../../test/servers/prometheus.ts";
import { serverNames, start as startServer } from "../../test/servers/servers.ts";
import { type FaultProxy, faultKinds, openProxy } from "../../test/support/fault-proxy.ts";
import { findFreePort } from "../../test/support/free-port.ts";
import { type Call, createAgent, send } from "../harness/http-client.ts";
import { program, readMemoryMegabytes, start } from "../harness/process.ts";
import { calculateQuantile, type Figure, isFloorMet, printTable } from "../harness/report.ts";
import { createTrafficMix, token } from "./traffic-mix.ts";

/** Part of the peak that is asked for. */
const load = 0.7;
/** Times that each question is asked before: a source that has just started is slow. */
const warming = 5;
const followers = 8;
const second = 1_000;
const minute = 60 * second;
/** From and to of the faults within each minute, and how long after them requests may still fail: the deadline of what
 *  was asked before, and then the rest of a breaker. */
const faulty = { from: 20 * second, to: 30 * second, wake: 18 * second };
/** Of a source's requests in that time. */
const spoiled = 0.05;
/** Below this a slope is noise. */
const judgedMinutes = 10;
const floors = { growthMegabytes: 1, descriptors: 4 };

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "60" },
    servers: { type: "string", default: "es8,prom2" },
    record: { type: "boolean", default: false },
  },
});
const minutes = Number(values.minutes);
/**
 * How long the peak is looked for. That is the warm-up too: memory goes to its height under the most that it will meet,
 * and what still grows at less load grows for another reason.
 */
const calibration = Math.max(15 * second, Math.min(10, minutes / 6) * minute);
const wanted = values.servers.split(",");
const elasticName = serverNames.find((name) => wanted.includes(name));
const prometheusName = prometheusNames.find((name) => wanted.includes(name));
if (!(minutes >= 1) || elasticName === undefined || prometheusName === undefined || wanted.length !== 2) {
  console.error("usage: soak --minutes N (from 1 up) --servers ELASTIC,PROMETHEUS, such as es8,prom2");
  process.exit(2);
}

/** A client that follows lines, and comes back when it is sent away. */
function follow(call: Call, onText: (text: string) => unknown, signal: AbortSignal): void {
  if (signal.aborted) return;
  const again = () => void sleep(second, undefined, { ref: false }).then(() => follow(call, onText, signal));
  const headers = { authorization: `Bearer ${call.token}`, accept: call.accept };
  const asked = request(call.url, { method: "POST", headers, agent: false, signal });
  asked.on("response", (response) =>
    response
      .setEncoding("utf8")
      .on("data", onText)
      .on("error", () => {})
      .on("close", again),
  );
  asked.on("error", () => asked.destroyed && again()).end(call.body);
}

// ---- What is seen -----------------------------------------------------------------------------------------------

interface Sample {
  readonly at: number;
  readonly megabytes: number;
  readonly descriptors: number;
}
function look(pid: number, at: number): Sample {
  const descriptors = readdirSync(`/proc/${pid}/fd`).length;
  return { at, megabytes: readMemoryMegabytes(pid, "VmRSS"), descriptors };
}

/** The least of each whole minute: what is left when garbage and connections of the moment are gone. */
function findTroughs(samples: readonly Sample[], value: (sample: Sample) => number): readonly number[] {
  const byMinute = Map.groupBy(samples, ({ at }) => Math.floor(at / minute));
  return [...byMinute.values()].map((some) => Math.min(...some.map(value)));
}

/** Least squares, in units per minute. */
function calculateSlope(values: readonly number[]): number {
  const mean = (of: readonly number[]) => of.reduce((sum, value) => sum + value, 0) / of.length;
  const [middle, level] = [(values.length - 1) / 2, mean(values)];
  const over = values.reduce((sum, value, at) => sum + (at - middle) * (value - level), 0);
  return over / values.reduce((sum, _, at) => sum + (at - middle) ** 2, 0);
}

// ---- The run ----------------------------------------------------------------------------------------------------

const began = Date.now();
const mix = createTrafficMix(began);
const folder = mkdtempSync(join(tmpdir(), "readout-soak-"));
const ends: (() => Promise<unknown> | undefined)[] = [];
const interrupted = new AbortController();
process.once("SIGINT", () => interrupted.abort());

async function run(elastic: typeof elasticName & string, prometheus: typeof prometheusName & string) {
  const search = await startServer(elastic);
  ends.push(() => search.stop());
  const series = await startPrometheus(prometheus, mix.series);
  ends.push(() => series.stop());
  await mix.fill(search.url);
  const proxies = await Promise.all([search, series].map(({ url }) => openProxy(url)));
  for (const proxy of proxies) ends.push(() => proxy.close());
  const port = await findFreePort();
  const file = join(folder, "readout.yaml");
  const many = "rate: 1000000, requests: 256, token_requests: 256, streams: 128, token_streams: 128";
  writeFileSync(
    file,
    `listen: 127.0.0.1:${port}
limits: { ${many}, deadline: 12s }
intake: { spool: spool.db, key_rate: 1000000, address_rate: 1000000 }
tokens: [{ user: soak, sha256: "${hashToken(token)}", sites: "*" }]
backends:
  logs: { kind: elastic, url: "${proxies[0]?.url}", timeout: 10s }
  metrics: { kind: prometheus, url: "${proxies[1]?.url}", timeout: 10s }
sites:
  shop:${mix.site}
`,
  );
  const subject = start({
    arguments: [...program, "serve", "--config", file],
    log: join(folder, "log"),
  });
  ends.push(() => subject.stop());
  let ended = false;
  void subject.ended.then(() => {
    ended = true;
  });
  const base = `http://127.0.0.1:${port}`;
  const agent = createAgent();
  const calls = mix.calls(base);
  let reported = 0;
  // Two of each round are reports.
  const ask = async (n: number) => {
    const call = calls[n % (calls.length + 2)];
    if (call !== undefined) return send(agent, call);
    const sent = await send(agent, mix.report(base, n));
    reported += 1;
    return sent;
  };
  await awaitAnswer(base);
  for (let round = 0; round < warming; round += 1) {
    for (const call of calls) await send(agent, call);
  }
  const tails = new AbortController();
  const followed = new Set<number>();
  for (let n = 0; n < followers; n += 1) {
    const onText = (text: string) => text.includes("event: line\n") && followed.add(n);
    follow(mix.tail(base), onText, tails.signal);
  }
  const writing = setInterval(() => void mix.writeLine(search.url), second);
  ends.push(async () => clearInterval(writing));

  const peak = await findPeak(ask);
  const { failed, asked, times, samples, injected } = await runSoak(ask, peak * load, proxies, () =>
    ended ? undefined : subject.pid,
  );
  tails.abort();
  const delivered = ended ? 0 : await awaitSettled(() => mix.delivered(search.url), reported);
  agent.destroy();

  const memory = findTroughs(samples, ({ megabytes }) => megabytes);
  const open = findTroughs(samples, ({ descriptors }) => descriptors);
  const long = minutes >= judgedMinutes;
  const note = long ? undefined : "too short to judge";
  const bound = (floor: number) => (long ? floor : undefined);
  const figures: Figure[] = [
    { name: "duration", value: minutes, unit: "min" },
    { name: "peak", value: peak, unit: "requests/s" },
    { name: "asked", value: asked, unit: "requests", note: `${Math.round(peak * load)} a second` },
    { name: "median", value: calculateQuantile(times, 0.5), unit: "ms" },
    { name: "p99", value: calculateQuantile(times, 0.99), unit: "ms" },
    { name: "answers spoiled", value: injected, unit: "" },
    { name: "failed in their wake", value: failed.injected, unit: "requests" },
    { name: "failed otherwise", value: failed.others.length, unit: "requests", floor: 0 },
    { name: "followers without a line", value: followers - followed.size, unit: "", floor: 0 },
    { name: "reports taken in", value: reported, unit: "" },
    { name: "of them not delivered once", value: Math.abs(reported - delivered), unit: "", floor: 0 },
    { name: "RSS", value: samples.at(-1)?.megabytes ?? Number.NaN, unit: "MB" },
    {
      name: "RSS growth",
      value: calculateSlope(memory) * 10,
      unit: "MB/10 min",
      note,
      floor: bound(floors.growthMegabytes),
    },
    {
      name: "descriptors' growth",
      value: (open.at(-1) ?? 0) - (open[0] ?? 0),
      unit: "",
      note,
      floor: bound(floors.descriptors),
    },
  ];
  return { figures, others: failed.others, ended };
}

async function awaitAnswer(base: string): Promise<void> {
  for (let tries = 0; tries < 200; tries += 1) {
    const up = await fetch(`${base}/livez`).then(
      ({ ok }) => ok,
      () => false,
    );
    if (up) return;
    await sleep(100);
  }
  throw new Error("the program does not answer");
}

/** What `count` says once it is `wanted`, or after half a minute. */
async function awaitSettled(count: () => Promise<number>, wanted: number): Promise<number> {
  let counted = await count();
  for (let tries = 0; tries < 60 && counted !== wanted; tries += 1) {
    await sleep(second / 2);
    counted = await count();
  }
  return counted;
}

/** Requests a second of eight clients, each of whom asks again at once. */
async function findPeak(ask: (n: number) => Promise<unknown>): Promise<number> {
  let done = 0;
  let asked = 0;
  const end = performance.now() + calibration;
  const client = async () => {
    while (performance.now() < end) {
      // So much at once may be refused.
      await ask(asked++).then(
        () => (done += 1),
        () => undefined,
      );
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  return (done * second) / calibration;
}

async function runSoak(
  ask: (n: number) => Promise<{ readonly millis: number }>,
  rate: number,
  proxies: readonly FaultProxy[],
  pid: () => number | undefined,
) {
  const failed = { injected: 0, others: [] as string[] };
  /** The last hundred thousand. */
  const times: number[] = [];
  const samples: Sample[] = [];
  const pending = new Set<Promise<void>>();
  const started = performance.now();
  const elapsed = () => performance.now() - started;
  let asked = 0;
  let injected = 0;
  let spoiling = false;
  const one = async (n: number) => {
    const begin = elapsed();
    try {
      const { millis } = await ask(n);
      times[n % 100_000] = millis;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      // What a fault may do to a request: our 500, or an answer that visibly breaks off.
      const known = /: 500 \{"error":|was cut|aborted|ECONNRESET|socket hang up/.test(message);
      if (known && isInWake(begin, elapsed())) failed.injected += 1;
      else failed.others.push(`${(begin / second).toFixed(1)} s: ${message}`);
    }
  };
  while (elapsed() < minutes * minute && !interrupted.signal.aborted) {
    const now = elapsed();
    const running = pid();
    if (running === undefined) break;
    const within = now % minute;
    const spoil = within >= faulty.from && within < faulty.to;
    if (spoil !== spoiling) {
      spoiling = spoil;
      for (const proxy of proxies) {
        injected += proxy.seen.struck;
        proxy.plan(() => (spoil && Math.random() < spoiled ? drawFault() : undefined));
      }
    }
    // Whoever is late asks no faster: a backlog would be another load.
    const due = Math.min((now * rate) / second, asked + rate / 10 + 1);
    for (; asked < due && pending.size < 200; asked += 1) {
      const sent = one(asked).finally(() => pending.delete(sent));
      pending.add(sent);
    }
    if (now >= samples.length * second) samples.push(look(running, now));
    await sleep(2);
  }
  for (const proxy of proxies) proxy.plan(() => undefined);
  await Promise.all(pending);
  return { failed, asked, times: times.filter((time) => time !== undefined), samples, injected };
}

function drawFault() {
  const kind = faultKinds[Math.floor(Math.random() * faultKinds.length)] ?? "cut";
  return { kind, chance: Math.random };
}

/** Whether a request between these times may have met a fault, or a breaker that rests after one. */
function isInWake(begin: number, end: number): boolean {
  return [begin, end].some((time) => {
    const minuteOf = Math.floor(time / minute) * minute;
    return end >= minuteOf + faulty.from && begin <= minuteOf + faulty.to + faulty.wake;
  });
}

try {
  const { figures, others, ended } = await run(elasticName, prometheusName);
  console.log(printTable(figures));
  for (const failure of others.slice(0, 20)) console.log(`  ${failure}`);
  if (ended) console.log("the program has ended");
  if (values.record) {
    mkdirSync(join(import.meta.dirname, "..", "results"), { recursive: true });
    const line = { at: new Date(began).toISOString(), servers: wanted, node: process.version, figures };
    appendFileSync(join(import.meta.dirname, "..", "results", "soak.jsonl"), `${JSON.stringify(line)}\n`);
  }
  process.exitCode = ended || !figures.every(isFloorMet) ? 1 : 0;
} finally {
  for (const end of ends.reverse()) await end();
  rmSync(folder, { recursive: true });
}
