// Prometheus, and what speaks its HTTP API, as one kind of backend.
import type { z } from "zod";
import { httpUrl } from "../../src/config/http-url.ts";
import { readSettings, strict } from "../../src/config/validation.ts";
import { parseDuration, toMillis } from "../../src/core/time.ts";
import type { Backend, BackendKind, IO } from "../../src/store/store.ts";
import { basicOrBearer, connection, readTls } from "../http/connection.ts";
import { guardDefaults } from "../http/guard.ts";
import { type DoorSettings, openDoor } from "./client/client.ts";
import { surveyMetrics } from "./discovery.ts";
import { inspectCluster } from "./kubernetes/coverage.ts";
import { createKubernetesStore } from "./kubernetes/kubernetes-store.ts";
import { createFamilies } from "./metrics/metric-families.ts";
import { createMetricStore } from "./metrics/metric-store.ts";

const settings = strict({
  /** With the path under which `/api/v1` lies, such as `https://mimir/prometheus`. */
  url: httpUrl,
  auth: basicOrBearer.optional(),
  ...connection("30s"),
});
type PrometheusConfig = z.infer<typeof settings>;

/** A server evaluates 20 queries at once; the rest wait better here, where their clients can leave. */
const concurrent = 16;
/** One request for metrics asks some dozens of questions, and its own deadline bounds how long they wait. */
const queued = 4_096;

export const prometheus: BackendKind<PrometheusConfig> = {
  kind: "prometheus",
  parseConfig: (value) => readSettings(settings, value),
  create(name, config, io): Backend {
    const door = openDoor(name, doorSettings(config, io), io);
    const families = createFamilies(name, door, io);
    return {
      name,
      kind: "prometheus",
      stores: {
        metrics: createMetricStore(name, door, families),
        kubernetes: createKubernetesStore(door),
      },
      probe: (signal) => door.probe(signal),
      inspections: {
        metrics: families.inspect,
        kubernetes: (match, signal) => inspectCluster(door, match, toMillis(io.now()), signal),
      },
      survey: (_, signal) => surveyMetrics(door, families, toMillis(io.now()), signal),
      close: () => door.close(),
    };
  },
};

function doorSettings(
  { url, auth, tls, headers, timeout, answer_bytes: answerBytes }: PrometheusConfig,
  io: IO,
): DoorSettings {
  return {
    ...guardDefaults,
    concurrent,
    queued,
    url,
    auth,
    tls: readTls(tls, io),
    headers,
    timeout: parseDuration(timeout) ?? guardDefaults.timeout,
    answerBytes,
  };
}
