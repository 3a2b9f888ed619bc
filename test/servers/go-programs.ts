// Builds servers that are published as Go modules, once, into the cache. A build is made in a folder of its own and
// renamed when complete, so that an interrupted one leaves nothing that looks like a server.

import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { cacheFolder } from "./distribution.ts";
import { requireProgram, run } from "./host.ts";

export interface GoPrograms {
  /** The name of the folder in the cache. */
  readonly folder: string;
  /** The path and the version of the module. */
  readonly module: string;
  readonly version: string;
  /** The packages within the module, each of which becomes a program of the name of its last part. */
  readonly packages: readonly string[];
  /** Of `go build`. */
  readonly flags: readonly string[];
}

/** At least this, for the modules that ask for less. */
const goVersion = "1.26.0";

/** The folder with the programs, built first where the cache does not hold them. */
export async function buildGoPrograms(programs: GoPrograms, signal?: AbortSignal): Promise<string> {
  const folder = join(cacheFolder(), programs.folder);
  if (!existsSync(folder)) await build(programs, folder, signal);
  return folder;
}

/** As a dependency of a module made for it: `go install` refuses a module that replaces others. */
async function build(
  { module, version, packages, flags }: GoPrograms,
  folder: string,
  signal?: AbortSignal,
): Promise<void> {
  await mkdir(cacheFolder(), { recursive: true });
  const draft = await mkdtemp(`${folder}.part-`);
  const compiler = await findGo(signal);
  const go = async (...args: string[]) => run(compiler, ["-C", draft, ...args], signal);
  const paths = packages.map((one) => `${module}/${one}`);
  try {
    await writeFile(join(draft, "go.mod"), `module local/server\n\ngo ${goVersion}\n`);
    await go("get", ...paths.map((one) => `${one}@${version}`));
    await go("build", ...flags, "-o", "./", ...paths);
    // Fails when another process was faster, whose copy is as good.
    await rename(draft, folder).catch((error: unknown) => {
      if (!existsSync(folder)) throw error;
    });
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/** A Go that is new enough: the installed one, or the one that an older installed one can fetch as a module. */
async function findGo(signal?: AbortSignal): Promise<string> {
  requireProgram("go", "golang-go");
  const [, major = 0, minor = 0] = /go(\d+)\.(\d+)/.exec(await run("go", ["version"], signal)) ?? [];
  // Since 1.21 Go itself fetches the version that a go.mod asks for.
  if (Number(major) > 1 || Number(minor) >= 21) return "go";
  const toolchain = `golang.org/toolchain@v0.0.1-go${goVersion}.linux-amd64`;
  const { Dir: home }: { Dir: string } = JSON.parse(
    await run("go", ["mod", "download", "-json", toolchain], signal),
  );
  const copy = join(cacheFolder(), `go-${goVersion}`);
  // The module cache cannot be written to, and modules hold no programs: the permissions are ours to set.
  if (!existsSync(copy)) await makeRunnable(home, copy, signal);
  return join(copy, "bin", "go");
}

async function makeRunnable(home: string, copy: string, signal?: AbortSignal): Promise<void> {
  const draft = `${copy}.part-${process.pid}`;
  await run("cp", ["-r", "--no-preserve=mode", home, draft], signal);
  for (const folder of [join(draft, "bin"), join(draft, "pkg", "tool", "linux_amd64")]) {
    for (const file of await readdir(folder)) await chmod(join(folder, file), 0o755);
  }
  await rename(draft, copy);
}
