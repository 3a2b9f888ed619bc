// Traces of a busy site over a real search server: a day of a million spans, asked for an hour, six hours and the day. What is
// read costs the source little more than a plain scan of the same documents; what is too much is refused at once. Then the same
// questions are asked again and again while documents come, as dashboards do: what is kept is not read again. At last a roller
// keeps figures of all days in an index, and a new process is asked for the day, and for all days where there are several.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import type { Agent } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServerName } from "../../test/servers/servers.ts";
import { otel } from "../../test/support/elastic/span-shippers/otel.ts";
import { dayLength, findDayBegin, generateRequest, planBusyDay } from "../fixtures/busy-site.ts";
import { hour } from "../fixtures/spans.ts";
import { type Call, send } from "../harness/http-client.ts";
import { type KeptServer, keptFolder, openKeptServer } from "../harness/kept-server.ts";
import { readCpuMillis, readMemoryMegabytes, runToEnd, type Subject } from "../harness/process.ts";
import { calculateMedian, count, type Figure } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly server: ServerName;
  /** Of a day, over both sites. */
  readonly spans: number;
  readonly days: number;
  /** Whether the data are kept for further runs. */
  readonly isKept: boolean;
  readonly folder: string;
  readonly serve: (
    yaml: readonly string[],
    limits: Readonly<Record<string, number | string>>,
  ) => Promise<{ subject: Subject; url: string }>;
}

/** The most that each figure may be. */
const floors = {
  scanRatio: 1.3,
  errorsRatio: 2,
  refusalMillis: 1_000,
  firstRatio: 1.3,
  againRatio: 0.5,
  storedMillis: 1_000,
  storedDaysMillis: 1_500,
  rollMicros: 30,
  rollRatio: 1.3,
  slope: 0.3,
};

interface Question {
  readonly name: string;
  readonly route: string;
  readonly body: object;
  /** A search for the documents that the answer has to read, where it reads all of them. */
  readonly reads?: readonly object[];
  /** Whether figures of its segments are kept. */
  readonly isKept?: boolean;
}

const calls = { terms: { kind: ["Client", "Producer"] } };
const entries = {
  bool: {
    should: [
      { terms: { kind: ["Server", "Consumer"] } },
      { bool: { must_not: [{ exists: { field: "parent_span_id" } }] } },
    ],
  },
};
const site = { site_id: "shop" };
const page = (cursor: string) => ({ site_ids: ["shop"], pagination: { per_page: 50, cursor } });
const questions: readonly Question[] = [
  { name: "site edges", route: "site_edges", body: site, reads: [calls, entries], isKept: true },
  {
    name: "action edges",
    route: "action_edges",
    reads: [calls, entries],
    isKept: true,
    body: { ...site, namespace: "shop/web", action: "Shop7#show" },
  },
  { name: "slow events", route: "slow_events", body: site, isKept: true },
  { name: "actions", route: "actions", body: site },
  { name: "errors by time", route: "traces/errors", body: page("Time") },
  { name: "errors by duration", route: "traces/errors", body: page("Duration") },
];
const ranges = [1, 6, 24];
const repetitions = 3;
/** On a slow machine a long answer is a figure too, and not the end of the bench. */
const deadline = "120s";

export async function measureScale(bench: Bench): Promise<readonly Figure[]> {
  const { server, spans, days, isKept } = bench;
  const name = `${spans}-${days}`;
  const source = await openKeptServer({ server, name, dayBegins: findDayBegin(), isKept });
  try {
    await source.run("fill", () => fill(bench, source));
    const configuration = [
      `backends: { es: { kind: elastic, url: "${source.url}", timeout: 120s } }`,
      "sites:",
      ...["shop", "payments"].flatMap((site) => [
        `  ${site}:`,
        `    retention: ${days + 10}d`,
        `    traces: { backend: es, index: "${otel.pattern(site)}", layout: otel }`,
      ]),
    ];
    const reading = await source.run("reading", () => measureReading(bench, source, configuration));
    const again = await source.run("again", () =>
      measureAgain(bench, source, configuration, new Map(reading.measured)),
    );
    const rolled = [...configuration, "rollups: { backend: es, index: readout-rollups, rate: 1 }"];
    const rolling = await source.run("rolling", () => measureRolling(bench, source, rolled));
    const stored = await measureStored(bench, source, rolled);
    source.finish("fill");
    return [...reading.figures, ...again, ...rolling, ...stored, ...compareSizes(bench, stored)];
  } finally {
    await source.stop();
  }
}

