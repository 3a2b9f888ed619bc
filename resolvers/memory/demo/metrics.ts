// Metrics of the generated sites, measured every half minute from the same requests as their traces, and on the hosts of
// the sites, by the names and units of the host agents. Processes start anew every three hours, so that counters fall as real ones do, and so that what
// they show depends on the seed and the time alone: nothing older has to be added up.
import { hour, type Millis, second } from "../../../src/core/time.ts";
import type { AppendSample, MemoryMetrics } from "../stores/metric-store.ts";
import { createRandom, type Random } from "./seeded-random.ts";
import { type DemoSite, demoSites, generateRequest } from "./workload.ts";

const step: Millis = 30 * second;
const deployEvery: Millis = 3 * hour;
/** How far back the samples reach, but for the time since the deploy before. */
const history: Millis = 3 * hour;

/** The labels that a site's metrics part has to force. */
export const metricMatches = demoSites.map(({ name }) => ({ site: `demo-${name}` }));

interface Measurements {
  /** Makes the samples up to this time, and forgets old ones. */
  readonly catchUp: (now: Millis) => void;
}

export function createMeasurements(seed: number, metrics: MemoryMetrics): Measurements {
  const measured = demoSites.map((site) => createSiteMetrics(seed, site, metrics));
  let made = Number.NEGATIVE_INFINITY;
  return {
    catchUp: (now) => {
      const oldest = Math.floor((now - history) / deployEvery) * deployEvery;
      made = Math.max(made, oldest);
      for (; made + step <= now; made += step) for (const measure of measured) measure(made);
      metrics.forget(oldest);
    },
  };
}

// ---- One site -----------------------------------------------------------------------------------------------

const queues = ["default", "mail", "low"] as const;
const jobs = ["SendMailJob#perform", "ReindexJob#perform", "ThumbnailJob#perform"] as const;

/** Measures the half minute that begins at `from`; the samples carry its end. */
function createSiteMetrics(seed: number, site: DemoSite, metrics: MemoryMetrics): (from: Millis) => void {
  const own = { site: `demo-${site.name}` };
  const counter = (metric: string, labels: Readonly<Record<string, string>> = {}) =>
    createCounter(metrics.append(metric, "counter", "value", { ...own, ...labels }));
  const gauge = (metric: string, labels: Readonly<Record<string, string>>) =>
    metrics.append(metric, "gauge", "value", { ...own, ...labels });
  const histogram = (metric: string, labels: Readonly<Record<string, string>>) =>
    createHistogram(metrics, metric, { ...own, ...labels });

  const throughput = counter("site_throughput");
  const errorRates = {
    web: gauge("error_rate", { namespace: "web" }),
    background: gauge("error_rate", { namespace: "background" }),
  };
  const durations = new Map(
    site.actions.map(({ name }) => [
      name,
      histogram("transaction_duration", { namespace: "web", action: name }),
    ]),
  );
  const jobDurations = jobs.map((action) =>
    histogram("transaction_duration", { namespace: "background", action }),
  );
  const queued = queues.map((queue) => ({
    processed: counter("active_job_queue_job_count", { queue, status: "processed" }),
    failed: counter("active_job_queue_job_count", { queue, status: "failed" }),
    waited: histogram("active_job_queue_time", { queue }),
  }));
  const hosts = Array.from({ length: site.hosts }, (_, n) =>
    createHostMetrics(`${site.name}-web-${n + 1}`, n, gauge),
  );
  const recorders = [
    throughput,
    ...durations.values(),
    ...jobDurations,
    ...queued.flatMap((one) => Object.values(one)),
  ];

  return (from) => {
    const random = createRandom(`${seed} ${site.name} measured ${from}`);
    const time = from + step;
    if (from % deployEvery === 0) for (const { restart } of recorders) restart();
    const { requests, failures } = recordRequests(seed, site, from, random, throughput, durations);
    errorRates.web(time, computePercentage(failures, requests));
    const { ran, broken } = recordJobs(queued, jobDurations, random);
    errorRates.background(time, computePercentage(broken, ran));
    for (const { sample } of recorders) sample(time);
    for (const host of hosts) host(time, random, requests);
  };
}

/** Records the requests of the half minute that begins at `from`. */
function recordRequests(
  seed: number,
  site: DemoSite,
  from: Millis,
  random: Random,
  throughput: MetricRecorder,
  durations: ReadonlyMap<string, MetricRecorder>,
): { readonly requests: number; readonly failures: number } {
  let requests = 0;
  let failures = 0;
  for (let slot = from / second; slot < (from + step) / second; slot += 1) {
    const request = generateRequest(seed, site, slot);
    if (request === undefined) continue;
    const { name } = request.action;
    requests += 1;
    if (request.failed) failures += 1;
    throughput.record(1);
    durations.get(name)?.record(drawDuration(random, name, request.failed ? 2 : 1));
  }
  return { requests, failures };
}

