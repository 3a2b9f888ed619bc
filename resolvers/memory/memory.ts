// The embedded backend: generated data that grow while the program runs. Lines depend on the seed and the time
// alone, so two instances with one seed and one clock hold the same.
import * as z from "zod";
import { parseNumeral, parseSettings } from "../../src/config/validation.ts";
import { yieldToEventLoop } from "../../src/core/async/turns.ts";
import {
  day,
  fromMillis,
  hour,
  type Instant,
  later,
  minute,
  type TimeRange,
  toMillis,
} from "../../src/core/time.ts";
import type { Backend, BackendKind } from "../../src/store/backend.ts";
import type { PartInspection, SourceInspection } from "../../src/store/inspection.ts";
import type { ForcedLabels } from "../../src/store/metrics.ts";
import { clusterMatch, observeCluster } from "./demo/cluster.ts";
import { generateLines, logIndices } from "./demo/logs.ts";
import { createMeasurements, metricMatches } from "./demo/metrics.ts";
import { generateSpans, traceIndices } from "./demo/traces.ts";
import { createMemoryKubernetes, type Observation } from "./stores/kubernetes-store.ts";
import { createMemoryLogs } from "./stores/log-store.ts";
import { createMemoryMetrics, type MemoryMetrics } from "./stores/metric-store.ts";
import { createMemoryReports } from "./stores/report-store.ts";
import { createMemorySpans, type MemorySpans } from "./stores/span-store.ts";

const settings = z.strictObject({
  /** The same seed gives the same lines at the same times. */
  seed: z.preprocess(parseNumeral, z.int()).default(1),
});
type MemorySettings = z.output<typeof settings>;

/** How far back the data reach at the start. */
const history = fromMillis(hour);
/** How long a line is kept, so that a demo that is left running does not grow for ever. */
const retention = fromMillis(3 * hour);
/** Lines are made when somebody reads; once somebody has, this keeps what is then owed small. */
const catchUpInterval = minute;
/** How far back the cluster can be observed. It is made anew for each question, so nothing of it is kept. */
const clusterHistory = 7 * day;

export const memory: BackendKind<MemorySettings> = {
  kind: "memory",
  parseConfig: (value) => parseSettings(settings, value),
  create: (name, { seed }, io): Backend => {
    const logs = createMemoryLogs();
    const spans = createMemorySpans();
    const reports = createMemoryReports(spans);
    // Neither is made before somebody asks for it: a start does not wait, and most who ask want one of the two.
    const writeLines = createCatchUp(io.now, ({ from, to, forgotten }) => {
      for (const index of logIndices) {
        logs.add(index, generateLines(seed, index, { from, to }));
        logs.forget(index, forgotten);
      }
    });
    const writeSpans = createCatchUp(io.now, ({ from, to, forgotten }) => {
      for (const index of traceIndices) {
        spans.add(index, generateSpans(seed, index, { from, to }));
        spans.forget(index, forgotten);
      }
      reports.forget(forgotten);
    });
    const metrics = createMemoryMetrics(name);
    const measurements = createMeasurements(seed, metrics);
    // Nothing is measured before somebody asks: most of what is served are logs.
    const measure = () => measurements.catchUp(toMillis(io.now()));
    const kubernetes = createMemoryKubernetes((match, time) => {
      const now = toMillis(io.now());
      return time > now || time < now - clusterHistory ? undefined : observeCluster(seed, match, time);
    });
    const timer = setInterval(() => {
      writeLines.catchUpIfStarted();
      writeSpans.catchUpIfStarted();
    }, catchUpInterval).unref();
    return {
      name,
      kind: "memory",
      stores: {
        logs: wrapWithCatchUp(logs, writeLines.catchUp),
        metrics: wrapWithCatchUp(metrics, measure),
        kubernetes,
        traces: wrapWithCatchUp(spans, writeSpans.catchUp),
        reports,
      },
      probe: async () => ({ product: "memory", version: "generated" }),
      inspections: {
        reports: async ({ index }) => ({
          found: [`index ${index}, kept while the program runs`],
          limitations: [],
          problems: [],
        }),
        // Neither makes the data: a start inspects every source. All take turns with requests: a reload may inspect ten thousand.
        logs: async ({ index, tenantFilter }) => {
          await yieldToEventLoop();
          const newest = (name: string) =>
            findNewest(io.now(), (range) => generateLines(seed, name, range).map(({ time }) => time));
          return describeIndices([index], tenantFilter, { indices: () => logIndices, newest });
        },
        traces: async ({ index, tenantFilter }) => {
          await yieldToEventLoop();
          // Indices of reports hold nothing generated.
          const newest = (name: string) =>
            spans.newest(name) ??
            findNewest(io.now(), (range) => generateSpans(seed, name, range).map(({ end }) => end));
          const indices = () => [...new Set([...traceIndices, ...spans.indices()])];
          return describeIndices(index.split(","), tenantFilter, { indices, newest });
        },
        metrics: async (match) => {
          await yieldToEventLoop();
          measure();
          return describeMetrics(metrics, match);
        },
        kubernetes: async (match) => {
          await yieldToEventLoop();
          return describeCluster(observeCluster(seed, match, toMillis(io.now())));
        },
      },
      close: async () => clearInterval(timer),
    };
  },
};

