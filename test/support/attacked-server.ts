// The demo's server in a process of its own, for tests that attack it: it measures itself how long one turn of its event
// loop takes. What counts is the processor time of the loop's own thread between two ticks of a timer: where other processes
// take the machine, a turn lasts longer and costs no more, so the bound holds on a slow machine too. A turn that costs more
// than a tick holds the tick back, so at least all of its cost but one tick is seen.
//
// Started by `startAttackedServer`, or by node, with whom it then speaks over IPC.
import { fork } from "node:child_process";
import { hashToken } from "#src/access/auth.ts";
import type { Limits } from "#src/config/limits.ts";
import { createDemo, token } from "./demo-server.ts";

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
  /** What has happened since the last call. */
  readonly measure: () => Promise<Measured>;
  /** Ends the server as SIGTERM does, with this grace. Resolves with how long that took. */
  readonly close: (grace: number) => Promise<number>;
  readonly kill: () => void;
}

export async function startAttackedServer(limits: Partial<Limits> = {}): Promise<AttackedServer> {
  const child = fork(new URL(import.meta.url).pathname, [JSON.stringify(limits)], {
    execArgv: ["--expose-gc", "--max-semi-space-size=12", "--v8-pool-size=2"],
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
  const ports = await ask<{ port: number; adminPort: number }>(undefined);
  return {
    ...ports,
    measure: () => ask<Measured>({ measure: true }),
    close: async (grace) => (await ask<{ tookMs: number }>({ close: grace })).tookMs,
    kill: () => void child.kill("SIGKILL"),
  };
}

async function serveUnderMeasure(send: (message: object) => void): Promise<void> {
  const { server } = await createDemo({
    limits: JSON.parse(process.argv[2] ?? "{}"),
    tokens: [{ user: "bystander", sha256: hashToken(otherToken), sites: "*" }],
  });
  const loopback = { host: "127.0.0.1", port: 0 };
  const { port } = await server.listen(loopback);
  const adminPort = (await server.listenForProbes(loopback)).port;
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
  send({ port, adminPort });
}

if (process.send !== undefined && process.argv[1] === new URL(import.meta.url).pathname) {
  await serveUnderMeasure((message) => void process.send?.(message));
}

export { token };
