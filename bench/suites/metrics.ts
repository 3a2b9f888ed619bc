// Metrics over a real Prometheus, against the same Prometheus asked directly in the same rounds: a thousand series, how
// the cost grows with series and with points, a warm look-up of names, and many dashboards at once.
import type { Agent } from "node:http";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startPrometheus } from "../../test/servers/prometheus.ts";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, type Subject } from "../harness/process.ts";
import { calculateMedian, type Figure, summarise } from "../harness/report.ts";

interface Bench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly folder: string;
  /** Starts `readout serve` with these backends and sites, and maybe with the watch for stalls that writes to a file. */
  readonly serve: (yaml: readonly string[], stalls?: string) => Promise<{ subject: Subject; url: string }>;
  readonly readStall: (pid: number, file: string) => Promise<number>;
}

/** The most that each figure may be (README, "What it promises"). */
const floors = { wallRatio: 2.5, slope: 1.1, namesMillis: 0.5, stallMillis: 100 };

const minute = 60_000;
const end = Date.UTC(2026, 0, 15, 12);
/** How many series there are; those with a number below a size have the tag of that size. */
const sizes = [10, 100, 1_000, 10_000] as const;
const lengths = [60, 600, 6_000, 11_000] as const;

function openMetrics(): string {
  const lines = ["# TYPE wide gauge"];
  const at = (millis: number) => (millis + 0.5) / 1_000;
  for (let host = 0; host < 10_000; host++) {
    const tags = sizes.flatMap((size) => (host < size ? [`s${size}="y"`] : []));
    for (let time = end - 62 * minute + host; time < end; time += minute) {
      lines.push(
        `wide{host="host-${host}",${tags}} ${((host * 31 + time / 997) % 10_000) / 100} ${at(time)}`,
      );
    }
  }
  lines.push("# TYPE requests counter");
  for (let host = 0; host < 100; host++) {
    for (let n = 0; n < 62; n++)
      lines.push(`requests_total{host="host-${host}"} ${n * 7} ${at(end - (62 - n) * minute + host)}`);
  }
  lines.push("# TYPE long gauge");
  for (let host = 0; host < 10; host++) {
    for (let n = 0; n < 11_000; n++)
      lines.push(`long{host="host-${host}"} ${(n % 977) / 8} ${at(end - (11_000 - n) * minute + host)}`);
  }
  return `${lines.join("\n")}\n# EOF\n`;
}

export async function measureMetrics(bench: Bench): Promise<readonly Figure[]> {
  const source = await startPrometheus("prom2", openMetrics());
  const yaml = [
    `backends: { prom: { kind: prometheus, url: "${source.url}" } }`,
    "sites: { bench: { metrics: { backend: prom } } }",
  ];
  const server = await bench.serve(yaml);
  const figures: Figure[] = [];
  try {
    figures.push(...(await compareWithDirect(bench, server, source.url)));
    figures.push(
      ...(await measureGrowth(bench, server, "series", sizes, (size) =>
        buildSeriesCall(server.url, bench.token, "wide", { [`s${size}`]: "y", host: "*" }, 60),
      )),
    );
    figures.push(
      ...(await measureGrowth(bench, server, "points", lengths, (length) =>
        buildSeriesCall(server.url, bench.token, "long", { host: "*" }, length),
      )),
    );
    figures.push(await measureNames(bench, server.url));
    await server.subject.stop();
    figures.push(await measureDashboards(bench, yaml));
  } finally {
    await server.subject.stop();
    await source.stop();
  }
  return figures;
}

function buildSeriesCall(
  url: string,
  token: string,
  name: string,
  tags: Readonly<Record<string, string>>,
  minutes: number,
  field = "gauge",
): Call {
  const select = [{ name, tags, field }];
  const [from, to] = [end - minutes * minute, end].map((millis) => new Date(millis).toISOString());
  const body = JSON.stringify({ site_id: "bench", from, to, resolution: "MINUTELY", select });
  return { url: `${url}/api/v2/metrics/timeseries`, method: "POST", body, token };
}

async function compareWithDirect(
  { agent, token, rounds }: Bench,
  { subject, url }: { subject: Subject; url: string },
  source: string,
): Promise<readonly Figure[]> {
  const ours = buildSeriesCall(url, token, "wide", { s1000: "y", host: "*" }, 60);
  const ask = (query: string, later = 0): Call => {
    const [start, stop] = [end - 60 * minute + later, end + later].map((millis) => String(millis / 1_000));
    const form = new URLSearchParams({ query, start: start ?? "", end: stop ?? "", step: "60" });
    return { url: `${source}/api/v1/query_range?${form}`, method: "GET" };
  };
  const direct = ask('wide{s1000="y"}');
  // What we ask: the last sample of each whole bucket, which a bare selector does not mean. Ranges of 2.42 are closed.
  const exact = ask('last_over_time(wide{s1000="y",host!=""}[59s999ms] offset 1ms)', minute);
  const answered: { series: { data: unknown[] }[] } = JSON.parse((await send(agent, ours, true)).body);
  const points = answered.series.reduce((sum, { data }) => sum + data.length, 0);
  if (answered.series.length !== 1_000 || points < 60_000) {
    throw new Error(`1,000 series were asked for: ${answered.series.length} of ${points} points came`);
  }
  // The compiler needs some dozens of answers before it has made the most of what reads and prints them.
  for (let warm = 0; warm < 60; warm++) for (const call of [ours, direct, exact]) await send(agent, call);
  const measured = {
    ours: [] as number[],
    direct: [] as number[],
    exact: [] as number[],
    cpu: [] as number[],
  };
  for (let round = 0; round < rounds; round++) {
    const before = readCpuMillis(subject.pid);
    measured.ours.push(await measureMedian(agent, ours, 5));
    measured.cpu.push((readCpuMillis(subject.pid) - before) / 5);
    measured.direct.push(await measureMedian(agent, direct, 5));
    measured.exact.push(await measureMedian(agent, exact, 5));
  }
  const ratio = (to: readonly number[]) =>
    summarise(measured.ours.map((millis, at) => millis / (to[at] ?? Number.NaN)));
  const title = "1,000 series × 61 points";
  return [
    { name: `${title}, ours: p50`, unit: "ms", ...summarise(measured.ours) },
    { name: `${title}, Prometheus itself: p50`, unit: "ms", ...summarise(measured.direct) },
    {
      name: `${title}, ours / Prometheus itself: p50`,
      unit: "×",
      ...ratio(measured.direct),
      floor: floors.wallRatio,
    },
    {
      name: `${title}, ours / the same expression asked directly: p50`,
      unit: "×",
      ...ratio(measured.exact),
    },
    {
      name: `${title}, ours: CPU a sample`,
      unit: "µs",
      ...summarise(measured.cpu.map((millis) => (millis * 1_000) / points)),
    },
  ];
}

