// `npm run bench`: what Readout costs beside a hand-written adapter and beside the source itself. Machines differ
// and drift, so what is compared is measured in turns, round after round, and what lasts are the ratios within a
// round. The server under test has core 1 to itself; the clients and the source share core 0.
//
//   --quick              few rounds, to see that it runs; results.json is left alone
//   --only a,b           of: compare, load, metrics, graphql, tracing, scale, streams, start, parse, intake, isolation;
//                        in results.json the others stay as they are
//   --sizes 100,1000     lines per request in `compare`; results.json is left alone
//   --subjects a,b       of: ours, verified, yardstick, direct; results.json is left alone
//   --output FILE        where the figures go, also after a partial run
//   --spans N            of the day of `scale`: a million, or 100,000 with --quick
//   --strict             exit code 1 when a floor is missed
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg, release, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { parse } from "../src/log-query/parse.ts";
import { type Call, createAgent, send } from "./harness/http-client.ts";
import {
  awaitAnnouncement,
  findFreePort,
  pinned,
  program,
  readCpuMillis,
  readMemoryMegabytes,
  type Subject,
  start,
} from "./harness/process.ts";
import {
  calculateMedian,
  calculateQuantile,
  type Figure,
  isFloorMet,
  printTable,
  summarise,
} from "./harness/report.ts";
import { measureGraphql } from "./suites/graphql.ts";
import { measureGroupedMetrics } from "./suites/grouped-metrics.ts";
import { measureIntake } from "./suites/intake.ts";
import { measureIsolation } from "./suites/isolation.ts";
import { measureMetrics } from "./suites/metrics.ts";
import { measureScale } from "./suites/scale.ts";
import { measureStreams } from "./suites/streams.ts";
import { measureTracing } from "./suites/tracing.ts";

const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string" },
    sizes: { type: "string" },
    subjects: { type: "string" },
    output: { type: "string" },
    spans: { type: "string" },
    strict: { type: "boolean", default: false },
  },
});

const sectionNames = [
  "compare",
  "load",
  "metrics",
  "graphql",
  "tracing",
  "scale",
  "streams",
  "start",
  "parse",
  "intake",
  "isolation",
] as const;
/** `verified` is ours with a query whose matches have to be found in the documents, and that all lines match. */
const subjectNames = ["ours", "verified", "yardstick", "direct"] as const;
const verifiedQuery = "message:ms http.response.status_code>=200";
type SubjectName = (typeof subjectNames)[number];
type SectionName = (typeof sectionNames)[number];

function choose<T extends string>(text: string | undefined, known: readonly T[]): readonly T[] {
  if (text === undefined) return known;
  return text.split(",").map((name) => {
    const found = known.find((one) => one === name);
    if (found === undefined) throw new Error(`no ${name}; there are ${known.join(", ")}`);
    return found;
  });
}
const sections = choose(options.only, sectionNames);
const chosen = choose(options.subjects, subjectNames);
const sizes = options.sizes?.split(",").map(Number) ?? [10, 100, 1_000, 10_000];
const rounds = options.quick ? 5 : 25;

/** The most that each figure may be (README, "What it promises"). */
const floors = {
  ratio: new Map([
    [100, 1.15],
    [1_000, 1.15],
    [10_000, 1.25],
  ]),
  peakMegabytes: 400,
  stallMillis: 100,
  idleMegabytes: 130,
  readyMillis: 1_000,
  parseMillis: 1,
};