interface Reading {
  readonly figures: readonly Figure[];
  /** The questions whose figures are kept, by `formatTitle`. */
  readonly measured: readonly (readonly [string, Measured])[];
}

const formatTitle = ({ name }: Question, hours: number): string => `${name}, ${hours} h`;

async function measureReading(
  bench: Bench,
  { url: source, dayBegins }: KeptServer,
  configuration: readonly string[],
): Promise<Reading> {
  const { subject, url } = await bench.serve(configuration, { deadline, rollup_bytes: 0 });
  const figures: Figure[] = [];
  const kept: [string, Measured][] = [];
  for (const hours of ranges) {
    const range = findRange(dayBegins, hours);
    const scans = new Map<string, Promise<number>>();
    const measured = new Map<string, Measured>();
    for (const question of questions) {
      const target = { url, pid: subject.pid, source };
      const result = await measureQuestion(bench, target, question, range);
      measured.set(question.name, result);
      if (question.isKept) kept.push([formatTitle(question, hours), result]);
      figures.push(...describe(question, hours, result));
      if (question.reads === undefined || result.status !== 200) continue;
      const key = JSON.stringify(question.reads);
      const scan = scans.get(key) ?? measureScan(source, question.reads, range);
      scans.set(key, scan);
      figures.push({
        name: `${formatTitle(question, hours)}: source's CPU over a plain scan`,
        unit: "×",
        value: result.sourceCpu / (await scan),
        floor: floors.scanRatio,
      });
    }
    const [byTime, byDuration] = ["time", "duration"].map((by) => measured.get(`errors by ${by}`)?.millis);
    figures.push({
      name: `errors, ${hours} h: by time over by duration`,
      unit: "×",
      floor: floors.errorsRatio,
      value: (byTime ?? Number.NaN) / (byDuration ?? Number.NaN),
    });
  }
  await subject.stop();
  return { figures, measured: kept };
}

/** The middle of the day. */
function findRange(dayBegins: number, hours: number): Range {
  return { from: dayBegins + (24 - hours) * (hour / 2), to: dayBegins + (24 + hours) * (hour / 2) };
}

/** The kept questions, each asked again after documents have come. */
async function measureAgain(
  bench: Bench,
  { url: source, dayBegins }: KeptServer,
  configuration: readonly string[],
  reading: ReadonlyMap<string, Measured>,
): Promise<readonly Figure[]> {
  const { subject, url } = await bench.serve(configuration, { deadline });
  const day = planBusyDay(dayBegins, bench.spans);
  let added = 0;
  const addDocuments = async (): Promise<void> => {
    added += 1;
    // A number between those of two requests of the day, in the middle of the range.
    const lines = generateRequest(Math.floor(day.requests / 2) + added + 0.5, day).flatMap(
      ({ site: name, stream, text }) => [
        JSON.stringify({ create: { _index: `${name}-${stream}-generic.otel-default` } }),
        text,
      ],
    );
    const headers = { "content-type": "application/x-ndjson" };
    await fetch(`${source}/_bulk?refresh=true`, { method: "POST", headers, body: `${lines.join("\n")}\n` });
  };
  const figures: Figure[] = [];
  for (const hours of ranges) {
    for (const question of questions) {
      const title = formatTitle(question, hours);
      const before = reading.get(title);
      if (before?.status !== 200) continue;
      const target = { url, pid: subject.pid, source };
      const again = await measureQuestion(bench, target, question, findRange(dayBegins, hours), addDocuments);
      figures.push(
        {
          name: `${title}, asked first: over reading`,
          unit: "×",
          floor: floors.firstRatio,
          value: again.firstMillis / before.millis,
        },
        { name: `${title}, asked again: p50`, unit: "ms", value: again.millis },
        { name: `${title}, asked again: source's CPU`, unit: "ms", value: again.sourceCpu },
        { name: `${title}, asked again: CPU`, unit: "ms", value: again.ownCpu },
        {
          name: `${title}, asked again: over reading`,
          unit: "×",
          floor: floors.againRatio,
          value: again.millis / before.millis,
        },
      );
    }
  }
  await subject.stop();
  return figures;
}

