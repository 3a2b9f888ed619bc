// Real Prometheus servers for the tests: 2.42 from the distribution's package and 3.x built once from its Go module into
// the cache. Each start is a server of its own, filled from OpenMetrics text by promtool before it serves.

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { findFreePort } from "../support/free-port.ts";
import { type Daemon, launch } from "./daemon.ts";
import { buildGoPrograms } from "./go-programs.ts";
import { requireProgram, run } from "./host.ts";

interface PrometheusServer {
  readonly product: "prometheus";
  readonly version: string;
  /** A version of the Go module `github.com/prometheus/prometheus`; without one the installed program is meant. */
  readonly module?: string;
}

export const prometheusServers = {
  prom2: { product: "prometheus", version: "2.42.0" },
  prom3: { product: "prometheus", version: "3.15.0", module: "v0.315.0" },
} as const satisfies Record<string, PrometheusServer>;

export type PrometheusName = keyof typeof prometheusServers;

export const prometheusNames = Object.keys(prometheusServers) as readonly PrometheusName[];

export interface RunningPrometheus {
  readonly name: PrometheusName;
  readonly product: "prometheus";
  readonly version: string;
  /** Without a trailing slash. It takes remote writes. */
  readonly url: string;
  readonly pid: number;
  readonly stop: () => Promise<void>;
}

const startMillis = 60_000;

/** What a server finds when it starts, and keeps when it stops. */
export interface KeptData {
  /** Its data directory, which the caller removes. */
  readonly data: string;
  /** `host:port` of a target that is scraped every second. */
  readonly target?: string;
}

/** OpenMetrics text, in pieces if it is too long for one string. */
export interface LongText {
  readonly pieces: Iterable<string>;
  /** Of a block, such as `744h`: each block costs a pass over the text. */
  readonly blockLength: string;
}

/**
 * Starts a server that holds these samples and no others, or what `kept` holds, with `features` beside native histograms,
 * and `flags` beside its own.
 * @throws {Error} with the last lines of its log
 */
export async function startPrometheus(
  name: PrometheusName,
  openMetrics: string | LongText,
  signal?: AbortSignal,
  features: readonly string[] = [],
  kept?: KeptData,
  flags: readonly string[] = [],
): Promise<RunningPrometheus> {
  const { program, promtool } = await findPrometheus(name, signal);
  const folder = await mkdtemp(join(tmpdir(), `readout-${name}-`));
  let daemon: Daemon | undefined;
  try {
    const data = kept?.data ?? join(folder, "data");
    await mkdir(data, { recursive: true });
    if (openMetrics !== "") await fill(promtool, join(folder, "samples.txt"), data, openMetrics, signal);
    const config = join(folder, "prometheus.yml");
    // The label takes no part in queries; it proves whose the answering server is.
    const scrapes =
      kept?.target === undefined
        ? ""
        : `scrape_configs: [{ job_name: app, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{ targets: ["${kept.target}"] }] }]\n`;
    await writeFile(config, `global: { external_labels: { run: ${basename(folder)} } }\n${scrapes}`);
    const port = await findFreePort();
    const url = `http://127.0.0.1:${port}`;
    const args = [
      `--config.file=${config}`,
      `--storage.tsdb.path=${data}`,
      "--storage.tsdb.retention.time=100y",
      `--web.listen-address=127.0.0.1:${port}`,
      "--web.enable-remote-write-receiver",
      `--enable-feature=${["native-histograms", ...features].join()}`,
      ...flags,
    ];
    daemon = await launch({ program, args }, folder);
    await awaitReady(url, basename(folder), daemon, signal);
    const { version } = prometheusServers[name];
    return { name, product: "prometheus", version, url, pid: daemon.pid ?? 0, stop: daemon.stop };
  } catch (error) {
    await (daemon?.kill() ?? rm(folder, { recursive: true, force: true }));
    throw error;
  }
}

/** Makes blocks of the text, which reach as far back as its samples. */
async function fill(
  promtool: string,
  file: string,
  data: string,
  openMetrics: string | LongText,
  signal?: AbortSignal,
): Promise<void> {
  const isLong = typeof openMetrics !== "string";
  await writeFile(file, isLong ? openMetrics.pieces : openMetrics);
  // Years of two-hour blocks would take minutes to write.
  const blocks = `--max-block-duration=${isLong ? openMetrics.blockLength : "48h"}`;
  await run(promtool, ["tsdb", "create-blocks-from", "openmetrics", blocks, file, data], signal);
  await rm(file);
}

interface Programs {
  readonly program: string;
  /** Of the same version: older ones know no names that need quotes. */
  readonly promtool: string;
}

/** The programs of a server, built first where the cache does not hold them. */
export async function findPrometheus(name: PrometheusName, signal?: AbortSignal): Promise<Programs> {
  const { module }: PrometheusServer = prometheusServers[name];
  if (module === undefined) {
    for (const program of ["prometheus", "promtool"]) requireProgram(program, "prometheus");
    return { program: "prometheus", promtool: "promtool" };
  }
  const version = `-X github.com/prometheus/common/version.Version=${prometheusServers[name].version}`;
  const folder = await buildGoPrograms(
    {
      folder: `prometheus-${module}`,
      module: "github.com/prometheus/prometheus",
      version: module,
      packages: ["cmd/prometheus", "cmd/promtool"],
      // Without the clouds' service discoveries it is built in minutes; the tests scrape nothing.
      flags: ["-tags=remove_all_sd", `-ldflags=-s -w ${version}`],
    },
    signal,
  );
  return { program: join(folder, "prometheus"), promtool: join(folder, "promtool") };
}

async function awaitReady(url: string, run: string, daemon: Daemon, signal?: AbortSignal): Promise<void> {
  const deadline = Date.now() + startMillis;
  while (!(await isReady(url, run))) {
    signal?.throwIfAborted();
    const ended = daemon.ended();
    const late = Date.now() > deadline;
    if (ended !== undefined || late) {
      const what = ended === undefined ? `was not ready in ${startMillis} ms` : `ended with ${ended}`;
      throw new Error(`Prometheus ${what}. The last lines of its log:\n${await daemon.tail()}`);
    }
    await delay(100);
  }
}

async function isReady(url: string, run: string): Promise<boolean> {
  try {
    const patience = AbortSignal.timeout(5_000);
    if (!(await fetch(`${url}/-/ready`, { signal: patience })).ok) return false;
    return (await (await fetch(`${url}/api/v1/status/config`, { signal: patience })).text()).includes(run);
  } catch {
    return false; // not listening yet
  }
}
