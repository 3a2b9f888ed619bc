// Hours in front of real servers: mixed traffic at 70 % of what the program can do, and for ten seconds of each minute
// sources whose answers are spoiled at random. Memory and descriptors must not grow, and no request may fail but in the
// wake of a fault.
//   npm run soak -- --minutes 60 --servers es8,prom2 [--record]     exit code 1 when a bound is broken
import { appendFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { hashToken } from "../src/auth.ts";
import { prometheusNames, startPrometheus } from "../test/servers/prometheus.ts";
import { serverNames, start as startServer } from "../test/servers/servers.ts";
import { type FaultProxy, faultKinds, openProxy } from "../test/support/proxy.ts";
import { type Call, createAgent, send } from "./client.ts";
import { type Figure, met, printTable, quantile } from "./figures.ts";
import { freePort, memoryMegabytes, program, start } from "./subject.ts";

const token = "soak";
/** Part of the peak that is asked for, and how long the peak is looked for. */
const load = 0.7;
const calibration = 15;
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
const wanted = values.servers.split(",");
const elasticName = serverNames.find((name) => wanted.includes(name));
const prometheusName = prometheusNames.find((name) => wanted.includes(name));
if (!(minutes >= 2) || elasticName === undefined || prometheusName === undefined || wanted.length !== 2) {
  console.error("usage: soak --minutes N (from 2 up) --servers ELASTIC,PROMETHEUS, such as es8,prom2");
  process.exit(2);
}

// ---- What the sources hold --------------------------------------------------------------------------------------

const documents = 20_000;
const hosts = 20;
const began = Date.now();
const from = began - 60 * minute;

async function seed(url: string): Promise<void> {
  const post = async (method: string, path: string, body: string) => {
    const headers = { "content-type": path.includes("_bulk") ? "application/x-ndjson" : "application/json" };
    const answer = await fetch(`${url}${path}`, { method, headers, body });
    const text = await answer.text();
    if (!answer.ok || text.includes('"errors":true')) throw new Error(`${path}: ${text.slice(0, 500)}`);
  };
  const keyword = { type: "keyword" };
  const properties = {
    "@timestamp": { type: "date" },
    message: { type: "text" },
    log: { properties: { level: keyword } },
    host: { properties: { name: keyword } },
  };
  const settings = { number_of_replicas: 0 };
  await post("PUT", "/soak-app", JSON.stringify({ settings, mappings: { properties } }));
  for (let at = 0; at < documents; at += 5_000) {
    const lines = Array.from({ length: 5_000 }, (_, offset) => {
      const n = at + offset;
      const document = {
        "@timestamp": new Date(from + (n * 60 * minute) / documents).toISOString(),
        ...{ message: `request ${n} was answered`, log: { level: n % 10 === 0 ? "error" : "info" } },
        host: { name: `web-${n % hosts}` },
      };
      return `{"create":{}}\n${JSON.stringify(document)}\n`;
    });
    await post("POST", "/soak-app/_bulk?refresh=true", lines.join(""));
  }
}

function openMetrics(): string {
  const lines = ["# TYPE soak_load gauge"];
  for (let host = 0; host < hosts; host += 1) {
    for (let time = from; time <= began; time += 15 * second)
      lines.push(`soak_load{host="web-${host}"} ${(time / second + host) % 97} ${time / second}`);
  }
  return `${lines.join("\n")}\n# EOF\n`;
}

// ---- What is asked ----------------------------------------------------------------------------------------------

function calls(base: string): readonly Call[] {
  const range = { from: new Date(from).toISOString(), to: new Date(began).toISOString() };
  const post = (path: string, body: object): Call => ({
    ...{ url: `${base}${path}`, method: "POST", token, body: JSON.stringify(body) },
  });
  const page = (query: string, per_page: number) =>
    post("/api/v2/logs/lines", {
      ...{ site_id: "shop", source_ids: ["app"], query, use_expressions: true, ...range },
      pagination: { per_page, order: "DESC", cursor: { time: null } },
    });
  const select = [{ name: "soak_load", field: "gauge", tags: { host: "*" } }];
  return [
    page("", 100),
    page("", 100),
    page("severity=error", 50),
    page('host.name="web-7"', 200),
    page("", 5_000),
    post("/api/v2/metrics/timeseries", { site_id: "shop", ...range, resolution: "MINUTELY", select }),
    { url: `${base}/api/v2/metrics/names/shop`, method: "GET", token },
    post("/graphql", { query: `{ auth { message } }` }),
  ];
}

/** A client that follows lines, and comes back when it is sent away. */
function follow(call: Call, signal: AbortSignal): void {
  if (signal.aborted) return;
  const again = () => void sleep(second, undefined, { ref: false }).then(() => follow(call, signal));
  const headers = { authorization: `Bearer ${token}`, accept: "text/event-stream" };
  const asked = request(call.url, { method: "POST", headers, agent: false, signal });
  asked.on("response", (response) =>
    response
      .resume()
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
  return { at, megabytes: memoryMegabytes(pid, "VmRSS"), descriptors };
}

/** The least of each whole minute: what is left when garbage and connections of the moment are gone. */
function troughs(samples: readonly Sample[], value: (sample: Sample) => number): readonly number[] {
  const byMinute = Map.groupBy(samples, ({ at }) => Math.floor(at / minute));
  return [...byMinute.values()].map((some) => Math.min(...some.map(value)));
}

/** Least squares, in units per minute. */
function slope(values: readonly number[]): number {
  const mean = (of: readonly number[]) => of.reduce((sum, value) => sum + value, 0) / of.length;
  const [middle, level] = [(values.length - 1) / 2, mean(values)];
  const over = values.reduce((sum, value, at) => sum + (at - middle) * (value - level), 0);
  return over / values.reduce((sum, _, at) => sum + (at - middle) ** 2, 0);
}

// ---- The run ----------------------------------------------------------------------------------------------------

const folder = mkdtempSync(join(tmpdir(), "readout-soak-"));
const ends: (() => Promise<unknown> | undefined)[] = [];
const interrupted = new AbortController();
process.once("SIGINT", () => interrupted.abort());

async function run(elastic: typeof elasticName & string, prometheus: typeof prometheusName & string) {
  const search = await startServer(elastic);
  ends.push(() => search.stop());
  const series = await startPrometheus(prometheus, openMetrics());
  ends.push(() => series.stop());
  await seed(search.url);
  const proxies = await Promise.all([search, series].map(({ url }) => openProxy(url)));
  for (const proxy of proxies) ends.push(() => proxy.close());
  const port = await freePort();
  const file = join(folder, "readout.yaml");
  const many = "rate: 1000000, requests: 256, token_requests: 256, streams: 128, token_streams: 128";
  writeFileSync(
    file,
    `listen: 127.0.0.1:${port}
limits: { ${many}, deadline: 12s }
tokens: [{ user: soak, sha256: "${hashToken(token)}", sites: "*" }]
backends:
  logs: { kind: elastic, url: "${proxies[0]?.url}", timeout: 5s }
  metrics: { kind: prometheus, url: "${proxies[1]?.url}", timeout: 5s }
sites:
  shop:
    logs: { backend: logs, sources: { app: { index: soak-app, profile: ecs } } }
    metrics: { backend: metrics }
`,
  );
  const subject = start({
    arguments: [...program, "serve", "--config", file],
    core: 1,
    log: join(folder, "log"),
  });
  ends.push(() => subject.stop());
  let ended = false;
  void subject.ended.then(() => {
    ended = true;
  });
  const base = `http://127.0.0.1:${port}`;
  const agent = createAgent();
  const mix = calls(base);
  const pick = (n: number): Call => mix[n % mix.length] ?? mix[0] ?? { url: base, method: "GET" };
  await answers(base);
  for (const call of mix) await send(agent, call);
  const tails = new AbortController();
  for (let n = 0; n < 8; n += 1) follow(pick(0), tails.signal);

  const peak = await findPeak((n) => send(agent, pick(n)));
  const { failed, asked, times, samples, injected } = await soak(
    (n) => send(agent, pick(n)),
    peak * load,
    proxies,
    () => (ended ? undefined : subject.pid),
  );
  tails.abort();
  agent.destroy();

  const warm = Math.min(10, Math.floor(minutes / 3)) * minute;
  const judged = samples.filter(({ at }) => at >= warm);
  const memory = troughs(judged, ({ megabytes }) => megabytes);
  const open = troughs(judged, ({ descriptors }) => descriptors);
  const long = minutes - warm / minute >= judgedMinutes;
  const note = long ? undefined : "too short to judge";
  const bound = (floor: number) => (long ? floor : undefined);
  const figures: Figure[] = [
    { name: "duration", value: minutes, unit: "min" },
    { name: "peak", value: peak, unit: "requests/s" },
    { name: "asked", value: asked, unit: "requests", note: `${Math.round(peak * load)} a second` },
    { name: "median", value: quantile(times, 0.5), unit: "ms" },
    { name: "p99", value: quantile(times, 0.99), unit: "ms" },
    { name: "answers spoiled", value: injected, unit: "" },
    { name: "failed in their wake", value: failed.injected, unit: "requests" },
    { name: "failed otherwise", value: failed.others.length, unit: "requests", floor: 0 },
    { name: "RSS", value: samples.at(-1)?.megabytes ?? Number.NaN, unit: "MB" },
    {
      ...{ name: "RSS growth", value: slope(memory) * 10, unit: "MB/10 min", note },
      floor: bound(floors.growthMegabytes),
    },
    {
      ...{ name: "descriptors' growth", value: (open.at(-1) ?? 0) - (open[0] ?? 0), unit: "", note },
      floor: bound(floors.descriptors),
    },
  ];
  return { figures, others: failed.others, ended };
}

async function answers(base: string): Promise<void> {
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

/** Requests a second of eight clients, each of whom asks again at once. */
async function findPeak(ask: (n: number) => Promise<unknown>): Promise<number> {
  let done = 0;
  let asked = 0;
  const end = performance.now() + calibration * second;
  const client = async () => {
    while (performance.now() < end) {
      await ask(asked++);
      done += 1;
    }
  };
  await Promise.all(Array.from({ length: 8 }, client));
  return done / calibration;
}

async function soak(
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
      if (known && inWake(begin, elapsed())) failed.injected += 1;
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
function inWake(begin: number, end: number): boolean {
  const minuteOf = Math.floor(end / minute) * minute;
  return end >= minuteOf + faulty.from && begin <= minuteOf + faulty.to + faulty.wake;
}

try {
  const { figures, others, ended } = await run(elasticName, prometheusName);
  console.log(printTable(figures));
  for (const failure of others.slice(0, 20)) console.log(`  ${failure}`);
  if (ended) console.log("the program has ended");
  if (values.record) {
    mkdirSync(join(import.meta.dirname, "results"), { recursive: true });
    const line = { at: new Date(began).toISOString(), servers: wanted, node: process.version, figures };
    appendFileSync(join(import.meta.dirname, "results", "soak.jsonl"), `${JSON.stringify(line)}\n`);
  }
  process.exitCode = ended || !figures.every(met) ? 1 : 0;
} finally {
  for (const end of ends.reverse()) await end();
  rmSync(folder, { recursive: true });
}
