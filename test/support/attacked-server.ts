// The demo's server in a process of its own, for tests that attack it: it measures itself how long one turn of its event
// loop takes. What counts is the processor time of the loop's own thread between two ticks of a timer: where other processes
// take the machine, a turn lasts longer and costs no more, so the bound holds on a slow machine too. A turn that costs more
// than a tick holds the tick back, so at least all of its cost but one tick is seen.
//
// `startAttackedServer` forks this file, which answers its parent over IPC.
import { fork } from "node:child_process";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { hashToken } from "#src/access/auth.ts";
import { connectSites, type Site } from "#src/access/sites.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { createIntake, createIntakeServer } from "#src/intake/intake.ts";
import type { LogStore } from "#src/store/logs.ts";
import { clock, createDemo, token } from "./demo-server.ts";
import { createMemorySpooler, createSites, createWatchedTelemetry } from "./error-reports.ts";
import { testIO } from "./io.ts";

const tick = 5;
/** No request may hold the event loop up for longer, in milliseconds of processor time. */
const stallLimit = 50;
export const otherToken = "token-of-a-bystander";

export interface Measured {
  /** Turns that took longer than 50 ms. */
  readonly stalls: number;
  /** Of the most expensive turn. */
  readonly worstMs: number;
  /** Resident memory after a garbage collection. */
  readonly rssBytes: number;
  /** What of it is objects and buffers in use; the rest may be room that was not given back to the system. */
  readonly usedBytes: number;
  /** The most since the last reset. */
  readonly peakRssBytes: number;
}

export interface AttackedServer {
  readonly port: number;
  readonly adminPort: number;
  /** Of the intake's own address. */
  readonly intakePort: number;
  /** What has happened since the last call. */
  readonly measure: () => Promise<Measured>;
  /** Ends the server as SIGTERM does, with this grace. Resolves with how long that took. */
  readonly close: (grace: number) => Promise<number>;
  readonly kill: () => void;
}

/** The site `demo-blog` has long lines, or those of a cluster at `sourceUrl`. */
export async function startAttackedServer(
  limits: Partial<Limits> = {},
  sourceUrl = "",
): Promise<AttackedServer> {
  const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(limits), sourceUrl], {
    execArgv: ["--expose-gc", "--max-semi-space-size=12", "--v8-pool-size=2"],
    // As the image and the systemd unit set it: with an arena for each thread, memory that is free is not given back.
    env: { ...process.env, MALLOC_ARENA_MAX: "2" },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  let answered = Promise.withResolvers<unknown>();
  child.on("message", (answer) => answered.resolve(answer));
  child.on("exit", () => answered.reject(new Error("the attacked server has ended")));
  const ask = async <Answer>(message: unknown): Promise<Answer> => {
    answered = Promise.withResolvers<unknown>();
    if (message !== undefined) child.send(message as object);
    return (await answered.promise) as Answer;
  };
  const ports = await ask<{ port: number; adminPort: number; intakePort: number }>(undefined);
  return {
    ...ports,
    measure: () => ask<Measured>({ measure: true }),
    close: async (grace) => (await ask<{ tookMs: number }>({ close: grace })).tookMs,
    kill: () => void child.kill("SIGKILL"),
  };
}

/** Ten thousand make 15 MB. */
const longLine = JSON.stringify({ text: "x".repeat(1_400), quoted: '"é"' });
const longLines: LogStore = {
  async *lines({ sources: [{ id: source_id }], expectedLines }) {
    for (let first = 0; first < expectedLines; first += 500) {
      yield Array.from({ length: Math.min(500, expectedLines - first) }, (_, at) => {
        const time = fromMillis(clock - first - at);
        return { id: `l${first + at}`, time, source_id, severity: "error" as const, json: longLine };
      });
    }
  },
  isWithinLimits: async () => true,
};

const io = { ...testIO, now: () => fromMillis(clock) };

/** The logs of a site whose source is that cluster. */
function connectLogs(url: string): Site["logs"] {
  const backend = elastic.create("elk", elastic.parseConfig({ url }), io);
  const logs = { backend: "elk", sources: { app: { index: "logs-app", layout: "ecs" } } };
  const { listen, limits, retention } = defaults;
  const config = { listen, tokens: [], backends: {}, limits, sites: { evil: { retention, logs } } };
  return connectSites(config, new Map([["elk", backend]])).get("evil")?.logs;
}

async function listenForReports(): Promise<number> {
  const { spoolBytes, proxies } = defaults;
  const { telemetry } = createWatchedTelemetry();
  const intake = createIntake({
    config: { spool: ":memory:", spoolBytes, keyRate: 1e9, addressRate: 1e9, proxies },
    sites: createSites({ shop: { keys: ["key"], store: { deliver: async () => new Map() } } }),
    spool: createMemorySpooler(),
    onSpooled: () => {},
    telemetry,
    now: io.now,
  });
  const { http } = createIntakeServer(intake, { proxies, onLimitReached: telemetry.recordLimit });
  await once(http.listen(0, "127.0.0.1"), "listening");
  return (http.address() as AddressInfo).port;
}

async function serveUnderMeasure(send: (message: object) => void): Promise<void> {
  const [, , limits = "{}", sourceUrl = ""] = process.argv;
  const { server } = await createDemo({
    limits: JSON.parse(limits),
    site: (site) => {
      if (site.id !== "demo-blog" || site.logs === undefined) return site;
      const logs = sourceUrl === "" ? { ...site.logs, store: longLines } : connectLogs(sourceUrl);
      return logs === undefined ? site : { ...site, logs };
    },
    tokens: [{ user: "bystander", sha256: hashToken(otherToken), sites: "*" }],
  });
  const loopback = { host: "127.0.0.1", port: 0 };
  const { port } = await server.listen(loopback);
  const adminPort = (await server.listenForProbes(loopback)).port;
  const intakePort = await listenForReports();
  const seen = { stalls: 0, worstMs: 0, peakRssBytes: 0 };
  let before = process.threadCpuUsage();
  const count = () => {
    const { user, system } = process.threadCpuUsage();
    const usedMs = (user + system - before.user - before.system) / 1_000 - tick;
    before = { user, system };
    if (usedMs > stallLimit) seen.stalls += 1;
    seen.worstMs = Math.max(seen.worstMs, usedMs);
    seen.peakRssBytes = Math.max(seen.peakRssBytes, process.memoryUsage.rss());
  };
  setInterval(count, tick);
  const measure = () => {
    const { stalls, worstMs, peakRssBytes } = seen;
    Object.assign(seen, { stalls: 0, worstMs: 0, peakRssBytes: 0 });
    globalThis.gc?.();
    globalThis.gc?.();
    before = process.threadCpuUsage();
    const { rss: rssBytes, heapUsed, external } = process.memoryUsage();
    send({ stalls, worstMs, peakRssBytes, rssBytes, usedBytes: heapUsed + external });
  };
  process.on("message", (message: { measure?: true; close?: number }) => {
    if (message.measure) return setTimeout(measure, 2 * tick);
    const started = performance.now();
    return server.close(message.close ?? 0).then(() => {
      send({ tookMs: performance.now() - started });
      process.exit();
    });
  });
  // Ends with whoever has started it.
  process.on("disconnect", () => process.exit());
  send({ port, adminPort, intakePort });
}

if (process.send !== undefined && process.argv[1] === fileURLToPath(import.meta.url)) {
  await serveUnderMeasure((message) => void process.send?.(message));
}

export { token };
