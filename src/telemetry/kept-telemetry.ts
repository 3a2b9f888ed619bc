// The metrics of what is kept between requests. They belong to one configuration, and end with it.
import { Counter, Gauge, type Registry } from "prom-client";
import type { Millis } from "../core/time.ts";

export interface KeptTelemetry {
  /** Reports how many bytes of memory kept figures of a backend's spans take. */
  readonly recordRollupBytes: (backend: string, bytes: number) => void;
  readonly recordMetricCacheBytes: (backend: string, bytes: number) => void;
  /** Reports one step in which figures of a site were made or proved, and what is kept after it. */
  readonly recordRolled: (step: RolledStep) => void;
  /** Nothing is kept any more. Values that another configuration has set stay. */
  readonly close: () => void;
}

export interface RolledStep {
  readonly backend: string;
  readonly site: string;
  /** Such as `site_edges`. */
  readonly kind: string;
  readonly took: Millis;
  /** Documents that were read. */
  readonly documents: number;
  readonly segments: number;
  readonly bytes: number;
  /** How far back all segments are there. */
  readonly reach: Millis;
}

/** What it returns makes one for each configuration. */
export function createKeptTelemetry(registers: Registry[]): () => KeptTelemetry {
  const rollups = createOwnedGauge({
    name: "readout_rollup_bytes",
    help: "Memory that kept figures of spans take, estimated, by backend",
    labelNames: ["backend"],
    registers,
  });
  const metricValues = createOwnedGauge({
    name: "readout_metric_cache_bytes",
    help: "Memory that kept values of metrics take, estimated, by backend",
    labelNames: ["backend"],
    registers,
  });
  const labelNames = ["backend", "site", "kind"] as const;
  const settings = (name: string, help: string) => ({
    name: `readout_rolled_${name}`,
    help,
    labelNames,
    registers,
  });
  const seconds = new Counter(
    settings("seconds_total", "Time in which figures of spans were made for an index"),
  );
  const read = new Counter(settings("documents_total", "Documents that were read for that"));
  const segments = createOwnedGauge(
    settings("segments", "Segments whose figures the index keeps, as this instance last saw it"),
  );
  const bytes = createOwnedGauge(settings("bytes", "Bytes of their documents"));
  const reaches = createOwnedGauge(settings("reach_seconds", "How far back the figures reach without a gap"));
  let opened = 0;
  return () => {
    const owner = opened;
    opened += 1;
    return {
      recordRollupBytes: (backend, bytes) => rollups.set(owner, { backend }, bytes),
      recordMetricCacheBytes: (backend, bytes) => metricValues.set(owner, { backend }, bytes),
      recordRolled: ({ backend, site, kind, took, documents, ...kept }) => {
        const labels = { backend, site, kind };
        seconds.inc(labels, took / 1_000);
        read.inc(labels, documents);
        segments.set(owner, labels, kept.segments);
        bytes.set(owner, labels, kept.bytes);
        reaches.set(owner, labels, kept.reach / 1_000);
      },
      close: () => {
        for (const gauge of [rollups, metricValues, segments, bytes, reaches]) gauge.removeOf(owner);
      },
    };
  };
}

/** Owners are numbered in the order in which they were opened. The last one that has set a value shows its own. */
interface OwnedGauge {
  readonly set: (owner: number, labels: Readonly<Record<string, string>>, value: number) => void;
  readonly removeOf: (owner: number) => void;
}

function createOwnedGauge(settings: ConstructorParameters<typeof Gauge<string>>[0]): OwnedGauge {
  const gauge = new Gauge(settings);
  const valuesByLabels = new Map<string, Map<number, number>>();
  const show = (text: string, values: ReadonlyMap<number, number>): void => {
    const newest = values.get(Math.max(...values.keys()));
    if (newest === undefined) {
      valuesByLabels.delete(text);
      gauge.remove(JSON.parse(text));
    } else gauge.set(JSON.parse(text), newest);
  };
  return {
    set(owner, labels, value) {
      const text = JSON.stringify(labels);
      const values = valuesByLabels.get(text) ?? new Map<number, number>();
      valuesByLabels.set(text, values.set(owner, value));
      show(text, values);
    },
    removeOf(owner) {
      for (const [text, values] of valuesByLabels) if (values.delete(owner)) show(text, values);
    },
  };
}
