// Many large answers at once: memory, stalls of the event loop and how long others wait.
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { send } from "../harness/http-client.ts";
import { options } from "../harness/options.ts";
import { awaitAnnouncement, readCpuMillis, readMemoryMegabytes, start } from "../harness/process.ts";
import { calculateMedian, count, type Figure } from "../harness/report.ts";
import {
  agent,
  buildLinesCall,
  buildStallPreload,
  folder,
  otherToken,
  readStall,
  type Source,
  startOurs,
  startYardstick,
} from "../harness/servers.ts";

/** The most that each figure may be (README, "What it promises"). */
const floors = { peakMegabytes: 400, stallMillis: 100, besideOthers: 10 };
const clients = 32;
const linesUnderLoad = 10_000;
/** Of another client, while one asks for a small page. */
const busyClients = 16;

export async function measureLoad(source: Source, name: "ours" | "yardstick"): Promise<readonly Figure[]> {
  const stalls = join(folder, `${name}-stalls.txt`);
  const preload = buildStallPreload(stalls);
  const server = name === "ours" ? await startOurs(source, preload) : await startYardstick(source, preload);
  const { pid } = server.subject;
  const call = buildLinesCall(server.url, source, linesUnderLoad);
  for (let warm = 0; warm < 20; warm++) await send(agent, buildLinesCall(server.url, source, 1_000));
  for (let warm = 0; warm < 3; warm++) await send(agent, call);
  await sleep(500);
  await readStall(pid, stalls);

  const log = join(folder, `prober-${name}.log`);
  const prober = start({
    arguments: [join(import.meta.dirname, "..", "harness", "latency-prober.ts"), `${server.url}/livez`],
    core: 0,
    log,
  });
  await awaitAnnouncement(prober, log);
  await sleep(200);
  const requests = options.quick ? 1 : 4;
  const times: number[] = [];
  const cpuBefore = readCpuMillis(pid);
  const begin = performance.now();
  await Promise.all(
    Array.from({ length: clients }, async () => {
      for (let sent = 0; sent < requests; sent++) times.push((await send(agent, call)).millis);
    }),
  );
  const seconds = (performance.now() - begin) / 1_000;
  const cpu = (readCpuMillis(pid) - cpuBefore) / times.length;
  await prober.stop();
  const probed = await awaitAnnouncement(prober, log, 1);
  const stall = await readStall(pid, stalls);
  const peak = readMemoryMegabytes(pid, "VmHWM");
  await server.subject.stop();

  const isOurs = name === "ours";
  const title = `${clients} × ${count(linesUnderLoad)} lines, ${name}`;
  return [
    { name: `${title}: peak RSS`, unit: "MB", value: peak, floor: isOurs ? floors.peakMegabytes : undefined },
    {
      name: `${title}: longest stall`,
      unit: "ms",
      value: stall,
      floor: isOurs ? floors.stallMillis : undefined,
    },
    {
      name: `${title}: longest answer of /livez`,
      unit: "ms",
      value: Number(probed.longest),
      note: `of ${Number(probed.answers)} probes, median ${Number(probed.median).toFixed(1)} ms`,
    },
    { name: `${title}: p50`, unit: "ms", value: calculateMedian(times) },
    { name: `${title}: slowest`, unit: "ms", value: Math.max(...times) },
    { name: `${title}: lines a second`, unit: "", value: (times.length * linesUnderLoad) / seconds },
    { name: `${title}: CPU a request`, unit: "ms", value: cpu },
  ];
}

/** How long 100 lines take one client while another one asks for large pages all the time. */
export async function measureBesideOthers(source: Source): Promise<readonly Figure[]> {
  const server = await startOurs(source);
  const call = buildLinesCall(server.url, source, 100);
  const measurePage = async (times: number) => {
    const all: number[] = [];
    for (let n = 0; n < times; n++) all.push((await send(agent, call)).millis);
    return calculateMedian(all);
  };
  await measurePage(200);
  const alone = await measurePage(100);
  let isOver = false;
  let answered = 0;
  const large = { ...buildLinesCall(server.url, source, linesUnderLoad), token: otherToken };
  const others = Array.from({ length: busyClients }, async () => {
    for (; !isOver; answered += 1) await send(agent, large);
  });
  while (answered < busyClients) await sleep(50);
  const beside = await measurePage(options.quick ? 30 : 100);
  isOver = true;
  await Promise.all(others);
  await server.subject.stop();
  return [
    {
      name: `100 lines beside another client's ${busyClients} × ${count(linesUnderLoad)}, against alone: p50`,
      unit: "×",
      value: beside / alone,
      floor: floors.besideOthers,
      note: `${alone.toFixed(1)} ms alone`,
    },
  ];
}
