// A version of the changelog, and the files that name the version.
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { parseConfig } from "#src/config/config.ts";
import { openSpoolFile } from "#src/intake/spool-file.ts";
import manifest from "../../package.json" with { type: "json" };
import { closeUnreleased, readNotes } from "../../release/changelog.ts";
import { exampleWorld } from "../support/docs/example-world.ts";

const changelog = [
  "# Changelog\n",
  "## [Unreleased]\n",
  "### Added\n\n- A route, for `## 0.3.0` of $& others.\n",
  "## 0.2.0 - 2026-01-02\n\n- A key.\n",
  "## 0.1.0\n\n- All.\n",
].join("\n");

describe("the changelog", () => {
  test("makes a version of what is not released, and loses nothing", () => {
    const closed = closeUnreleased(changelog, "0.3.0", "2026-03-04");
    expect(readNotes(closed, "0.3.0")).toBe("### Added\n\n- A route, for `## 0.3.0` of $& others.\n");
    expect(closed.replace("\n\n## 0.3.0 - 2026-03-04", "")).toBe(changelog);
    expect(() => closeUnreleased(closed, "0.4.0", "2026-05-06")).toThrow("nothing under ## [Unreleased]");
    expect(() => closeUnreleased(changelog, "0.1.0", "2026-05-06")).toThrow("has 0.1.0 already");
  });

  test("tells a version from one whose name begins alike", () => {
    expect(readNotes(changelog, "0.2.0")).toBe("- A key.\n");
    expect(readNotes(changelog, "0.1.0")).toBe("- All.\n");
    expect(() => readNotes(changelog, "0.1")).toThrow("nothing of 0.1");
    expect(() => readNotes(changelog, "0.2.0 - 2026")).toThrow("nothing of");
  });

  test("has notes of the version of package.json", () => {
    expect(readNotes(readFileSync("CHANGELOG.md", "utf8"), manifest.version)).toMatch(/^- /m);
  });
});

test("`npm version` writes the version wherever it stands", () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-version-"));
  try {
    const files = [
      "CHANGELOG.md",
      "Dockerfile",
      "deploy/helm/readout/Chart.yaml",
      "deploy/kubernetes/readout.yaml",
      "docs/how-to/install.md",
    ];
    for (const path of [...files, "docs/reference", "test/upgrade"])
      cpSync(path, join(folder, path), { recursive: true });
    // The commit of a version has nothing that is not released.
    const changelog = readFileSync("CHANGELOG.md", "utf8");
    writeFileSync(
      join(folder, "CHANGELOG.md"),
      changelog.replace("## [Unreleased]\n", "## [Unreleased]\n\n- A key.\n"),
    );
    const script = join(process.cwd(), "release/version.ts");
    const next = "9.8.7";
    writeFileSync(join(folder, "package.json"), JSON.stringify({ ...manifest, version: next }));
    const run = () => execFileSync(process.execPath, [script], { cwd: folder, stdio: "pipe" });
    run();
    for (const file of files) {
      const text = readFileSync(join(folder, file), "utf8");
      expect(text).toContain(next);
      if (file !== "CHANGELOG.md") expect(text).not.toContain(manifest.version);
    }
    expect(readNotes(readFileSync(join(folder, "CHANGELOG.md"), "utf8"), next)).toMatch(/^- A key\./);
    checkFixture(join(folder, "test/upgrade", next));
    expect(run).toThrow(/has 9\.8\.7 already/);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the security policy names no version, which nobody would raise", () => {
  expect(readFileSync("SECURITY.md", "utf8").match(/\b\d+\.(?:\d+|x)\b/g)).toBeNull();
});

/** What `test/upgrade/upgrade.test.ts` will read. */
function checkFixture(folder: string): void {
  const examples = readFileSync(join(folder, "examples.yaml"), "utf8").split(/^---$/m);
  expect(examples.length).toBeGreaterThan(20);
  for (const text of examples)
    expect(() => parseConfig(text, "readout.yaml", exampleWorld), text).not.toThrow();
  const database = new DatabaseSync(":memory:");
  database.exec(readFileSync(join(folder, "spool.sql"), "utf8"));
  const spool = openSpoolFile(":memory:");
  const list = (one: DatabaseSync) =>
    one.prepare("SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL").all();
  expect(list(database)).toEqual(list(spool));
  expect(database.prepare("SELECT sequence FROM reports").all()).toHaveLength(2);
  database.close();
  spool.close();
}