/** What it costs to make figures of all days and keep them in an index. Begins anew where a run before was cut. */
async function measureRolling(
  bench: Bench,
  { url: source, dayBegins }: KeptServer,
  configuration: readonly string[],
): Promise<readonly Figure[]> {
  await fetch(`${source}/readout-rollups`, { method: "DELETE" });
  const spans = bench.spans * bench.days;
  const begins = dayBegins - (bench.days - 1) * dayLength;
  const roller = await bench.serve(configuration, { deadline });
  const before = { source: await readSourceCpu(source), own: readCpuMillis(roller.subject.pid) };
  await waitForReach(roller.url, begins);
  const own = readCpuMillis(roller.subject.pid) - before.own;
  const ofSource = (await readSourceCpu(source)) - before.source;
  const memory = readMemoryMegabytes(roller.subject.pid, "VmHWM");
  await roller.subject.stop();
  const stored = await fetch(`${source}/readout-rollups/_stats/store`);
  const { _all } = (await stored.json()) as { _all: { primaries: { store: { size_in_bytes: number } } } };
  const scan = await measureScan(source, [{ match_all: {} }], { from: begins, to: dayBegins + dayLength });
  return [
    {
      name: "making figures: CPU a span",
      unit: "µs",
      floor: floors.rollMicros,
      value: (1_000 * own) / spans,
    },
    {
      name: "making figures: source's CPU over a plain scan",
      unit: "×",
      floor: floors.rollRatio,
      value: ofSource / scan,
    },
    { name: "making figures: most memory", unit: "MB", value: memory },
    {
      name: "figures: bytes a span in the index",
      unit: "B",
      value: _all.primaries.store.size_in_bytes / spans,
    },
  ];
}

/** The day, and all days where there are several, asked of a process that holds nothing, but has looked through the index. */
async function measureStored(
  bench: Bench,
  { url: source, dayBegins }: KeptServer,
  configuration: readonly string[],
): Promise<readonly Figure[]> {
  const { subject, url } = await bench.serve(configuration, { deadline });
  await waitForReach(url, dayBegins - (bench.days - 1) * dayLength);
  const target = { url, pid: subject.pid, source };
  const day = findRange(dayBegins, 24);
  const all = { from: dayBegins - (bench.days - 1) * dayLength, to: day.to };
  const event = await findEventQuestion(bench, url, findRange(dayBegins, 1));
  const figures: Figure[] = [];
  for (const { range, title, floor } of [
    { range: day, title: "a day", floor: floors.storedMillis },
    ...(bench.days === 1
      ? []
      : [{ range: all, title: `${bench.days} days`, floor: floors.storedDaysMillis }]),
  ]) {
    for (const question of [...questions, event, ...revisionQuestions]) {
      const answer = await measureQuestion(bench, target, question, range);
      const name = `${question.name}, ${title} from the index`;
      figures.push(
        { name: `${name}, asked first`, unit: "ms", value: answer.firstMillis },
        {
          name: `${name}: p50`,
          unit: "ms",
          value: answer.status === 200 ? answer.millis : Number.NaN,
          floor,
        },
        { name: `${name}: source's CPU`, unit: "ms", value: answer.sourceCpu },
        { name: `${name}: CPU`, unit: "ms", value: answer.ownCpu },
      );
    }
  }
  await subject.stop();
  return figures;
}

