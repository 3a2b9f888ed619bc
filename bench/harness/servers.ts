// The programs that are compared: a canned source, the yardstick (a hand-written adapter) and Readout as an operator starts
// it. And what they are asked for.
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findFreePort } from "../../test/support/free-port.ts";
import { type Call, createAgent, send } from "./http-client.ts";
import { awaitAnnouncement, program, type Subject, start } from "./process.ts";

const bench = join(import.meta.dirname, "..");
/** For logs and configurations of one run. */
export const folder = mkdtempSync(join(tmpdir(), "readout-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => process.exit(1));

export const agent = createAgent();
export const token = "bench-token";
/** Of another client. */
export const otherToken = "other-bench-token";

let started = 0;

export interface Source {
  readonly text: "ascii" | "unicode";
  readonly subject: Subject;
  readonly url: string;
  readonly from: string;
  readonly to: string;
}

/** The floors are held to `ascii`, with the ratios on `unicode` told beside; that takes more memory, so the load uses it. */
export async function startSource(text: "ascii" | "unicode"): Promise<Source> {
  const log = join(folder, `source-${started++}.log`);
  const subject = start({
    arguments: [join(bench, "fixtures", "fake-elasticsearch.ts"), text],
    core: 0,
    log,
  });
  const { url, from, to } = await awaitAnnouncement(subject, log);
  return { text, subject, url: String(url), from: String(from), to: String(to) };
}

export interface Server {
  readonly subject: Subject;
  readonly url: string;
  readonly readyMillis: number;
  readonly log: string;
}

export async function startYardstick(source: Source, preload: Preload = {}): Promise<Server> {
  const log = join(folder, `yardstick-${started++}.log`);
  const subject = start({
    arguments: [...(preload.flags ?? []), join(bench, "baselines", "logs.ts"), source.url],
    environment: preload.environment ?? {},
    core: 1,
    log,
  });
  const { url } = await awaitAnnouncement(subject, log);
  return { subject, url: String(url), readyMillis: Number.NaN, log };
}

export function startOurs(source: Source, preload: Preload = {}): Promise<Server> {
  return serve(
    [
      `backends: { canned: { kind: elastic, url: "${source.url}" } }`,
      "sites:",
      "  bench:",
      "    logs: { backend: canned, sources: { app: { index: logs-bench, layout: ecs } } }",
    ],
    preload,
  );
}

/** `serve` as an operator would start it. Ready is when REST first answers a request with a token. */
export async function serve(
  yaml: readonly string[],
  preload: Preload = {},
  limits: Readonly<Record<string, number | string>> = {},
): Promise<Server> {
  const log = join(folder, `ours-${started++}.log`);
  const config = join(folder, "readout.yaml");
  const port = await findFreePort();
  const hash = (text: string) => createHash("sha256").update(text).digest("hex");
  writeFileSync(
    config,
    [
      `listen: 127.0.0.1:${port}`,
      "tokens:",
      ...[token, otherToken].map(
        (text, n) => `  - { user: bench-${n}, sha256: "${hash(text)}", sites: "*" }`,
      ),
      `limits: ${JSON.stringify({ rate: 1_000_000, token_requests: 64, token_streams: 32, ...limits })}`,
      ...yaml,
      "",
    ].join("\n"),
  );
  const url = `http://127.0.0.1:${port}`;
  const begin = performance.now();
  const subject = start({
    arguments: [...(preload.flags ?? []), ...program, "serve", "--config", config],
    environment: preload.environment ?? {},
    core: 1,
    log,
  });
  let over = false;
  void subject.ended.then(() => {
    over = true;
  });
  let cause: unknown;
  while (!over && performance.now() - begin < 20_000) {
    try {
      await send(agent, { url: `${url}/api/v2/auth`, method: "GET", token });
      return { subject, url, readyMillis: performance.now() - begin, log };
    } catch (error) {
      cause = error;
      await sleep(5);
    }
  }
  await subject.stop();
  throw new Error(
    `readout serve did not answer: ${String(cause)}\n${readFileSync(log, "utf8").slice(-3_000)}`,
  );
}

export interface Preload {
  readonly flags?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

export function buildLinesCall(server: string, source: Source, lines: number, query = ""): Call {
  const body = JSON.stringify({
    site_id: "bench",
    source_ids: ["app"],
    query,
    use_expressions: true,
    from: source.from,
    to: source.to,
    pagination: { per_page: lines, order: "DESC", cursor: { time: null } },
  });
  return { url: `${server}/api/v2/logs/lines`, method: "POST", body, token };
}

export function buildDirectCall(source: Source, lines: number): Call {
  const body = JSON.stringify({
    size: lines,
    track_total_hits: false,
    query: { bool: { filter: [{ range: { "@timestamp": { gte: source.from, lte: source.to } } }] } },
    sort: [{ "@timestamp": "desc" }],
  });
  return { url: `${source.url}/logs-bench/_search`, method: "POST", body };
}

/** Writes the longest stalls of the event loop to the file. */
export function buildStallPreload(stalls: string): Preload {
  writeFileSync(stalls, "");
  return {
    flags: ["--import", join(bench, "harness", "event-loop-stall.ts")],
    environment: { BENCH_STALLS: stalls },
  };
}

/** The longest stall since the last time that this was asked. */
export async function readStall(pid: number, file: string): Promise<number> {
  const before = readFileSync(file, "utf8").split("\n").length;
  process.kill(pid, "SIGUSR2");
  for (let waited = 0; waited < 10_000; waited += 10) {
    const written = readFileSync(file, "utf8").split("\n");
    if (written.length > before) return Number(written.at(-2));
    await sleep(10);
  }
  throw new Error("the preload of stall.ts does not answer");
}
