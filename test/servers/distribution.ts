// Brings a server's files from Maven into a cache outside the checkout, once. A download
// is made in a folder of its own and renamed when complete, so neither an interrupted one
// nor two at the same time can leave half a server behind.

import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { requireProgram, run } from "./host.ts";

/** What Maven calls `group:artifact:version:type`. */
export interface Artifact {
  readonly group: string;
  readonly artifact: string;
  readonly version: string;
  readonly type: "zip" | "jar";
}

/** Written last: a folder without it is not a finished download, whatever is in it. */
const marker = "complete";

/** The folder holding the artifact and everything that it depends on. */
export async function fetchDistribution(artifact: Artifact, signal?: AbortSignal): Promise<string> {
  const folder = join(cacheFolder(), `${artifact.artifact}-${artifact.version}`);
  await runInTurn(async () => {
    signal?.throwIfAborted();
    if (!isComplete(folder)) await downloadArtifact(artifact, folder, signal);
  });
  return folder;
}

export function cacheFolder(): string {
  return process.env.READOUT_CACHE || join(homedir(), ".cache", "readout", "servers");
}

let last: Promise<unknown> = Promise.resolve();

/** One after the other: two Maven runs in parallel would fetch the same files twice. */
function runInTurn(task: () => Promise<void>): Promise<void> {
  const turn = last.then(task);
  last = turn.catch(() => {});
  return turn;
}

async function downloadArtifact(artifact: Artifact, folder: string, signal?: AbortSignal): Promise<void> {
  requireProgram("mvn", "maven");
  await mkdir(cacheFolder(), { recursive: true });
  const draft = await mkdtemp(`${folder}.part-`);
  try {
    await copyFromMaven(artifact, draft, signal);
    await writeFile(join(draft, marker), "");
    await publish(draft, folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/** `dependency:copy-dependencies` serves both kinds: the zip depends on nothing. */
async function copyFromMaven(artifact: Artifact, folder: string, signal?: AbortSignal): Promise<void> {
  const pom = join(folder, "pom.xml");
  await writeFile(pom, renderPom(artifact));
  const goal = "dependency:copy-dependencies";
  await run("mvn", ["-q", "-B", "-f", pom, goal, `-DoutputDirectory=${folder}`], signal);
}

function renderPom({ group, artifact, version, type }: Artifact): string {
  return `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local.test</groupId><artifactId>server</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version><type>${type}</type>
    </dependency>
  </dependencies>
</project>
`;
}

/** The rename fails when another process was faster; its copy is as good as ours. */
async function publish(draft: string, folder: string): Promise<void> {
  if (!isComplete(folder)) await rm(folder, { recursive: true, force: true });
  await rename(draft, folder).catch(async (error: unknown) => {
    if (!isComplete(folder)) throw error;
  });
}

function isComplete(folder: string): boolean {
  return existsSync(join(folder, marker));
}
