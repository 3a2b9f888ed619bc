// A package of PyPI with a Python of its own, in the cache of the servers.
import { execFileSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cacheFolder } from "./distribution.ts";
import { requireProgram } from "./host.ts";

/** The folder of its programs, `python` among them. */
export function installPythonPackage(name: string, version: string): string {
  const environment = join(cacheFolder(), `${name}-${version}`);
  const programs = join(environment, "bin");
  // Written last: without it an installation was interrupted.
  const marker = join(environment, "complete");
  if (!existsSync(marker)) {
    requireProgram("python3", "python3-venv");
    rmSync(environment, { recursive: true, force: true });
    execFileSync("python3", ["-m", "venv", environment]);
    execFileSync(join(programs, "pip"), ["install", "--quiet", `${name}==${version}`]);
    writeFileSync(marker, "");
  }
  return programs;
}