/** How the time of an answer grows with the spans of a day, over the runs of other sizes that were kept on this machine. */
function compareSizes({ server, spans, days, isKept }: Bench, stored: readonly Figure[]): readonly Figure[] {
  if (!isKept || days > 1) return [];
  const file = join(keptFolder, `${server}-times.json`);
  const times: Record<string, Record<string, number>> = existsSync(file)
    ? JSON.parse(readFileSync(file, "utf8"))
    : {};
  const answers = stored.filter(({ name }) => name.endsWith(": p50"));
  times[spans] = Object.fromEntries(answers.map(({ name, value }) => [name, value]));
  writeFileSync(file, `${JSON.stringify(times, null, 2)}\n`);
  const sizes = Object.keys(times)
    .map(Number)
    .sort((a, b) => a - b);
  const [least = spans, most = spans] = [sizes[0], sizes.at(-1)];
  if (least === most) return [];
  return answers.map(({ name }) => {
    const growth = (times[most]?.[name] ?? Number.NaN) / (times[least]?.[name] ?? Number.NaN);
    return {
      name: `${name.replace(": p50", "")}: slope of its time`,
      unit: "",
      floor: floors.slope,
      value: Math.log(growth) / Math.log(most / least),
      note: `from ${count(least)} to ${count(most)} spans`,
    };
  });
}

const revisionQuestions: readonly Question[] = [
  { name: "actions of a revision", route: "actions", body: { ...site, revision: "r2" } },
  { name: "deploy stats", route: "../deploys/stats", body: { ...site, revision: "r2" } },
];

/** The actions of the slow event with the greatest impact. */
async function findEventQuestion(
  { agent, token }: Bench,
  url: string,
  { from, to }: Range,
): Promise<Question> {
  const range = { from: new Date(from).toISOString(), to: new Date(to).toISOString() };
  const call = { url: `${url}/api/v2/tracing/slow_events`, method: "POST", token } as const;
  const { body } = await send(agent, { ...call, body: JSON.stringify({ ...site, ...range }) }, true);
  const [{ digest }] = JSON.parse(body) as [{ digest: string }];
  return { name: "slow event actions", route: "slow_events/actions", body: { ...site, digest } };
}

/** Until the figures of each kind of both sites reach back so far, milliseconds, and hours and days are added up. */
async function waitForReach(url: string, begins: number): Promise<void> {
  let [before, unchanged] = ["", 0];
  while (unchanged < quietSeconds) {
    await sleep(1_000);
    const text = await (await fetch(`${url}/metrics`)).text();
    const reaches = [...text.matchAll(/^readout_rolled_reach_seconds\{[^}]*\} (\S+)$/gm)];
    const wanted = (Date.now() - begins) / 1_000;
    const isWhole =
      reaches.length >= kindsOfFigures && reaches.every(([, seconds]) => Number(seconds) >= wanted);
    const segments = [...text.matchAll(/^readout_rolled_segments\{.*$/gm)].join("\n");
    unchanged = isWhole && segments === before ? unchanged + 1 : 0;
    before = segments;
  }
}
/** A roller rests for 15 seconds where nothing is missing. */
const quietSeconds = 20;
/** Five of each of the two sites. */
const kindsOfFigures = 10;

/** By a process of its own, so that whoever measures has not a million documents' garbage to collect meanwhile. */
async function fill({ folder, spans, days }: Bench, { url, dayBegins }: KeptServer): Promise<void> {
  const program = join(import.meta.dirname, "..", "fixtures", "fill-busy-site.ts");
  await runToEnd([program, url, ...[spans, days, dayBegins].map(String)], join(folder, "scale-fill.log"));
}

interface Measured {
  readonly status: number;
  /** The median, as the two below. */
  readonly millis: number;
  readonly sourceCpu: number;
  readonly ownCpu: number;
}

interface MeasuredFromFirst extends Measured {
  /** Of the first answer. */
  readonly firstMillis: number;
}

interface Range {
  readonly from: number;
  readonly to: number;
}

