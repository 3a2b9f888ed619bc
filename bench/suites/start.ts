// How soon `readout serve` answers, and what it holds while nobody asks.
import { setTimeout as sleep } from "node:timers/promises";
import { options } from "../harness/options.ts";
import { readMemoryMegabytes } from "../harness/process.ts";
import { type Figure, summarise } from "../harness/report.ts";
import { type Source, startOurs } from "../harness/servers.ts";

/** The most that each figure may be (README, "What it promises"). */
const floors = { idleMegabytes: 130, readyMillis: 1_000 };

export async function measureStart(source: Source): Promise<readonly Figure[]> {
  const ready: number[] = [];
  const idle: number[] = [];
  for (let run = 0; run < (options.quick ? 2 : 7); run++) {
    const server = await startOurs(source);
    ready.push(server.readyMillis);
    await sleep(1_500);
    idle.push(readMemoryMegabytes(server.subject.pid, "VmRSS"));
    await server.subject.stop();
  }
  return [
    {
      name: "serve: spawn to the first REST answer",
      unit: "ms",
      ...summarise(ready),
      floor: floors.readyMillis,
      note: `slowest of ${ready.length}: ${Math.max(...ready).toFixed(0)} ms`,
    },
    { name: "serve: idle RSS", unit: "MB", ...summarise(idle), floor: floors.idleMegabytes },
  ];
}
