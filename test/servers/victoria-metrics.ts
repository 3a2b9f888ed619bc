// VictoriaMetrics for the tests, built once from its Go module into the cache. It starts empty and takes remote writes, in
// any order of time.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { findFreePort } from "../support/free-port.ts";
import { type Daemon, launch } from "./daemon.ts";
import { buildGoPrograms } from "./go-programs.ts";

export const victoriaMetrics = { product: "victoriametrics", version: "1.151.0" } as const;

export interface RunningVictoriaMetrics {
  readonly name: "vm";
  readonly product: "victoriametrics";
  readonly version: string;
  /** Without a trailing slash. */
  readonly url: string;
  /** Makes what was written visible. */
  readonly flush: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

const startMillis = 60_000;

/** With `flags` beside its own. @throws {Error} with the last lines of its log */
export async function startVictoriaMetrics(
  signal?: AbortSignal,
  flags: readonly string[] = [],
): Promise<RunningVictoriaMetrics> {
  const program = await findVictoriaMetrics(signal);
  const folder = await mkdtemp(join(tmpdir(), "readout-vm-"));
  let daemon: Daemon | undefined;
  try {
    const port = await findFreePort();
    const url = `http://127.0.0.1:${port}`;
    const args = [
      `-storageDataPath=${join(folder, "data")}`,
      `-httpListenAddr=127.0.0.1:${port}`,
      "-retentionPeriod=100y",
      // The samples of a run are all it may hold, and nothing is written on the way.
      "-memory.allowedPercent=5",
      "-loggerLevel=WARN",
      // Proves whose the answering server is.
      `-selfScrapeInstance=${basename(folder)}`,
      ...flags,
    ];
    daemon = await launch({ program, args }, folder);
    await awaitReady(url, basename(folder), daemon, signal);
    const flush = async () => {
      const answer = await fetch(`${url}/internal/force_flush`);
      if (!answer.ok) throw new Error(`flush: ${answer.status}`);
    };
    const { version } = victoriaMetrics;
    return { name: "vm", product: "victoriametrics", version, url, flush, stop: daemon.stop };
  } catch (error) {
    await (daemon?.kill() ?? rm(folder, { recursive: true, force: true }));
    throw error;
  }
}

/** The program, built first where the cache does not hold it. */
export async function findVictoriaMetrics(signal?: AbortSignal): Promise<string> {
  const { version } = victoriaMetrics;
  const folder = await buildGoPrograms(
    {
      folder: `victoria-metrics-v${version}`,
      module: "github.com/VictoriaMetrics/VictoriaMetrics",
      version: `v${version}`,
      packages: ["app/victoria-metrics"],
      flags: [
        `-ldflags=-s -w -X github.com/VictoriaMetrics/VictoriaMetrics/lib/buildinfo.Version=victoria-metrics-v${version}`,
      ],
    },
    signal,
  );
  return join(folder, "victoria-metrics");
}

async function awaitReady(url: string, run: string, daemon: Daemon, signal?: AbortSignal): Promise<void> {
  const deadline = Date.now() + startMillis;
  while (!(await isReady(url, run))) {
    signal?.throwIfAborted();
    const ended = daemon.ended();
    if (ended !== undefined || Date.now() > deadline) {
      const what = ended === undefined ? `was not ready in ${startMillis} ms` : `ended with ${ended}`;
      throw new Error(`VictoriaMetrics ${what}. The last lines of its log:\n${await daemon.tail()}`);
    }
    await delay(100);
  }
}

async function isReady(url: string, run: string): Promise<boolean> {
  try {
    const answer = await fetch(`${url}/flags`, { signal: AbortSignal.timeout(5_000) });
    return (await answer.text()).includes(run);
  } catch {
    return false; // not listening yet
  }
}
