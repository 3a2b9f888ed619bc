// Programs under measurement: started on a core of their own where they are compared, read from the outside through
// /proc, ended cleanly.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Whether programs can be held to cores: the server has core 1 to itself; clients and source share core 0. */
export const pinned = availableParallelism() > 1 && spawnSync("taskset", ["-c", "1", "true"]).status === 0;
/** Before this process is held to one of them. */
const availableCores = availableParallelism();

/** Holds this process to a core, or to none, and with it what it starts from now on. */
export function holdTo(core: 0 | undefined): void {
  const cores = core === undefined ? `0-${availableCores - 1}` : String(core);
  if (pinned) spawnSync("taskset", ["-a", "-p", "-c", cores, String(process.pid)]);
}

export interface Subject {
  readonly pid: number;
  /** Its exit code, null where a signal ended it. */
  readonly ended: Promise<number | null>;
  stop(): Promise<void>;
}

const running = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

interface Start {
  readonly arguments: readonly string[];
  /** All of them where there is none. */
  readonly core?: 0 | 1;
  readonly environment?: Readonly<Record<string, string>>;
  /** The file for what it prints. */
  readonly log: string;
}

/** What `npm run readout` hands to node: the program, with the room that it leaves for young objects. */
export const program = [
  "--max-semi-space-size=12",
  "--v8-pool-size=2",
  "--disable-warning=ExperimentalWarning",
  join(import.meta.dirname, "..", "..", "src", "readout.js"),
] as const;

/** Starts `node` with these arguments; its output goes to the log file, as a service's would. */
export function start({ arguments: args, core, environment, log }: Start): Subject {
  const command = [
    ...(pinned && core !== undefined ? ["taskset", "-c", String(core)] : []),
    process.execPath,
    ...args,
  ];
  const output = openSync(log, "a");
  const child = spawn(command[0] ?? "", command.slice(1), {
    stdio: ["ignore", output, output],
    env: { ...process.env, ...environment },
  });
  closeSync(output);
  running.add(child);
  const ended = new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", (code) => {
      running.delete(child);
      resolve(code);
    });
  });
  if (child.pid === undefined) throw new Error(`cannot start ${command.join(" ")}`);
  return {
    pid: child.pid,
    ended,
    async stop() {
      child.kill("SIGTERM");
      const late = sleep(5_000, "late" as const, { ref: false });
      if ((await Promise.race([ended, late])) === "late") child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Runs a program to its end. @throws with the end of its log where it fails */
export async function runToEnd(args: readonly string[], log: string): Promise<void> {
  if ((await start({ arguments: args, log }).ended) !== 0)
    throw new Error(readFileSync(log, "utf8").slice(-2_000));
}

/** Waits for the nth JSON line in a subject's log. @throws when it ends first or says nothing in 20 s */
export async function awaitAnnouncement(
  subject: Subject,
  log: string,
  line = 0,
): Promise<Readonly<Record<string, unknown>>> {
  let over = false;
  void subject.ended.then(() => {
    over = true;
  });
  for (let waited = 0; waited < 20_000; waited += 20) {
    const found = readFileSync(log, "utf8")
      .split("\n")
      .slice(0, -1)
      .filter((text) => text.startsWith("{"))[line];
    if (found !== undefined) return JSON.parse(found) as Record<string, unknown>;
    if (over) break;
    await sleep(20);
  }
  throw new Error(`${log}: no announcement\n${readFileSync(log, "utf8").slice(-2_000)}`);
}

/** CPU time that a process has used so far, of all its threads, in milliseconds. */
export function readCpuMillis(pid: number): number {
  try {
    // Nanoseconds. `stat` counts in ticks of 10 ms, too coarse for a batch of small requests.
    let nanos = 0;
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      nanos += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, "utf8").split(" ")[0]);
    }
    return nanos / 1e6;
  } catch {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ");
    return (Number(fields[11]) + Number(fields[12])) * 10;
  }
}

/** `VmRSS` is the memory now, `VmHWM` the most since the start. In MB of 10^6 bytes. */
export function readMemoryMegabytes(pid: number, which: "VmRSS" | "VmHWM"): number {
  const text = readFileSync(`/proc/${pid}/status`, "utf8");
  return (Number(new RegExp(`^${which}:\\s+(\\d+) kB`, "m").exec(text)?.[1]) * 1_024) / 1e6;
}
