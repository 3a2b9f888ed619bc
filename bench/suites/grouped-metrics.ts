// Questions as dashboards ask them: many series over a long range, few series in the answer. Beside each stands what
// Prometheus itself asks for with `increase` and its like, which estimates, asked in the same rounds.

import { mkdtemp, rm } from "node:fs/promises";
import type { Agent } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hour, type Millis, minute } from "../../src/core/time.ts";
import { resolutions } from "../../src/metrics/measures.ts";
import { type PrometheusName, prometheusServers, startPrometheus } from "../../test/servers/prometheus.ts";
import { gauges, long, printCounters, wide } from "../fixtures/restarting-counters.ts";
import { type Call, send } from "../harness/http-client.ts";
import { readCpuMillis, type Subject } from "../harness/process.ts";
import { calculateMedian, type Figure, summarise } from "../harness/report.ts";

interface GroupedBench {
  readonly agent: Agent;
  readonly token: string;
  readonly rounds: number;
  readonly serve: (yaml: readonly string[]) => Promise<{ subject: Subject; url: string }>;
}

/** The most that our time may be over that of Prometheus itself. */
const floors = { clean: 4, restarted: 6, ungrouped: 2.5 };

const end = Date.UTC(2026, 0, 15, 12);

interface Question {
  readonly title: string;
  readonly metric: string;
  readonly field: string;
  readonly by: readonly string[];
  /** Absent: one value of all the time, as `metrics/list` answers it. */
  readonly resolution?: keyof typeof resolutions | undefined;
  readonly length: Millis;
  readonly aggregation?: string;
  /** What Prometheus is asked, of the selector and the window. */
  readonly direct: (selector: string, window: string) => string;
  readonly series: number;
  readonly floor?: number;
}

function listQuestions(): readonly Question[] {
  return [...listCounterQuestions(), ...listGaugeQuestions()];
}

function listCounterQuestions(): readonly Question[] {
  const month = `${long.series} counters, 30 d`;
  const fleet = `${wide.series.toLocaleString("en")} counters, 6 h`;
  const shapes = [
    { title: `${month} hourly, one series`, of: long, by: [], resolution: "HOURLY", series: 1 },
    { title: `${month} hourly, by path`, of: long, by: ["path"], resolution: "HOURLY", series: long.paths },
    { title: `${month} daily, by host`, of: long, by: ["host"], resolution: "DAILY", series: long.hosts },
    {
      title: `${fleet} minutely, by path`,
      of: wide,
      by: ["path"],
      resolution: "MINUTELY",
      series: wide.paths,
    },
    {
      title: `${fleet} 15-minutely, by host`,
      of: wide,
      by: ["host"],
      resolution: "FIFTEEN_MINUTELY",
      series: wide.hosts,
    },
    {
      title: `${fleet}, one value by path`,
      of: wide,
      by: ["path"],
      resolution: undefined,
      series: wide.paths,
    },
    {
      title: `${month}, one value by path`,
      of: long,
      by: ["path"],
      resolution: undefined,
      series: long.paths,
    },
    {
      title: `${fleet} minutely, all series`,
      of: wide,
      by: ["n"],
      resolution: "MINUTELY",
      series: wide.series,
    },
  ] as const;
  return shapes.flatMap(({ title, of, by, resolution, series }) =>
    [false, true].map((restarts): Question => {
      const isGrouped = series < of.series;
      return {
        title: `${title}${restarts ? ", each restarted once" : ""}`,
        metric: `${of.metric}${restarts ? "_restarted" : ""}_total`,
        field: "counter",
        aggregation: "sum",
        by,
        resolution,
        length: of.length,
        direct: (selector, window) =>
          isGrouped
            ? `sum by (${by.join()}) (increase(${selector}[${window}]))`
            : `increase(${selector}[${window}])`,
        series,
        floor: !isGrouped ? floors.ungrouped : restarts ? floors.restarted : floors.clean,
      };
    }),
  );
}

function listGaugeQuestions(): readonly Question[] {
  const month = {
    metric: "depth",
    by: [],
    resolution: "HOURLY",
    length: long.length,
    series: 1,
    floor: floors.clean,
  } as const;
  return [
    {
      ...month,
      title: "20 gauges, 30 d hourly, mean",
      field: "mean",
      direct: (selector, window) => `avg(avg_over_time(${selector}[${window}]))`,
    },
    {
      ...month,
      title: "20 gauges, 30 d hourly, p_95",
      field: "p_95",
      direct: (selector, window) => `avg(quantile_over_time(0.95, ${selector}[${window}]))`,
    },
    {
      ...month,
      title: "20 gauges, 30 d hourly, p_95, all series",
      field: "p_95",
      by: ["n"],
      series: gauges,
      direct: (selector, window) => `quantile_over_time(0.95, ${selector}[${window}])`,
    },
  ];
}

