// Clusters in memory that fail when a test says so: at once, after some steps, or late.
import { setTimeout as wait } from "node:timers/promises";
import { createMemoryKubernetes } from "#resolvers/memory/stores/kubernetes-store.ts";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createMemorySpans } from "#resolvers/memory/stores/span-store.ts";
import { BackendError } from "#src/core/errors.ts";
import type { Backend } from "#src/store/backend.ts";
import type { KubernetesStore } from "#src/store/kubernetes.ts";
import type { LogStore } from "#src/store/logs.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import type { SpanStore } from "#src/store/span-analytics.ts";

/** Fails after so many calls and batches, if it does, and so many milliseconds later. */
export interface Fault {
  readonly after: number;
  readonly delay: number;
  readonly failure: "unreachable" | "timeout" | "partial";
  /** Called for each failure. */
  readonly told?: () => void;
}

export interface Cluster {
  readonly backend: Backend;
  readonly logs: ReturnType<typeof createMemoryLogs>;
  readonly traces: ReturnType<typeof createMemorySpans>;
  readonly metrics: ReturnType<typeof createMemoryMetrics>;
  /** Whole again with undefined. */
  readonly fail: (fault: Fault | undefined) => void;
}

export function openCluster(
  name: string,
  observe: Parameters<typeof createMemoryKubernetes>[0] = () => undefined,
): Cluster {
  let fault: Fault | undefined;
  let steps = 0;
  const step = async (): Promise<void> => {
    steps += 1;
    if (fault === undefined || steps <= fault.after) return;
    const { failure, delay, told } = fault;
    told?.();
    if (delay > 0) await wait(delay);
    throw new BackendError(name, failure, `${name} is made to fail`);
  };
  async function* readBatches<T>(batches: AsyncIterable<T>): AsyncGenerator<T> {
    await step();
    for await (const batch of batches) {
      yield batch;
      await step();
    }
  }
  async function readOnce<T>(answer: Promise<T>): Promise<T> {
    await step();
    return answer;
  }
  const [logs, traces, metrics] = [createMemoryLogs(), createMemorySpans(), createMemoryMetrics(name)];
  const kubernetes = createMemoryKubernetes(observe);
  const { members } = metrics;
  const stores = {
    logs: { ...logs, lines: (...asked) => readBatches(logs.lines(...asked)) } satisfies LogStore,
    traces: {
      ...traces,
      scan: (...asked) => readBatches(traces.scan(...asked)),
      find: (...asked) => readBatches(traces.find(...asked)),
    } satisfies SpanStore,
    metrics: {
      ...metrics,
      names: (...asked) => readOnce(metrics.names(...asked)),
      type: (...asked) => readOnce(metrics.type(...asked)),
      tagKeys: (...asked) => readOnce(metrics.tagKeys(...asked)),
      ...(members && {
        members: { ...members, read: (...asked) => readOnce(members.read(...asked)) },
      }),
    } satisfies MetricStore,
    kubernetes: {
      nodes: (...asked) => readBatches(kubernetes.nodes(...asked)),
      pods: (...asked) => readBatches(kubernetes.pods(...asked)),
      overview: (...asked) => readBatches(kubernetes.overview(...asked)),
    } satisfies KubernetesStore,
  };
  const backend: Backend = {
    name,
    kind: "memory",
    stores,
    inspections: {},
    probe: async () => ({ product: "memory", version: "1" }),
    close: async () => {},
  };
  const fail = (next: Fault | undefined) => {
    fault = next;
    steps = 0;
  };
  return { backend, logs, traces, metrics, fail };
}
