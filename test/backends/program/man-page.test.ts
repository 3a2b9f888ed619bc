// The manual page as `man` shows it. The package has it: `test/release/package.test.ts`.
import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { readHelp } from "#src/commands.ts";
import { buildManPage } from "../../../release/man-page.ts";

const page = await buildManPage("1.2.3");
const mandoc = (...args: readonly string[]) =>
  spawnSync("mandoc", args, { input: page, encoding: "utf8" }).stdout;

test("the manual page is written as man(7) says", () => {
  const complaints = mandoc("-Tlint", "-Wwarning").trim().split("\n");
  // Without a date, one commit makes one page.
  expect(complaints).toEqual([expect.stringContaining('missing date, using ""')]);
});

// Bold and underlined letters are written over others.
const overwritten = new RegExp(`.${String.fromCharCode(8)}`, "gu");

test("the manual page shows the help of each command, word for word", async () => {
  const shown = mandoc("-Tutf8", "-O", "width=200").replaceAll(overwritten, "");
  for (const { name, usage } of await readHelp()) {
    const wanted = usage.trimEnd().split("\n");
    const start = shown.indexOf(`READOUT ${name.toUpperCase()}\n`);
    const lines = shown
      .slice(start)
      .split("\n")
      .slice(1, wanted.length + 1);
    expect(lines.map((line) => line.replace(/^ {7}/, ""))).toEqual(wanted);
  }
});
