// The backend kind `prometheus`: Prometheus itself and the servers that offer its HTTP API.
import { z } from "zod";
import { duration, httpUrl, parseSettings } from "../../src/config/validation.ts";
import { day, type Millis, toMillis } from "../../src/core/time.ts";
import type { Backend, BackendKind, IO } from "../../src/store/backend.ts";
import type { PartInspection } from "../../src/store/inspection.ts";
import type { ForcedLabels } from "../../src/store/metrics.ts";
import { chooseLogin, createConnectionSchema, logins, openLogin, readTls } from "../http/connection.ts";
import { guardDefaults } from "../http/guard.ts";
import { createPrometheusClient, type PrometheusClient } from "./client/client.ts";
import type { ClientSettings } from "./client/transport.ts";
import { findNewestSample, findNewestSnapshot, surveyMetrics } from "./discovery.ts";
import { inspectCluster } from "./kubernetes/coverage.ts";
import { createKubernetesStore } from "./kubernetes/kubernetes-store.ts";
import { createMetricFamilies, type MetricFamilies } from "./metrics/metric-families.ts";
import { createMetricStore } from "./metrics/metric-store.ts";
import { describeReplicaLabels } from "./replica-labels.ts";
import { createBucketMemory } from "./settled/bucket-memory.ts";
import type { SettledValues } from "./settled/settled-series.ts";

const login = chooseLogin(
  [logins.basic, logins.bearer, logins.oauth2, logins.aws("aps")],
  "expected { username, password }, { bearer }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: aps } }",
);

const settings = z.strictObject({
  /** With the path under which `/api/v1` lies, such as `https://mimir/prometheus`. */
  url: httpUrl,
  auth: login.optional(),
  ...createConnectionSchema("30s"),
  /** Samples that are older no longer change, so that values of theirs may be kept. */
  settled: duration(366 * day).optional(),
});
type PrometheusConfig = z.infer<typeof settings>;

/** A server evaluates 20 queries at once. Others wait here, where a client that disconnects removes its own. */
const maxConcurrent = 16;
/** One request for metrics sends some dozens of queries, and its own deadline bounds how long they wait. */
const maxQueued = 4_096;

export const prometheus: BackendKind<PrometheusConfig> = {
  kind: "prometheus",
  parseConfig: (value) => parseSettings(settings, value),
  create(name, config, io): Backend {
    const client = createPrometheusClient(name, toClientSettings(name, config, io), io);
    const families = createMetricFamilies(name, client, io);
    return {
      name,
      kind: "prometheus",
      stores: {
        metrics: createMetricStore(name, client, families, openSettledValues(name, config, io)),
        kubernetes: createKubernetesStore(name, client),
      },
      probe: (signal) => client.probe(signal),
      readClock: (signal) => client.readClock(signal),
      inspections: {
        metrics: (match, signal) => inspectMetrics(client, families, match, toMillis(io.now()), signal),
        kubernetes: (match, signal) => inspectCluster(client, match, toMillis(io.now()), signal),
      },
      findNewest: {
        metrics: (match, signal) => findNewestSample(client, match, toMillis(io.now()), signal),
        kubernetes: (match, signal) => findNewestSnapshot(client, match, toMillis(io.now()), signal),
      },
      survey: (_, signal) => surveyMetrics(client, families, toMillis(io.now()), signal),
      close: () => client.close(),
    };
  },
};

/** What is kept lives as long as the backend, that is until its configuration changes. */
function openSettledValues(
  backend: string,
  { settled: age }: PrometheusConfig,
  io: IO,
): SettledValues | undefined {
  if (age === undefined || io.metricCacheBytes === 0) return undefined;
  const recordBytes = (bytes: number) => io.recordMetricCacheBytes?.(backend, bytes);
  return {
    backend,
    memory: createBucketMemory(io.metricCacheBytes, recordBytes),
    age,
    now: () => toMillis(io.now()),
    recordLookup: (hit) => io.recordCacheLookup("metric_values", hit),
  };
}

/** With the labels of replicated scrapers, which make every sum wrong. @throws {BackendError} */
async function inspectMetrics(
  client: PrometheusClient,
  families: MetricFamilies,
  match: ForcedLabels,
  now: Millis,
  signal: AbortSignal,
): Promise<PartInspection> {
  const report = await families.inspect(match, signal);
  const names = await families.listNames(match, signal);
  const replicas = await describeReplicaLabels(client, match, names, now, signal);
  return { ...report, problems: [...report.problems, ...replicas] };
}

function toClientSettings(
  name: string,
  { url, auth, tls, headers, timeout, answer_bytes: answerBytes }: PrometheusConfig,
  io: IO,
): ClientSettings {
  return {
    ...guardDefaults,
    concurrent: maxConcurrent,
    queued: maxQueued,
    url,
    auth: openLogin(name, auth, io),
    tls: readTls(tls, io),
    headers,
    timeout,
    answerBytes,
  };
}
