// A server process that cannot outlive the tests. It leads a process group of its own, so
// that launchers and what they launch end together, and a guard (a shell waiting on a pipe)
// kills the group and removes its folder when this process ends in any way: an `exit`
// handler would miss SIGKILL, crashes and signals without a handler.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

export interface Command {
  readonly program: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The account to run as; our own when absent. */
  readonly account?: { readonly uid: number; readonly gid: number };
}

export interface Daemon {
  /** Undefined if it could not be started. */
  readonly pid: number | undefined;
  /** "exit code 1", "SIGKILL" or the error of the start; undefined while it runs. */
  readonly ended: () => string | undefined;
  /** The last lines that it printed. */
  readonly tail: () => Promise<string>;
  /** Ends the process group and removes the folder. May be called again. */
  readonly stop: () => Promise<void>;
  /** The same without asking first: a server that is still starting does not listen. */
  readonly kill: () => Promise<void>;
}

/** A running server needs less than a second. */
const graceMillis = 10_000;
const tailLines = 40;

/** Runs `command` in `folder`, which belongs to it from now on and is removed with it. */
export async function launch(command: Command, folder: string): Promise<Daemon> {
  const log = await open(join(folder, "output.log"), "a");
  const child = spawn(command.program, command.args, {
    cwd: folder,
    env: { ...process.env, ...command.env },
    stdio: ["ignore", log.fd, log.fd],
    detached: true, // makes it the leader of a process group
    ...command.account,
  });
  const guard = child.pid === undefined ? undefined : startGuard(child.pid, folder);
  let ended: string | undefined;
  const end = awaitEnd(child).then((how) => {
    ended = how;
  });
  await log.close();
  let ending: Promise<void> | undefined;
  const finish = async (asking: Promise<void>) => {
    await asking;
    if (child.pid !== undefined) stopGroup(child.pid);
    await end;
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    if (guard) await dismissGuard(guard);
  };
  return {
    pid: child.pid,
    ended: () => ended,
    tail: async () => cutLastLines(await readFile(join(folder, "output.log"), "utf8")),
    stop: () => (ending ??= finish(requestEnd(child, end))),
    kill: () => (ending ??= finish(Promise.resolve())),
  };
}

function awaitEnd(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
}

/** A line on the pipe dismisses the guard; the end of the pipe is the alarm. */
function startGuard(group: number, folder: string): ChildProcess {
  const script = 'read -r word && exit; kill -s KILL -- "-$1"; sleep 1; rm -rf -- "$2"';
  const guard = spawn("sh", ["-c", script, "guard", String(group), folder], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true, // Ctrl-C in the terminal must not reach it
  });
  guard.stdin?.on("error", () => {}); // somebody ended the guard: nothing is lost on an orderly stop
  return guard;
}

/** Only the leader is asked: the launcher of Elasticsearch 8 and 9 ends its server itself. */
async function requestEnd(child: ChildProcess, end: Promise<void>): Promise<void> {
  child.kill("SIGTERM");
  const waiting = new AbortController();
  await Promise.race([end, delay(graceMillis, undefined, { signal: waiting.signal }).catch(() => {})]);
  waiting.abort();
}

function stopGroup(group: number): void {
  try {
    process.kill(-group, "SIGKILL");
  } catch (error) {
    // ESRCH: nobody is left, as it should be.
    if (Object(error).code !== "ESRCH") throw error;
  }
}

async function dismissGuard(guard: ChildProcess): Promise<void> {
  if (guard.exitCode !== null || guard.signalCode !== null) return;
  guard.stdin?.end("done\n");
  await once(guard, "exit");
}

function cutLastLines(text: string): string {
  return text.trimEnd().split("\n").slice(-tailLines).join("\n");
}
