// The npm package as a stranger installs it: packed, installed into an empty folder without any registry, and started.
import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { listProductionPackages, toPackageName } from "../../../release/dependencies.ts";
import { askEveryRoute } from "../../support/demo-questions.ts";
import { endAll, start } from "../../support/process.ts";

const run = promisify(execFile);
let folder: string;
let tarball: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-installed-"));
  const { stdout } = await run("npm", ["run", "--silent", "package"]);
  tarball = join(process.cwd(), stdout.trim());
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", "--no-save", tarball], {
    cwd: folder,
  });
});
afterAll(() => {
  endAll();
  rmSync(folder, { recursive: true });
});

test("holds the packages of the lock file in their versions, and no others", () => {
  const installed = execFileSync("find", [".", "-path", "*/node_modules/*", "-name", "package.json"], {
    cwd: join(folder, "node_modules/readout"),
    encoding: "utf8",
  });
  const isPackage = (path: string) => /node_modules\/(?:@[^/]+\/)?[^/]+\/package\.json$/.test(path);
  const places = installed.split("\n").filter(isPackage);
  const locked = listProductionPackages().map(({ path }) => `./${path}/package.json`);
  expect(places.toSorted()).toEqual(locked.toSorted());
  expect(readdirSync(join(folder, "node_modules"))).toEqual(
    expect.arrayContaining([toPackageName("node_modules/readout")]),
  );
});

test("answers within ten seconds, on every route", async () => {
  const begun = performance.now();
  const program = join(folder, "node_modules/.bin/readout");
  const { listening, child, ended, told } = start(program, ["demo", "--port", "0", "--token", "t"]);
  const address = await listening;
  expect((await fetch(`${address}/livez`)).status).toBe(200);
  expect(performance.now() - begun).toBeLessThan(10_000);
  expect(await askEveryRoute(address, "t")).toEqual([]);
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  expect(told.err).toBe("");
});