const here = import.meta.dirname;
const folder = mkdtempSync(join(tmpdir(), "readout-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));
if (pinned) spawnSync("taskset", ["-a", "-p", "-c", "0", String(process.pid)]);

function count(lines: number): string {
  return lines.toLocaleString("en");
}

const agent = createAgent();
const token = "bench-token";

// --- The programs --------------------------------------------------------------------------------------------

let started = 0;

interface Source {
  readonly text: "ascii" | "unicode";
  readonly subject: Subject;
  readonly url: string;
  readonly from: string;
  readonly to: string;
}

/** The floors are held to `ascii`, with the ratios on `unicode` told beside; that takes more memory, so the load uses it. */
async function startSource(text: "ascii" | "unicode"): Promise<Source> {
  const log = join(folder, `source-${started++}.log`);
  const subject = start({ arguments: [join(here, "fixtures", "fake-elasticsearch.ts"), text], core: 0, log });
  const { url, from, to } = await awaitAnnouncement(subject, log);
  return { text, subject, url: String(url), from: String(from), to: String(to) };
}

interface Server {
  readonly subject: Subject;
  readonly url: string;
  readonly readyMillis: number;
  readonly log: string;
}

async function startYardstick(source: Source, preload: Preload = {}): Promise<Server> {
  const log = join(folder, `yardstick-${started++}.log`);
  const subject = start({
    arguments: [...(preload.flags ?? []), join(here, "baselines", "logs.ts"), source.url],
    environment: preload.environment ?? {},
    core: 1,
    log,
  });
  const { url } = await awaitAnnouncement(subject, log);
  return { subject, url: String(url), readyMillis: Number.NaN, log };
}

function startOurs(source: Source, preload: Preload = {}): Promise<Server> {
  return serve(
    [
      `backends: { canned: { kind: elastic, url: "${source.url}" } }`,
      "sites:",
      "  bench:",
      "    logs: { backend: canned, sources: { app: { index: logs-bench, layout: ecs } } }",
    ],
    preload,
  );
}

/** `serve` as an operator would start it. Ready is when REST first answers a request with a token. */
async function serve(
  yaml: readonly string[],
  preload: Preload = {},
  limits: Readonly<Record<string, number | string>> = {},
): Promise<Server> {
  const log = join(folder, `ours-${started++}.log`);
  const config = join(folder, "readout.yaml");
  const port = await findFreePort();
  const hash = createHash("sha256").update(token).digest("hex");
  writeFileSync(
    config,
    [
      `listen: 127.0.0.1:${port}`,
      `tokens: [{ user: bench, sha256: "${hash}", sites: "*" }]`,
      `limits: ${JSON.stringify({ rate: 1_000_000, token_requests: 64, token_streams: 32, ...limits })}`,
      ...yaml,
      "",
    ].join("\n"),
  );
  const url = `http://127.0.0.1:${port}`;
  const begin = performance.now();
  const subject = start({
    arguments: [...(preload.flags ?? []), ...program, "serve", "--config", config],
    environment: preload.environment ?? {},
    core: 1,
    log,
  });
  let over = false;
  void subject.ended.then(() => {
    over = true;
  });
  let cause: unknown;
  while (!over && performance.now() - begin < 20_000) {
    try {
      await send(agent, { url: `${url}/api/v2/auth`, method: "GET", token });
      return { subject, url, readyMillis: performance.now() - begin, log };
    } catch (error) {
      cause = error;
      await sleep(5);
    }
  }
  await subject.stop();
  throw new Error(
    `readout serve did not answer: ${String(cause)}\n${readFileSync(log, "utf8").slice(-3_000)}`,
  );
}

interface Preload {
  readonly flags?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

function buildLinesCall(server: string, source: Source, lines: number, query = ""): Call {
  const body = JSON.stringify({
    site_id: "bench",
    source_ids: ["app"],
    query,
    use_expressions: true,
    from: source.from,
    to: source.to,
    pagination: { per_page: lines, order: "DESC", cursor: { time: null } },
  });
  return { url: `${server}/api/v2/logs/lines`, method: "POST", body, token };
}

function buildDirectCall(source: Source, lines: number): Call {
  const body = JSON.stringify({
    size: lines,
    track_total_hits: false,
    query: { bool: { filter: [{ range: { "@timestamp": { gte: source.from, lte: source.to } } }] } },
    sort: [{ "@timestamp": "desc" }],
  });
  return { url: `${source.url}/logs-bench/_search`, method: "POST", body };
}

// --- compare: a request at a time, in turns -------------------------------------------------------------------

/** A fast wrong answer is no answer: both servers must send the same rows. */
async function verifyRows(
  source: Source,
  servers: ReadonlyMap<SubjectName, Server>,
  lines: number,
): Promise<void> {
  const [ours, yardstick] = [servers.get("ours"), servers.get("yardstick")];
  if (ours === undefined || yardstick === undefined) return;
  const [left, right] = (await Promise.all(
    [ours, yardstick].map(async ({ url }) =>
      JSON.parse((await send(agent, buildLinesCall(url, source, lines), true)).body),
    ),
  )) as [readonly Readonly<Record<string, unknown>>[], readonly Readonly<Record<string, unknown>>[]];
  if (left.length !== lines || right.length !== lines) {
    throw new Error(`asked for ${lines} lines: ours sent ${left.length}, the yardstick ${right.length}`);
  }
  left.forEach((row, at) => {
    const expected = right[at] ?? {};
    for (const field of new Set([...Object.keys(row), ...Object.keys(expected)])) {
      const [got, want] = [JSON.stringify(row[field]), JSON.stringify(expected[field])];
      // Ours puts the index before `_id`, which alone is not unique in a source of many indices.
      if (field === "id" && String(row.id).endsWith(String(expected.id))) continue;
      if (got !== want) throw new Error(`line ${at}, ${field}: ours sent ${got}, the yardstick ${want}`);
    }
  });
}

interface Round {
  readonly p50: number;
  readonly cpu: number;
}

async function measure(call: Call, pid: number, requests: number): Promise<Round> {
  const times: number[] = [];
  const before = readCpuMillis(pid);
  for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
  return { p50: calculateMedian(times), cpu: (readCpuMillis(pid) - before) / requests };
}

type Rounds = ReadonlyMap<SubjectName, readonly Round[]>;

/** All chosen subjects in turns, for each number of lines. */
async function measureInTurns(
  source: Source,
  sizes: readonly number[],
): Promise<ReadonlyMap<number, Rounds>> {
  const servers = new Map<SubjectName, Server>();
  const ours = chosen.includes("ours") || chosen.includes("verified") ? await startOurs(source) : undefined;
  if (ours !== undefined) servers.set("ours", ours).set("verified", ours);
  if (chosen.includes("yardstick")) servers.set("yardstick", await startYardstick(source));
  const measured = new Map<number, Rounds>();
  for (const lines of sizes) {
    await verifyRows(source, servers, lines);
    const calls = chosen.map((name) => {
      const server = servers.get(name);
      const query = name === "verified" ? verifiedQuery : "";
      return {
        name,
        call:
          server === undefined
            ? buildDirectCall(source, lines)
            : buildLinesCall(server.url, source, lines, query),
        pid: server?.subject.pid ?? source.subject.pid,
        rounds: [] as Round[],
      };
    });
    const requests = Math.max(5, Math.min(100, Math.round(12_000 / lines)));
    for (const { call } of calls) {
      const warm = performance.now() + (options.quick ? 300 : 1_500);
      do await send(agent, call);
      while (performance.now() < warm);
    }
    for (let round = 0; round < rounds; round++) {
      // Each goes first in turn, so that no one always follows the one that fills the caches.
      const turn = round % calls.length;
      for (const one of [...calls.slice(turn), ...calls.slice(0, turn)]) {
        one.rounds.push(await measure(one.call, one.pid, requests));
      }
    }
    measured.set(lines, new Map(calls.map(({ name, rounds }) => [name, rounds])));
    process.stderr.write(`compare: ${count(lines)} lines of ${source.text} done\n`);
  }
  for (const { subject } of new Set(servers.values())) await subject.stop();
  return measured;
}

const pairs = [
  ["ours", "yardstick"],
  ["verified", "yardstick"],
  ["ours", "direct"],
  ["yardstick", "direct"],
] as const;

function calculateRatios(title: string, byName: Rounds, floor: number | undefined): readonly Figure[] {
  return pairs.flatMap(([left, right]) => {
    const [own, other] = [byName.get(left), byName.get(right)];
    if (own === undefined || other === undefined) return [];
    // The source's own CPU says nothing about a server.
    const keys = right === "direct" ? (["p50"] as const) : (["p50", "cpu"] as const);
    return keys.map((key) => ({
      name: `${title}, ${left} / ${right}: ${key === "cpu" ? "CPU" : key}`,
      unit: "×",
      ...summarise(own.map((round, at) => round[key] / (other[at]?.[key] ?? Number.NaN))),
      floor: left === "ours" && right === "yardstick" ? floor : undefined,
    }));
  });
}

async function compare(source: Source): Promise<readonly Figure[]> {
  const measured = await measureInTurns(source, sizes);
  const figures: Figure[] = [];
  for (const [lines, byName] of measured) {
    const title = `${count(lines)} lines`;
    for (const [name, own] of byName) {
      const cpu = summarise(own.map((round) => round.cpu));
      figures.push(
        { name: `${title}, ${name}: p50`, unit: "ms", ...summarise(own.map(({ p50 }) => p50)) },
        { name: `${title}, ${name}: CPU a request`, unit: "ms", ...cpu },
      );
    }
    figures.push(...calculateRatios(title, byName, floors.ratio.get(lines)));
  }
  // What one more line costs: flat when the cost grows with the lines, rising when it grows faster.
  for (const name of chosen.filter((one) => one !== "direct")) {
    sizes.slice(1).forEach((lines, at) => {
      const fewer = sizes[at] ?? 0;
      const [more, less] = [lines, fewer].map((size) => {
        return calculateMedian((measured.get(size)?.get(name) ?? []).map(({ cpu }) => cpu));
      });
      figures.push({
        name: `${count(fewer)} → ${count(lines)} lines, ${name}: CPU a further line`,
        unit: "µs",
        value: (((more ?? 0) - (less ?? 0)) / (lines - fewer)) * 1_000,
      });
    });
  }
  return figures;
}

/** The ratios alone, over lines that are not all ASCII. */
async function compareUnicode(source: Source): Promise<readonly Figure[]> {
  const measured = await measureInTurns(source, [1_000]);
  return [...measured].flatMap(([lines, byName]) =>
    calculateRatios(`${count(lines)} lines beyond ASCII`, byName, undefined),
  );
}

// --- load: many large answers at once -------------------------------------------------------------------------

const clients = 32;
const linesUnderLoad = 10_000;

async function measureLoad(source: Source, name: "ours" | "yardstick"): Promise<readonly Figure[]> {
  const stalls = join(folder, `${name}-stalls.txt`);
  const preload = buildStallPreload(stalls);
  const server = name === "ours" ? await startOurs(source, preload) : await startYardstick(source, preload);
  const { pid } = server.subject;
  const call = buildLinesCall(server.url, source, linesUnderLoad);
  for (let warm = 0; warm < 20; warm++) await send(agent, buildLinesCall(server.url, source, 1_000));
  for (let warm = 0; warm < 3; warm++) await send(agent, call);
  await sleep(500);
  await readStall(pid, stalls);

  const log = join(folder, `prober-${name}.log`);
  const prober = start({
    arguments: [join(here, "harness", "latency-prober.ts"), `${server.url}/livez`],
    core: 0,
    log,
  });
  await awaitAnnouncement(prober, log);
  await sleep(200);
  const requests = options.quick ? 1 : 4;
  const times: number[] = [];
  const cpuBefore = readCpuMillis(pid);
  const begin = performance.now();
  await Promise.all(
    Array.from({ length: clients }, async () => {
      for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
    }),
  );
  const seconds = (performance.now() - begin) / 1_000;
  const cpu = (readCpuMillis(pid) - cpuBefore) / times.length;
  await prober.stop();
  const probed = await awaitAnnouncement(prober, log, 1);
  const stall = await readStall(pid, stalls);
  const peak = readMemoryMegabytes(pid, "VmHWM");
  await server.subject.stop();

  const isOurs = name === "ours";
  const title = `${clients} × ${count(linesUnderLoad)} lines, ${name}`;
  return [
    { name: `${title}: peak RSS`, unit: "MB", value: peak, floor: isOurs ? floors.peakMegabytes : undefined },
    {
      name: `${title}: longest stall`,
      unit: "ms",
      value: stall,
      floor: isOurs ? floors.stallMillis : undefined,
    },
    {
      name: `${title}: longest answer of /livez`,
      unit: "ms",
      value: Number(probed.longest),
      note: `of ${Number(probed.answers)} probes, median ${Number(probed.median).toFixed(1)} ms`,
    },
    { name: `${title}: p50`, unit: "ms", value: calculateMedian(times) },
    { name: `${title}: slowest`, unit: "ms", value: Math.max(...times) },
    { name: `${title}: lines a second`, unit: "", value: (times.length * linesUnderLoad) / seconds },
    { name: `${title}: CPU a request`, unit: "ms", value: cpu },
  ];
}

/** Writes the longest stalls of the event loop to the file. */
function buildStallPreload(stalls: string): Preload {
  writeFileSync(stalls, "");
  return {
    flags: ["--import", join(here, "harness", "event-loop-stall.ts")],
    environment: { BENCH_STALLS: stalls },
  };
}

/** The longest stall since the last time that this was asked. */
async function readStall(pid: number, file: string): Promise<number> {
  const before = readFileSync(file, "utf8").split("\n").length;
  process.kill(pid, "SIGUSR2");
  for (let waited = 0; waited < 10_000; waited += 10) {
    const written = readFileSync(file, "utf8").split("\n");
    if (written.length > before) return Number(written.at(-2));
    await sleep(10);
  }
  throw new Error("the preload of stall.ts does not answer");
}

// --- start and parse ------------------------------------------------------------------------------------------

async function measureStartAndIdle(source: Source): Promise<readonly Figure[]> {
  const ready: number[] = [];
  const idle: number[] = [];
  for (let run = 0; run < (options.quick ? 2 : 7); run++) {
    const server = await startOurs(source);
    ready.push(server.readyMillis);
    await sleep(1_500);
    idle.push(readMemoryMegabytes(server.subject.pid, "VmRSS"));
    await server.subject.stop();
  }
  return [
    {
      name: "serve: spawn to the first REST answer",
      unit: "ms",
      ...summarise(ready),
      floor: floors.readyMillis,
      note: `slowest of ${ready.length}: ${Math.max(...ready).toFixed(0)} ms`,
    },
    { name: "serve: idle RSS", unit: "MB", ...summarise(idle), floor: floors.idleMegabytes },
  ];
}

/** A query of about 4 kB that has a bit of everything. */
function generateLongQuery(seed: number): string {
  const parts: string[] = [];
  for (let at = seed; parts.join(" AND ").length < 4_000; at++) {
    parts.push(
      [
        `severity=error`,
        `(message:"timed out ${at}" OR hostname!=web-${at})`,
        `http.response.status_code>=${400 + (at % 100)}`,
        `labels.some\\.dotted\\.key!:"a \\"quoted\\" value ${at}"`,
        `((a.b.${at}=x OR c<${at}.5e3) AND (d:é OR term${at}))`,
      ][at % 5] ?? "",
    );
  }
  return parts.join(" AND ").slice(0, 4_200);
}

function measureParsing(): readonly Figure[] {
  const queries = Array.from({ length: 50 }, (_, seed) => generateLongQuery(seed));
  const times: number[] = [];
  for (let run = 0; run < (options.quick ? 2_500 : 10_000); run++) {
    const query = queries[run % queries.length] ?? "";
    const begin = performance.now();
    parse(query);
    times.push(performance.now() - begin);
  }
  const measured = times.slice(500);
  const average = queries.reduce((sum, { length }) => sum + length, 0) / queries.length;
  return [
    {
      name: "parse of a 4 kB query: p99",
      unit: "ms",
      value: calculateQuantile(measured, 0.99),
      floor: floors.parseMillis,
      note: `median ${calculateMedian(measured).toFixed(3)} ms, the very first ${times[0]?.toFixed(1)} ms, ${average.toFixed(0)} characters`,
    },
  ];
}

// --- The whole ------------------------------------------------------------------------------------------------

const begin = performance.now();
// Whoever else works on the machine is in the figures too, and more so in the latencies than in the CPU times.
const loadBefore = loadavg()[0] ?? 0;
const source = await startSource("ascii");
const unicode = await startSource("unicode");
const ours = chosen.includes("ours");
const measured = new Map<SectionName, readonly Figure[]>();
async function runSection(name: SectionName, run: () => Promise<readonly Figure[]>): Promise<void> {
  if (sections.includes(name)) measured.set(name, await run());
}
await runSection("compare", async () => [...(await compare(source)), ...(await compareUnicode(unicode))]);
await runSection("load", async () => {
  const names = (["ours", "yardstick"] as const).filter((name) => chosen.includes(name));
  const figures: Figure[] = [];
  for (const name of names) figures.push(...(await measureLoad(unicode, name)));
  return figures;
});
if (ours) {
  const serveMetrics = (yaml: readonly string[], stalls?: string) =>
    serve(yaml, stalls === undefined ? {} : buildStallPreload(stalls));
  await runSection("metrics", async () => [
    ...(await measureMetrics({ agent, token, rounds, folder, serve: serveMetrics, readStall })),
    ...(await measureGroupedMetrics({ agent, token, rounds, serve })),
  ]);
  await runSection("streams", () => measureStreams({ agent, token, quick: options.quick, serve }));
  await runSection("tracing", () =>
    measureTracing({ agent, token, rounds, quick: options.quick, folder, serve }),
  );
  await runSection("scale", () => {
    const spans = Number(options.spans ?? (options.quick ? 100_000 : 1_000_000));
    const serveScale = (yaml: readonly string[], limits: Readonly<Record<string, number | string>>) =>
      serve(yaml, {}, limits);
    return measureScale({ agent, token, spans, folder, serve: serveScale });
  });
  await runSection("graphql", async () => {
    const server = await startOurs(source);
    const rest = (lines: number) => buildLinesCall(server.url, source, lines);
    const range = { from: source.from, to: source.to };
    const figures = await measureGraphql({ agent, token, rounds, server, rest, range });
    await server.subject.stop();
    return figures;
  });
  await runSection("start", () => measureStartAndIdle(source));
  await runSection("parse", async () => measureParsing());
  await runSection("intake", () => measureIntake(options.quick, folder, source));
  await runSection("isolation", () => measureIsolation(options.quick, folder));
}
await source.subject.stop();
await unicode.subject.stop();
agent.destroy();

const machine = {
  cpus: cpus().length,
  model: cpus()[0]?.model ?? "unknown",
  memory_megabytes: Math.round(totalmem() / 1e6),
  kernel: release(),
  node: process.version,
  pinned,
};
console.log(
  `${machine.model}, ${machine.cpus} CPUs, Linux ${machine.kernel}, Node ${machine.node}, ` +
    `${pinned ? "server on a core of its own" : "NOT pinned"}, ${rounds} rounds, ${((performance.now() - begin) / 1_000).toFixed(0)} s\n`,
);
if (loadBefore > 0.5) console.log(`The machine was busy before this began: load ${loadBefore.toFixed(2)}\n`);
const figures = [...measured.values()].flat();
console.log(printTable(figures));

const partial = options.quick || options.sizes !== undefined || options.subjects !== undefined;
const output = options.output ?? (partial ? undefined : join(here, "results.json"));
if (output !== undefined) {
  const took = { date: new Date().toISOString(), load_before: Number(loadBefore.toFixed(2)), rounds };
  const before: { sections?: object } =
    options.output === undefined && existsSync(output) ? JSON.parse(readFileSync(output, "utf8")) : {};
  const own = [...measured].map(([name, figures]) => {
    const told = figures.map((figure) =>
      figure.floor === undefined ? figure : { ...figure, met: isFloorMet(figure) },
    );
    return [name, { ...took, figures: told }] as const;
  });
  const results = { machine, sections: { ...before.sections, ...Object.fromEntries(own) } };
  writeFileSync(output, `${JSON.stringify(results, null, 2)}\n`);
}
const missed = figures.filter((figure) => !isFloorMet(figure));
if (missed.length > 0)
  console.log(`\n${missed.length} of ${figures.filter(({ floor }) => floor).length} floors missed`);
if (options.strict && missed.length > 0) process.exitCode = 1;
