// The program as it is started from the files of the npm package.
import { fork, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Script } from "node:vm";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildPackage } from "../../release/package.ts";
import { endAll, program, start } from "../support/process.ts";

let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-package-"));
  await buildPackage(folder, {});
  symlinkSync(join(process.cwd(), "node_modules"), join(folder, "node_modules"));
});
afterAll(() => {
  endAll();
  rmSync(folder, { recursive: true });
});

const startPackage = (...args: string[]) =>
  start(process.execPath, [join(folder, "src/readout.js"), ...args]);

test("serves the demo, with its thread, its layouts, its pages and GraphQL", async () => {
  const { listening, told } = startPackage("demo", "--port", "0", "--token", "t");
  const address = await listening;
  const report = { timestamp: 1_780_000_000, namespace: "frontend", error: { name: "TypeError" } };
  const answers = await Promise.all([
    fetch(`${address}/errors?api_key=demo-key`, { method: "POST", body: JSON.stringify(report) }),
    fetch(`${address}/api/v2/saved_visuals/9Ubquyg0qqEEfpH6Xefmrg`),
    fetch(`${address}/console/traces/normalise.js`),
    fetch(`${address}/graphql?query={__typename}`, {
      headers: { authorization: "Bearer t", "x-graphql-yoga-csrf": "1" },
    }),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(await answers[3]?.json()).toEqual({ data: { __typename: "Query" } });
  expect(told.err).toBe("");
});

test("starts Node again with the flags that it is started without, in the same process", async () => {
  const flags = program.slice(0, -1);
  const args = [join(folder, "src/readout.js"), "demo", "--port", "0"];
  for (const given of [[], flags, ["--max-semi-space-size=64"]]) {
    const { child, listening } = start(process.execPath, [...given, ...args]);
    await listening;
    const [, ...words] = readFileSync(`/proc/${child.pid}/cmdline`, "utf8").slice(0, -1).split("\0");
    expect(words).toEqual([...flags, ...given.filter((flag) => !flags.includes(flag)), ...args]);
    child.kill("SIGKILL");
  }
});

test("keeps the channel of a parent, and the flags of NODE_OPTIONS", async () => {
  const program = join(folder, "src/readout.js");
  const options = { silent: true, execArgv: [], env: { ...process.env, NODE_OPTIONS: "--v8-pool-size=3" } };
  const child = fork(program, ["demo", "--port", "0"], options);
  await new Promise((resolve) => child.stdout?.once("data", resolve));
  expect(child.connected).toBe(true);
  child.kill("SIGKILL");
  const other = spawn(process.execPath, [program, "demo", "--port", "0"], { env: options.env });
  await new Promise((resolve) => other.stdout.once("data", resolve));
  const words = readFileSync(`/proc/${other.pid}/cmdline`, "utf8");
  expect(words).toContain("--max-semi-space-size=12");
  expect(words).not.toContain("--v8-pool-size");
  other.kill("SIGKILL");
});

test("is found by an `env` that hands no flags on, and read by Node 12", () => {
  const text = readFileSync(join(folder, "src/readout.js"), "utf8");
  expect(text.split("\n", 1)).toEqual(["#!/usr/bin/env node"]);
  // A script, as opposed to a module, has no `await` at its top either.
  expect(() => new Script(text)).not.toThrow();
});

test("says which Node it needs on an older one, and ends with 2", async () => {
  const older = "Object.defineProperty(process,'versions',{value:{...process.versions,node:'20.19.0'}})";
  const preload = `data:text/javascript,${encodeURIComponent(older)}`;
  const { ended, told } = start(process.execPath, [
    "--import",
    preload,
    join(folder, "src/readout.js"),
    "demo",
  ]);
  expect(await ended).toBe(2);
  expect(told.err).toBe(`readout needs Node 24 or later, and this is ${process.version}\n`);
});