/** Each question on each version. */
export async function measureGroupedMetrics(bench: GroupedBench): Promise<readonly Figure[]> {
  const data = await mkdtemp(join(tmpdir(), "readout-counters-"));
  const figures: Figure[] = [];
  try {
    let text: Parameters<typeof startPrometheus>[1] = { pieces: printCounters(end), blockLength: "744h" };
    for (const name of Object.keys(prometheusServers) as PrometheusName[]) {
      const source = await startPrometheus(name, text, undefined, [], { data });
      text = "";
      const yaml = [
        `backends: { prom: { kind: prometheus, url: "${source.url}", timeout: 60s } }`,
        "sites: { bench: { metrics: { backend: prom } } }",
      ];
      const server = await bench.serve(yaml);
      try {
        for (const question of listQuestions()) figures.push(await compare(bench, server, source, question));
      } finally {
        await server.subject.stop();
        await source.stop();
      }
    }
  } finally {
    await rm(data, { recursive: true, force: true });
  }
  return figures;
}

/** One question in turns, ours and Prometheus' own. */
async function compare(
  { agent, token, rounds }: GroupedBench,
  { subject, url }: { subject: Subject; url: string },
  source: { url: string; pid: number; version: string },
  question: Question,
): Promise<Figure> {
  const ours = buildOwnCall(url, token, question);
  const direct = buildDirectCall(source.url, question);
  const { body } = await send(agent, ours, true);
  const answered: { series?: unknown[]; rows?: unknown[] } = JSON.parse(body);
  const found = (answered.series ?? answered.rows)?.length;
  if (found !== question.series) throw new Error(`${question.title}: ${found} series`);
  for (let warm = 0; warm < 2; warm++) for (const call of [ours, direct]) await send(agent, call);
  const costs = { ours: [] as Cost[], direct: [] as Cost[] };
  for (let round = 0; round < Math.max(3, Math.min(7, rounds)); round++) {
    costs.ours.push(await measureOne(agent, ours, subject.pid, source.pid));
    costs.direct.push(await measureOne(agent, direct, subject.pid, source.pid));
  }
  const median = (of: "ours" | "direct", what: keyof Cost) =>
    Math.round(calculateMedian(costs[of].map((cost) => cost[what])));
  const ratios = costs.ours.map(({ wall }, round) => wall / (costs.direct[round]?.wall ?? Number.NaN));
  return {
    name: `${source.version}: ${question.title}`,
    unit: "×",
    ...summarise(ratios),
    floor: question.floor,
    note:
      `ours ${median("ours", "wall")} ms (CPU ${median("ours", "own")} + source ${median("ours", "source")}), ` +
      `direct ${median("direct", "wall")} ms (source ${median("direct", "source")})`,
  };
}

/** In milliseconds: the time until the answer, and the CPU time of both programs. */
interface Cost {
  readonly wall: number;
  readonly own: number;
  readonly source: number;
}

async function measureOne(agent: Agent, call: Call, own: number, source: number): Promise<Cost> {
  const before = [readCpuMillis(own), readCpuMillis(source)] as const;
  const { millis } = await send(agent, call);
  return { wall: millis, own: readCpuMillis(own) - before[0], source: readCpuMillis(source) - before[1] };
}

function buildOwnCall(
  url: string,
  token: string,
  { metric, field, aggregation, by, resolution, length }: Question,
): Call {
  const tags = Object.fromEntries(by.map((key) => [key, "*"]));
  const select = { name: metric, tags, field, ...(aggregation !== undefined && { aggregation }) };
  const range = { from: new Date(end - length).toISOString(), to: new Date(end - 1).toISOString() };
  const [route, asked] =
    resolution === undefined
      ? ["list", { select: [{ id: "a", ...select }], group_by: by.map((key) => ({ Tag: key })) }]
      : ["timeseries", { select: [select], resolution }];
  const body = JSON.stringify({ site_id: "bench", ...range, ...asked });
  return { url: `${url}/api/v2/metrics/${route}`, method: "POST", body, token };
}

function buildDirectCall(url: string, { metric, resolution, length, direct }: Question): Call {
  const step = resolution === undefined ? length : resolutions[resolution];
  const window = step % hour === 0 ? `${step / hour}h` : `${step / minute}m`;
  const form = new URLSearchParams({
    query: direct(metric, window),
    start: String((end - length + step) / 1_000),
    end: String(end / 1_000),
    step: String(step / 1_000),
  });
  return { url: `${url}/api/v1/query_range?${form}`, method: "GET" };
}
