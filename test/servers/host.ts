// The programs of the host that the servers need: a JDK of the right age, Maven and
// unzip. JDKs are found by the `release` file that every JDK carries, because folder
// names differ between vendors. What is missing is named together with its Debian package.

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";

/** Java major versions, both inclusive. */
export interface JavaRange {
  readonly from: number;
  readonly to: number;
}

export class MissingProgram extends Error {
  override readonly name = "MissingProgram";
}

interface Jdk {
  readonly home: string;
  readonly major: number;
}

const jvmFolder = "/usr/lib/jvm";

/** The home of the oldest JDK in `range`: a server is surest on the Java it was built for.
 *  @throws {MissingProgram} */
export async function findJdk(range: JavaRange): Promise<string> {
  const jdks = await listInstalledJdks();
  const fitting = jdks.filter((jdk) => jdk.major >= range.from && jdk.major <= range.to);
  const oldest = fitting.toSorted((a, b) => a.major - b.major)[0];
  if (oldest) return oldest.home;
  const found = jdks.length === 0 ? "none" : jdks.map((jdk) => `${jdk.major} (${jdk.home})`).join(", ");
  throw new MissingProgram(
    `No JDK from ${range.from} to ${range.to} in JAVA_HOME or ${jvmFolder}; found: ${found}. ` +
      `On Debian: apt-get install openjdk-${range.from}-jdk-headless (or another package of ` +
      `Java ${range.from} to ${range.to}, for example Temurin's).`,
  );
}

async function listInstalledJdks(): Promise<readonly Jdk[]> {
  const names = await readdir(jvmFolder).catch(() => []);
  const homes = names.map((name) => join(jvmFolder, name));
  if (process.env.JAVA_HOME) homes.unshift(process.env.JAVA_HOME);
  const jdks = await Promise.all(homes.map(readJdk));
  return jdks.filter((jdk) => jdk !== undefined);
}

async function readJdk(home: string): Promise<Jdk | undefined> {
  const release = await readFile(join(home, "release"), "utf8").catch(() => "");
  // "1.8.0_402" is Java 8; since 9 the first number is the major version.
  const major = /^JAVA_VERSION="(?:1\.)?(\d+)/m.exec(release)?.[1];
  if (major === undefined || !existsSync(join(home, "bin", "java"))) return undefined;
  return { home, major: Number(major) };
}

/** @throws {MissingProgram} */
export function requireProgram(program: string, debianPackage: string): void {
  const folders = (process.env.PATH ?? "").split(delimiter);
  if (folders.some((folder) => existsSync(join(folder, program)))) return;
  throw new MissingProgram(`${program} is not installed. On Debian: apt-get install ${debianPackage}`);
}

/** Runs a program to its end and returns what it printed. */
export async function run(program: string, args: readonly string[], signal?: AbortSignal): Promise<string> {
  const options = { maxBuffer: 64 * 1024 * 1024, ...(signal && { signal }) };
  const { stdout } = await promisify(execFile)(program, args, options).catch((cause: unknown) => {
    signal?.throwIfAborted();
    const said = [Object(cause).stdout, Object(cause).stderr].join("").trim();
    throw new Error(`${program} ${args.join(" ")} failed:\n${said || String(cause)}`, { cause });
  });
  return stdout;
}
