// The program as a person starts it, in a process of its own. Whoever starts one ends it: `endAll` after the tests.
import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** As `npm run readout` starts it. */
export const program = [
  "--max-semi-space-size=12",
  "--v8-pool-size=2",
  "--disable-warning=ExperimentalWarning",
  fileURLToPath(new URL("../../src/readout.js", import.meta.url)),
] as const;
const children: ChildProcess[] = [];

export function start(
  command: string,
  args: readonly string[],
  place: Pick<SpawnOptions, "cwd" | "detached" | "env"> = {},
) {
  const child = spawn(command, args, { ...place, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const told = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    told.out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    told.err += text;
  });
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  const listening = new Promise<string>((resolve, reject) => {
    child.stdout.on("data", () => {
      const address = /Readout listens on (https?:\/\/\S+)\n/.exec(told.out)?.[1];
      if (address !== undefined) resolve(address);
    });
    child.on("close", () => reject(new Error(told.err)));
  });
  listening.catch(() => {});
  return { child, told, ended, listening };
}

export const startReadout = (...args: string[]) => start(process.execPath, [...program, ...args]);

/** Starts the package in the folder, which is all that npm has there. It has to end as a group: npx hands no signal on. */
export const startByNpx = (folder: string, tarball: string) =>
  start("npx", ["--yes", "--offline", `./${tarball}`, "demo", "--port", "0", "--token", "t"], {
    cwd: folder,
    env: { ...process.env, npm_config_cache: join(folder, "cache") },
    detached: true,
  });

export function endAll(): void {
  for (const child of children.splice(0)) child.kill("SIGKILL");
}
