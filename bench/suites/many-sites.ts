// What a configuration of very many sites costs: until the first answer, while it is read again, and in memory.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { findFreePort } from "../../test/support/free-port.ts";
import { readMemoryMegabytes } from "../harness/process.ts";
import { type Figure, summarise } from "../harness/report.ts";
import { buildStallPreload, readStall, type Server, serve } from "../harness/servers.ts";

/** The most that each figure may be (docs/explanation/performance.md). */
const floors = { readyMillis: 3_000, peakMegabytes: 300, stallMillis: 50 };

const size = { sites: 10_000, backends: 200 };

export async function measureManySites(runs: number, folder: string): Promise<readonly Figure[]> {
  // Nobody listens there: what backends answer does not matter here.
  const yaml = writeSites(await findFreePort());
  const ready: number[] = [];
  const peaks: number[] = [];
  const stalls: number[] = [];
  const reloadPeaks: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const file = join(folder, "stalls-of-reload");
    const server = await serve(yaml, buildStallPreload(file));
    const { pid, stop } = server.subject;
    ready.push(server.readyMillis);
    await sleep(1_000);
    peaks.push(readMemoryMegabytes(pid, "VmHWM"));
    await readStall(pid, file);
    await reload(server);
    await sleep(1_000);
    stalls.push(await readStall(pid, file));
    reloadPeaks.push(readMemoryMegabytes(pid, "VmHWM"));
    await stop();
  }
  const of = `${size.sites.toLocaleString("en")} sites of ${size.backends} backends`;
  return [
    { name: `${of}: spawn to the first answer`, unit: "ms", ...summarise(ready), floor: floors.readyMillis },
    { name: `${of}: peak RSS of the start`, unit: "MB", ...summarise(peaks), floor: floors.peakMegabytes },
    { name: `${of}: longest stall of a reload`, unit: "ms", ...summarise(stalls), floor: floors.stallMillis },
    { name: `${of}: peak RSS with a reload`, unit: "MB", ...summarise(reloadPeaks) },
  ];
}

function writeSites(port: number): readonly string[] {
  const url = `http://127.0.0.1:${port}`;
  const backends = Array.from({ length: size.backends }, (_, n) =>
    n % 2 === 0
      ? `  e${n}: { kind: elastic, url: "${url}" }`
      : `  p${n}: { kind: prometheus, url: "${url}" }`,
  );
  const sites = Array.from({ length: size.sites }, (_, n) => {
    const backend = n % size.backends;
    const elastic = `e${backend - (backend % 2)}`;
    return [
      `  site-${n}:`,
      `    name: Site ${n}`,
      "    retention: 30d",
      "    logs:",
      `      backend: ${elastic}`,
      "      sources:",
      `        app: { index: "logs-${n}-*", layout: ecs }`,
      `    traces: { backend: ${elastic}, index: "traces-${n}-*", layout: otel }`,
      `    metrics: { backend: p${backend - (backend % 2) + 1}, match: { tenant: t${n} } }`,
    ].join("\n");
  });
  return ["backends:", ...backends, "sites:", ...sites];
}

/** @throws where it takes longer than half a minute */
async function reload({ subject, log }: Server): Promise<void> {
  process.kill(subject.pid, "SIGHUP");
  for (let waited = 0; waited < 30_000; waited += 50) {
    if (readFileSync(log, "utf8").includes('"msg":"reloaded"')) return;
    await sleep(50);
  }
  throw new Error(`not reloaded\n${readFileSync(log, "utf8").slice(-2_000)}`);
}