interface QueueRecorders {
  readonly processed: MetricRecorder;
  readonly failed: MetricRecorder;
  readonly waited: MetricRecorder;
}

/** Records some jobs of each queue. */
function recordJobs(
  queued: readonly QueueRecorders[],
  jobDurations: readonly MetricRecorder[],
  random: Random,
): { readonly ran: number; readonly broken: number } {
  let ran = 0;
  let broken = 0;
  for (const [index, { processed, failed, waited }] of queued.entries()) {
    for (let count = Math.floor(random() * (4 - index)); count > 0; count -= 1) {
      const bad = random() < 0.02 * (index + 1);
      (bad ? failed : processed).record(1);
      waited.record(drawDuration(random, queues[index] ?? "", 4));
      jobDurations[index]?.record(drawDuration(random, jobs[index] ?? "", 5));
      ran += 1;
      if (bad) broken += 1;
    }
  }
  return { ran, broken };
}

/** A percentage; of nothing it is 0. */
function computePercentage(part: number, whole: number): number {
  return whole === 0 ? 0 : (100 * part) / whole;
}

/** Milliseconds, most of them near a length of the action's own and a few much longer. */
function drawDuration(random: Random, action: string, factor: number): number {
  const usual = 8 + (action.length % 7) * 22;
  return Math.round(usual * factor * Math.exp(1.6 * (random() + random() + random() - 1.5)) * 100) / 100;
}

// ---- What is measured ---------------------------------------------------------------------------------------

interface MetricRecorder {
  readonly record: (value: number) => void;
  readonly restart: () => void;
  readonly sample: (time: Millis) => void;
}

function createCounter(append: AppendSample): MetricRecorder {
  let total = 0;
  return {
    record: (value) => {
      total += value;
    },
    restart: () => {
      total = 0;
    },
    sample: (time) => append(time, total),
  };
}

/** In milliseconds. */
const bounds = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, Number.POSITIVE_INFINITY];

function createHistogram(
  metrics: MemoryMetrics,
  metric: string,
  labels: Readonly<Record<string, string>>,
): MetricRecorder {
  const part = (name: "bucket" | "sum" | "count", extra: Readonly<Record<string, string>> = {}) =>
    createCounter(metrics.append(metric, "histogram", name, { ...labels, ...extra }));
  const buckets = bounds.map((bound) => ({
    bound,
    counter: part("bucket", { le: Number.isFinite(bound) ? String(bound) : "+Inf" }),
  }));
  const count = part("count");
  const sum = part("sum");
  const parts = [count, sum, ...buckets.map(({ counter }) => counter)];
  return {
    record: (value) => {
      count.record(1);
      sum.record(value);
      for (const { bound, counter } of buckets) if (value <= bound) counter.record(1);
    },
    restart: () => {
      for (const { restart } of parts) restart();
    },
    sample: (time) => {
      for (const { sample } of parts) sample(time);
    },
  };
}

/** A host, the busier the more requests there are. Disks fill up for a week and are then cleaned. Memory is in megabytes. */
function createHostMetrics(
  hostname: string,
  number: number,
  gauge: (metric: string, labels: Readonly<Record<string, string>>) => AppendSample,
): (time: Millis, random: Random, requests: number) => void {
  const cpu = ["user", "system", "idle", "total_usage"].map((state) => gauge("cpu", { hostname, state }));
  const memory = ["used", "free", "total"].map((state) => gauge("memory", { hostname, state }));
  const swap = ["used", "total"].map((state) => gauge("swap", { hostname, state }));
  const load = gauge("load_avg", { hostname });
  const disks = ["/", "/var/lib"].map((mountpoint) => gauge("disk_usage", { hostname, mountpoint }));
  const put = (appends: readonly AppendSample[], time: Millis, values: readonly number[]) => {
    for (const [index, append] of appends.entries())
      append(time, Math.round((values[index] ?? 0) * 100) / 100);
  };
  return (time, random, requests) => {
    const tide = (1 + Math.sin((2 * Math.PI * time) / (24 * hour))) / 2;
    // Hosts take their batch work one after the other.
    const batch = (1 + Math.sin((2 * Math.PI * time) / (hour / 3) + number)) / 2;
    const busy = 4 + 12 * tide + 15 * batch + requests * 1.5 + random() * 6;
    const total = busy * 1.25;
    put(cpu, time, [busy, busy / 4, 100 - total, total]);
    const used = 2_600 + 900 * tide + 300 * batch + number * 130 + random() * 80;
    put(memory, time, [used, 8_192 - used, 8_192]);
    put(swap, time, [64 + 32 * tide, 2_048]);
    put([load], time, [(busy / 100) * 4 + random() * 0.2]);
    const week = (time % (168 * hour)) / (168 * hour);
    put(disks, time, [41 + 9 * week + number, 55 + 30 * week + number]);
  };
}
