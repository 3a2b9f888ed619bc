// How soon what a release hands out answers: the package by `npx`, and the program of the image.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { openImage, startImage } from "../../test/support/image.ts";
import { startByNpx } from "../../test/support/process.ts";
import { type Figure, summarise } from "../harness/report.ts";

/** The most that each figure may be (docs/how-to/install.md), in milliseconds. */
const floors = { npx: 10_000, image: 1_500 };

/** Builds both from this checkout. Needs what the suite of the image needs: buildah, debootstrap, and the rights of root. */
export async function measureRelease(runs: number, folder: string): Promise<readonly Figure[]> {
  return [
    {
      name: "npx, with nothing installed: spawn to the first answer",
      unit: "ms",
      ...summarise(await measureNpx(runs, folder)),
      floor: floors.npx,
    },
    {
      name: "image, on a read-only file system: spawn to the first answer",
      unit: "ms",
      ...summarise(await measureImage(runs)),
      floor: floors.image,
    },
  ];
}

async function measureNpx(runs: number, folder: string): Promise<readonly number[]> {
  const tarball = execFileSync("npm", ["run", "--silent", "package"], { encoding: "utf8" }).trim();
  const times: number[] = [];
  for (let run = 0; run < runs; run += 1) {
    const empty = mkdtempSync(join(folder, "npx-"));
    copyFileSync(tarball, join(empty, "readout.tgz"));
    const begun = performance.now();
    const { listening, child, ended } = startByNpx(empty, "readout.tgz");
    await fetch(`${await listening}/livez`);
    times.push(performance.now() - begun);
    if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM");
    await ended;
    rmSync(empty, { recursive: true });
  }
  return times;
}

async function measureImage(runs: number): Promise<readonly number[]> {
  const image = openImage();
  const times: number[] = [];
  try {
    for (let run = 0; run < runs; run += 1) {
      const begun = performance.now();
      const { address, stop } = await startImage(image, "demo", "--port", "0", "--token", "t");
      await fetch(`${address}/livez`);
      times.push(performance.now() - begun);
      stop();
    }
  } finally {
    image.close();
  }
  return times;
}