async function measureMedian(agent: Agent, call: Call, requests: number): Promise<number> {
  const times: number[] = [];
  for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
  return calculateMedian(times);
}

/** So many small requests are measured as one, of which each by itself costs as little as what else goes on. */
const mostTogether = 100;

/**
 * The steepest growth of CPU time from one size to the next: 1 where twice as much costs twice as much. Sizes are measured
 * by turns, each in as many requests as make up one of the greatest, so that neither what the compiler has yet to learn nor
 * a busy machine falls on one of them alone.
 */
async function measureGrowth(
  { agent, rounds }: Bench,
  { subject }: { subject: Subject },
  what: string,
  steps: readonly number[],
  callOf: (step: number) => Call,
): Promise<readonly Figure[]> {
  const greatest = steps.at(-1) ?? 1;
  const sizes = steps.map((step) => ({
    call: callOf(step),
    requests: Math.min(mostTogether, Math.ceil(greatest / step)),
    millis: [] as number[],
  }));
  const warmUps = 3;
  for (let round = 0; round < warmUps + Math.ceil(rounds / 2); round++) {
    for (const { call, requests, millis } of sizes) {
      const before = readCpuMillis(subject.pid);
      for (let sent = 0; sent < requests; sent++) await send(agent, call);
      if (round >= warmUps) millis.push((readCpuMillis(subject.pid) - before) / requests);
    }
  }
  const costs = sizes.map(({ millis }) => calculateMedian(millis));
  const slopes = steps.slice(1).map((step, at) => {
    const [less, more] = [costs[at] ?? Number.NaN, costs[at + 1] ?? Number.NaN];
    return Math.log(more / less) / Math.log(step / (steps[at] ?? Number.NaN));
  });
  return [
    {
      name: `${steps[0]} to ${steps.at(-1)?.toLocaleString("en")} ${what}, ours: steepest growth of CPU`,
      unit: "",
      value: Math.max(...slopes),
      floor: floors.slope,
      note: `${costs.map((cost) => cost.toFixed(1)).join(", ")} ms a request`,
    },
  ];
}

async function measureNames({ agent, token, rounds }: Bench, url: string): Promise<Figure> {
  const lookUp: Call = { url: `${url}/api/v2/metrics/names/bench`, method: "GET", token };
  const empty: Call = { url: `${url}/api/v2/auth`, method: "GET", token };
  for (let warm = 0; warm < 100; warm++) for (const call of [lookUp, empty]) await send(agent, call);
  const over: number[] = [];
  for (let round = 0; round < rounds; round++) {
    over.push((await measureMedian(agent, lookUp, 50)) - (await measureMedian(agent, empty, 50)));
  }
  return {
    name: "names, warm, over an empty route",
    unit: "ms",
    ...summarise(over),
    floor: floors.namesMillis,
  };
}

/** Sixteen clients, each with ten queries as dashboards send them. */
async function measureDashboards(bench: Bench, yaml: readonly string[]): Promise<Figure> {
  const stalls = join(bench.folder, "metrics-stalls.txt");
  const { subject, url } = await bench.serve(yaml, stalls);
  const { agent, token } = bench;
  const hosts = { host: "*" };
  const queries = [
    buildSeriesCall(url, token, "wide", { s1000: "y", ...hosts }, 60),
    buildSeriesCall(url, token, "wide", { s100: "y", ...hosts }, 60),
    buildSeriesCall(url, token, "wide", { s100: "y" }, 60, "p_90"),
    buildSeriesCall(url, token, "wide", { s1000: "y" }, 60, "mean"),
    buildSeriesCall(url, token, "wide", {}, 60, "max"),
    buildSeriesCall(url, token, "requests_total", hosts, 60, "counter"),
    buildSeriesCall(url, token, "requests_total", {}, 60, "counter"),
    buildSeriesCall(url, token, "long", hosts, 1_000),
    buildSeriesCall(url, token, "long", {}, 6_000, "mean"),
    { url: `${url}/api/v2/metrics/names/bench`, method: "GET", token } as const,
  ];
  try {
    for (const call of queries) await send(agent, call);
    await sleep(500);
    await bench.readStall(subject.pid, stalls);
    const clients = Array.from({ length: 16 }, async (_, client) => {
      for (let at = 0; at < queries.length; at++) {
        const call = queries[(at + client) % queries.length];
        if (call !== undefined) await send(agent, call);
      }
    });
    await Promise.all(clients);
    const stall = await bench.readStall(subject.pid, stalls);
    return {
      name: "16 dashboards of 10 queries, ours: longest stall",
      unit: "ms",
      value: stall,
      floor: floors.stallMillis,
    };
  } finally {
    await subject.stop();
  }
}
