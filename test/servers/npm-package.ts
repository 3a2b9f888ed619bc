// A program of npm that is no dependency of ours, with its own packages, in the cache of the servers.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cacheFolder } from "./distribution.ts";

/** The folder of its programs. No script of a package is run. */
export function installNpmPackage(name: string, version: string): string {
  const folder = join(cacheFolder(), `${name.replaceAll(/\W+/g, "-").replace(/^-/, "")}-${version}`);
  // Written last: without it an installation was interrupted.
  const marker = join(folder, "complete");
  if (!existsSync(marker)) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "package.json"), '{ "private": true }');
    const options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    execFileSync("npm", ["install", ...options, `${name}@${version}`], { cwd: folder, stdio: "pipe" });
    writeFileSync(marker, "");
  }
  return join(folder, "node_modules", ".bin");
}
