// The npm package as a stranger installs it: packed, installed into an empty folder without any registry, and started.
import { execFile, execFileSync } from "node:child_process";
import {
  copyFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
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

test("holds the packages of the lock file and of the bill of materials, and no others", () => {
  const installed = execFileSync("find", [".", "-path", "*/node_modules/*", "-name", "package.json"], {
    cwd: join(folder, "node_modules/readout"),
    encoding: "utf8",
  });
  const read = (path: string) => JSON.parse(readFileSync(join(folder, "node_modules/readout", path), "utf8"));
  const isPackage = (path: string) => /node_modules\/(?:@[^/]+\/)?[^/]+\/package\.json$/.test(path);
  const places = installed.split("\n").filter(isPackage);
  const locked = listProductionPackages().map(({ path }) => `./${path}/package.json`);
  expect(places.toSorted()).toEqual(locked.toSorted());
  const listed: readonly { name: string; version: string }[] = read("sbom.cdx.json").components;
  const found = places.map((place) => {
    const { name, version } = read(place);
    return `${name}@${version}`;
  });
  expect(listed.map(({ name, version }) => `${name}@${version}`).toSorted()).toEqual(
    [...new Set(found)].toSorted(),
  );
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

test("holds a backend outside of the tree to the conformance suite that it exports", async () => {
  const tool = (name: string) => join(process.cwd(), "node_modules", name);
  symlinkSync(tool("vitest"), join(folder, "node_modules/vitest"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  copyFileSync("test/release/own-backend/ndjson-backend.js", join(folder, "ndjson-backend.js"));
  writeFileSync(join(folder, "suite.test.js"), suite);
  const report = await run(process.execPath, [tool("vitest/vitest.mjs"), "run", "--reporter=json"], {
    cwd: folder,
  });
  const { numPassedTests, numFailedTests } = JSON.parse(report.stdout);
  expect(numFailedTests).toBe(0);
  expect(numPassedTests).toBeGreaterThan(20);
});

/** Without `isWithinLimits`, which is optional: two tests of it fail, as they have to. */
const suite = `
import { mkdirSync, writeFileSync } from "node:fs";
import { backendToolkit } from "readout/backend";
import { logStoreSuite } from "readout/conformance/logs";
import createKind from "./ndjson-backend.js";

const reason = { reason: "it has no isWithinLimits", failure: /expected undefined to be/ };
logStoreSuite({
  name: "ndjson",
  excuses: {
    "is true only for pages that are not refused": reason,
    "foresees an oversized millisecond at the end of the page and ignores one behind it": reason,
  },
  start: async () => {
    mkdirSync("lines", { recursive: true });
    for (const name of ["app", "nginx"]) writeFileSync("lines/" + name, "");
    const { stores } = createKind(backendToolkit).create("own", { folder: "lines" });
    const source = (id, index = id) => ({ id, index, layout: "auto", tenantFilter: undefined });
    return {
      store: stores.logs,
      sources: { app: source("app"), nginx: source("nginx"), twin: source("twin", "app") },
      seed: async (index, lines) => {
        const print = ({ time, ...line }) =>
          JSON.stringify({ ...line, time: backendToolkit.printInstant(time) }) + "\\n";
        writeFileSync("lines/" + index, lines.map(print).join(""));
      },
      stop: async () => {},
    };
  },
});
`;

test("declares the store contract for backends in TypeScript", async () => {
  const typed = `
import type { Backend, BackendFactory, LogStore } from "readout/backend";
const create: BackendFactory<{ url: string }> = ({ Refused, fromMillis }) => ({
  kind: "typed",
  parseConfig: (value) => ({ url: String(value) }),
  create: (name, { url }, io): Backend => {
    const logs: LogStore = {
      async *lines({ range, tieLimit }) {
        if (range.from > fromMillis(0)) throw new Refused("result_too_large", url, { limit: tieLimit });
      },
    };
    const probe = async () => ({ product: name, version: String(io.now()) });
    return { name, kind: "typed", stores: { logs }, inspections: {}, probe, close: async () => {} };
  },
});
export default create;
`;
  writeFileSync(join(folder, "typed.ts"), typed);
  writeFileSync(join(folder, "wrong.ts"), typed.replace("url: string", "url: number"));
  const tsc = join(process.cwd(), "node_modules/.bin/tsc");
  const check = (file: string) =>
    run(
      tsc,
      ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2024", "--types", "node", file].concat(
        ["--typeRoots", join(process.cwd(), "node_modules/@types")],
        ["--lib", "es2024,esnext.disposable"],
      ),
      { cwd: folder },
    );
  await expect(check("typed.ts")).resolves.toMatchObject({ stdout: "" });
  await expect(check("wrong.ts")).rejects.toThrow();
});
