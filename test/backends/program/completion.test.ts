// What zsh and fish complete. `test/cli/completion.test.ts` asks bash.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-completion-"));
  for (const shell of ["zsh", "fish"]) {
    const script = execFileSync(process.execPath, ["src/readout.js", "completion", shell]);
    writeFileSync(join(folder, `readout.${shell}`), script);
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

const ask = (program: string, ...args: string[]) =>
  execFileSync(program, args, { cwd: folder, encoding: "utf8" })
    .split("\n")
    .filter((line) => line !== "");

describe("zsh", () => {
  // The functions of its completion system, which only a terminal has, print what they are handed.
  const script = `compdef() { }; compset() { }; compadd() { shift; print -l -- "$@" }; _files() { print -l FILES }
    _describe() { print -l -- "\${commands[@]}" }; source ./readout.zsh; words=("$@"); CURRENT=$#; _readout`;
  const complete = (...words: string[]) => ask("zsh", "-f", "-c", script, "zsh", ...words);

  test("completes commands with what they do", () => {
    const proposed = complete("readout", "");
    expect(proposed).toContain("serve:serve the configured sites");
    expect(proposed).toContain("mcp:hand an editor's messages to a running server");
    expect(proposed).toContain("--version");
  });

  test("completes words, options and files", () => {
    expect(complete("readout", "token", "")).toEqual(expect.arrayContaining(["new", "--scope", "--help"]));
    expect(complete("readout", "serve", "--config", "")).toEqual(["FILES"]);
    expect(complete("readout", "serve", "--config=")).toEqual(["FILES"]);
    expect(complete("readout", "explain", "--order", "")).toEqual(["ASC", "DESC"]);
    expect(complete("readout", "explain", "--site", "")).toEqual([]);
  });
});

describe("fish", () => {
  const complete = (line: string) => ask("fish", "-c", `source readout.fish; complete -C '${line}'`);

  test("completes commands with what they do", () => {
    expect(complete("readout se")).toEqual(["serve\tserve the configured sites"]);
    expect(complete("readout mc")).toEqual(["mcp\thand an editor's messages to a running server"]);
  });

  test("completes words, options and files", () => {
    expect(complete("readout token n")).toEqual(["new"]);
    expect(complete("readout token --s")).toEqual(["--scope", "--site"]);
    expect(complete("readout serve --config readout.z")).toEqual(["readout.zsh"]);
    expect(complete("readout explain --order ")).toEqual(["ASC", "DESC"]);
    expect(complete("readout explain --site ")).toEqual([]);
    expect(complete("readout explain t")).toEqual(["traces"]);
  });
});