interface CatchUp {
  /** Makes what is owed since the last time, at first since `history`. */
  readonly catchUp: () => void;
  /** The same, but nothing before the first `catchUp`. */
  readonly catchUpIfStarted: () => void;
}

/** What is older than `forgotten` may be dropped. */
function createCatchUp(
  now: () => Instant,
  make: (range: TimeRange & { readonly forgotten: Instant }) => void,
): CatchUp {
  let made = (now() - history) as Instant;
  let isStarted = false;
  const catchUp = (): void => {
    isStarted = true;
    const to = now();
    if (to < made) return;
    const forgotten = (to - retention) as Instant;
    // After a machine has slept, what would be forgotten at once is not made.
    make({ from: made > forgotten ? made : forgotten, to, forgotten });
    made = to;
  };
  return { catchUp, catchUpIfStarted: () => isStarted && catchUp() };
}

/** The newest of the generated times, looked for in ever longer windows that end now. */
function findNewest(now: Instant, listTimes: (range: TimeRange) => readonly Instant[]): Instant | undefined {
  for (let length = minute; length <= hour; length *= 4) {
    const times = listTimes({ from: (now - fromMillis(length)) as Instant, to: now });
    if (times.length > 0) return times.reduce(later);
  }
  return undefined;
}

/** A store whose data are made up to now whenever it is used. */
function wrapWithCatchUp<Store extends object>(store: Store, catchUp: () => void): Store {
  return new Proxy(store, {
    get: (target, key, self) => {
      catchUp();
      return Reflect.get(target, key, self);
    },
  });
}

function describeMetrics(metrics: MemoryMetrics, match: ForcedLabels): PartInspection {
  const types = metrics.count(match);
  if (types.size === 0) {
    const known = metricMatches.map(({ site }) => `{ site: ${site} }`).join(" and ");
    return {
      found: [],
      limitations: [],
      problems: [`match: no generated metrics have these labels; there are ${known}`],
    };
  }
  const found = [...types].map(([type, count]) => `${count} ${type}${count === 1 ? "" : "s"}`);
  return { found: [`generated: ${found.join(", ")}`], limitations: [], problems: [] };
}

function describeCluster(observed: Observation | undefined): PartInspection {
  if (observed !== undefined) {
    const { nodes, pods } = observed;
    const found = [`a generated cluster of ${nodes.length} nodes and ${pods.length} pods`];
    return { found, limitations: [], problems: [] };
  }
  const tenantFilter = Object.entries(clusterMatch).map(([label, value]) => `${label}: ${value}`);
  const problems = [`match: the generated cluster has the labels { ${tenantFilter.join(", ")} }`];
  return { found: [], limitations: [], problems };
}

function describeIndices(
  indices: readonly string[],
  tenantFilter: string | undefined,
  held: Pick<MemorySpans, "indices" | "newest">,
): SourceInspection {
  const known = held.indices();
  const missing = indices.filter((index) => !known.includes(index));
  const fault = tenantFilter === undefined ? undefined : "where: generated data have no tenant filter";
  return {
    layout: "memory",
    indices: indices.length - missing.length,
    newest: indices
      .filter((index) => known.includes(index))
      .map(held.newest)
      .reduce((a, b) => (a !== undefined && (b === undefined || a > b) ? a : b), undefined),
    limitations: [],
    problems: [
      ...missing.map((index) => `there is no index ${index}; there are ${known.join(", ")}`),
      ...(fault === undefined ? [] : [fault]),
    ],
    ...(fault !== undefined && { tenantFilterFault: fault }),
  };
}