async function measureQuestion(
  { agent, token }: Bench,
  { url, pid, source }: { readonly url: string; readonly pid: number; readonly source: string },
  { route, body }: Question,
  { from, to }: Range,
  prepare: () => Promise<void> = async () => undefined,
): Promise<MeasuredFromFirst> {
  const call: Call = {
    url: `${url}/api/v2/tracing/${route}`,
    method: "POST",
    token,
    body: JSON.stringify({ ...body, from: new Date(from).toISOString(), to: new Date(to).toISOString() }),
  };
  // Warms caches of mappings up.
  const sendCall = (): Promise<number> => send(agent, call, true).then(() => 200, readRefusedStatus);
  const started = performance.now();
  let status = await sendCall();
  const firstMillis = performance.now() - started;
  const rounds: Measured[] = [];
  for (let round = 0; round < repetitions; round++) {
    await fetch(`${source}/_cache/clear?request=true`, { method: "POST" });
    await prepare();
    const before = { source: await readSourceCpu(source), own: readCpuMillis(pid) };
    const begun = performance.now();
    status = await sendCall();
    const millis = performance.now() - begun;
    const ownCpu = readCpuMillis(pid) - before.own;
    rounds.push({ status, millis, ownCpu, sourceCpu: (await readSourceCpu(source)) - before.source });
  }
  const median = (of: (one: Measured) => number): number => calculateMedian(rounds.map(of));
  return {
    status,
    firstMillis,
    millis: median(({ millis }) => millis),
    sourceCpu: median(({ sourceCpu }) => sourceCpu),
    ownCpu: median(({ ownCpu }) => ownCpu),
  };
}

/** `send` throws where an answer is no 200. A refusal is a figure here, and anything else a failure. */
function readRefusedStatus(error: unknown): number {
  if (!String(error).includes(": 422 ")) throw error;
  return 422;
}

function describe(
  question: Question,
  hours: number,
  { status, millis, sourceCpu, ownCpu }: Measured,
): readonly Figure[] {
  const title = formatTitle(question, hours);
  if (status !== 200)
    return [{ name: `${title}: refused after`, unit: "ms", value: millis, floor: floors.refusalMillis }];
  return [
    { name: `${title}: p50`, unit: "ms", value: millis },
    { name: `${title}: source's CPU`, unit: "ms", value: sourceCpu },
    { name: `${title}: CPU`, unit: "ms", value: ownCpu },
  ];
}

/** The CPU time of one scan of the matching documents of both sites, unsorted, in pages of the size that servers read best. */
async function measureScan(source: string, queries: readonly object[], { from, to }: Range): Promise<number> {
  const before = await readSourceCpu(source);
  for (const query of queries) {
    for (const name of ["shop", "payments"]) {
      const range = { range: { "@timestamp": { gte: from, lte: to, format: "epoch_millis" } } };
      const body = { size: 5_000, sort: ["_doc"], query: { bool: { filter: [range, query] } } };
      let page = await readPage(`${source}/${name}-traces-*/_search?scroll=1m`, body);
      while (page.count > 0)
        page = await readPage(`${source}/_search/scroll`, { scroll: "1m", scroll_id: page.id });
    }
  }
  return (await readSourceCpu(source)) - before;
}

async function readPage(url: string, body: object): Promise<{ readonly id: string; readonly count: number }> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  const { _scroll_id: id, hits } = (await answer.json()) as {
    _scroll_id: string;
    hits: { hits: readonly unknown[] };
  };
  return { id, count: hits.hits.length };
}

/** Milliseconds since the start of the server, which counts once a second. */
async function readSourceCpu(source: string): Promise<number> {
  await sleep(1_100);
  const answer = await fetch(`${source}/_nodes/stats/process`);
  const { nodes } = (await answer.json()) as {
    nodes: Readonly<Record<string, { process: { cpu: { total_in_millis: number } } }>>;
  };
  return Object.values(nodes)[0]?.process.cpu.total_in_millis ?? Number.NaN;
}
