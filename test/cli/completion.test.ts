// What a shell completes. bash is asked here; zsh and fish in `test/backends/program/completion.test.ts`.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { run } from "../../src/cli/completion.ts";
import { commands, readHelp } from "../../src/commands.ts";
import { visualTypes } from "../../src/visuals/visual.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const now = toInstant("2026-07-01T12:00:00Z");
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-completion-"));
  const shell = createShell({ now });
  expect(await run(["bash"], shell)).toBe(0);
  writeFileSync(join(folder, "readout.bash"), shell.printed());
  writeFileSync(join(folder, "shop.yaml"), "");
});
afterAll(() => rmSync(folder, { recursive: true }));

/** What bash proposes for the last of these words. */
function complete(...words: string[]): readonly string[] {
  const script = `. ./readout.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _readout; printf '%s\n' "\${COMPREPLY[@]}"`;
  const printed = execFileSync("bash", ["-c", script, "bash", ...words], { cwd: folder, encoding: "utf8" });
  return printed.split("\n").filter((line) => line !== "");
}

describe("bash", () => {
  test("completes commands", () => {
    expect(complete("readout", "")).toEqual([...Object.keys(commands), "--version", "--help"]);
    expect(complete("readout", "se")).toEqual(["serve"]);
  });

  test("completes the words and options of a command", () => {
    expect(complete("readout", "token", "n")).toEqual(["new"]);
    expect(complete("readout", "explain", "t")).toEqual(["traces"]);
    expect(complete("readout", "explain", "traces", "--t")).toEqual(["--tag", "--to"]);
    expect(complete("readout", "init", "--elastic-b")).toEqual(["--elastic-bearer"]);
  });

  test("completes the names of files where an option takes one", () => {
    expect(complete("readout", "serve", "--config", "sh")).toEqual(["shop.yaml"]);
    expect(complete("readout", "init", "--prometheus-ca", "sh")).toEqual(["shop.yaml"]);
    // bash hands the sign over as a word of its own.
    expect(complete("readout", "serve", "--config", "=", "sh")).toEqual(["shop.yaml"]);
    expect(complete("readout", "serve", "--config", "=")).toContain("shop.yaml");
  });

  test("completes values of a list where an option takes one, and nothing where nobody knows the value", () => {
    expect(complete("readout", "token", "new", "--scope", "m")).toEqual(["metrics", "mcp"]);
    expect(complete("readout", "visual", "new", "--type", "")).toEqual([...visualTypes]);
    expect(complete("readout", "explain", "--order", "")).toEqual(["ASC", "DESC"]);
    expect(complete("readout", "explain", "--order", "=", "D")).toEqual(["DESC"]);
    expect(complete("readout", "token", "new", "--user", "")).toEqual([]);
    expect(complete("readout", "explain", "--legacy", "--err")).toEqual(["--errors"]);
  });
});

test("the help of each command names its own options, each once", async () => {
  const help = await readHelp();
  expect(help.map(({ name }) => name)).toEqual(Object.keys(commands));
  const named = Object.fromEntries(
    help.map(({ name, options }) => [name, options.map((option) => option.name)]),
  );
  expect(named).toMatchObject({
    schema: ["--subgraph"],
    demo: ["--port", "--token"],
    mcp: ["--url"],
    completion: [],
  });
  // A list of values belongs to an option of the help.
  for (const [name, { load }] of Object.entries(commands)) {
    const { choices = {} } = await load();
    expect(named[name]).toEqual(expect.arrayContaining(Object.keys(choices)));
  }
  for (const options of Object.values(named)) expect(new Set(options).size).toBe(options.length);
});

test.each([["tcsh"], [], ["bash", "more"]])("refuses the arguments %j", async (...args) => {
  const shell = createShell({ now });
  expect(await run(args, shell)).toBe(2);
  expect(shell.complained()).toContain("completion: expected one of bash, zsh, fish");
  expect(shell.printed()).toBe("");
});
