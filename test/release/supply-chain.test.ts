// What a release tells of its dependencies: the bill of materials, the licences, the provenance, and the workflow that makes it.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import manifest from "../../package.json" with { type: "json" };
import { listProductionPackages } from "../../release/dependencies.ts";
import { buildProvenance, printChecksums } from "../../release/provenance.ts";
import { buildSbom } from "../../release/sbom.ts";
import { readPage, readTable } from "../support/docs/pages.ts";

/** Licences that ask for no more than their text. CC-BY-4.0 is of data (caniuse-lite). */
const permissive =
  "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BlueOak-1.0.0 CC-BY-4.0 ISC MIT Python-2.0".split(" ");
/** Of tools that are not part of a release. */
const ofTools = [...permissive, "MPL-2.0"];

interface LockEntry {
  readonly license?: string;
  readonly dev?: boolean;
  readonly hasInstallScript?: boolean;
}
const entries = Object.entries<LockEntry>(
  JSON.parse(readFileSync("package-lock.json", "utf8")).packages,
).slice(1);

describe("the bill of materials", () => {
  const sbom = buildSbom(listProductionPackages());

  test("lists each package once, with its checksum and licence", () => {
    const expected = new Set(listProductionPackages().map(({ name, version }) => `${name}@${version}`));
    const listed = sbom.components.map(({ name, version }) => `${name}@${version}`);
    expect(listed.toSorted()).toEqual([...expected].toSorted());
    for (const component of sbom.components) {
      expect(component).toMatchObject({
        type: "library",
        purl: expect.stringMatching(/^pkg:npm\/(?:%40[\w.-]+\/)?[\w.-]+@\d+\./),
        hashes: [{ alg: "SHA-512", content: expect.stringMatching(/^[0-9a-f]{128}$/) }],
        licenses: [{ license: { id: expect.stringMatching(/./) } }],
      });
    }
  });

  test("names the package that is installed under an alias", () => {
    expect(sbom.components.map(({ name }) => name)).toContain("empty-npm-package");
    expect(sbom.components.map(({ name }) => name)).not.toContain("@scarf/scarf");
  });

  test("has the dependencies of each, and every package is reached from the program", () => {
    const after = new Map(sbom.dependencies.map(({ ref, dependsOn }) => [ref, dependsOn]));
    const program = `pkg:npm/readout@${manifest.version}`;
    expect(after.get(program)).toHaveLength(Object.keys(manifest.dependencies).length);
    const reached = new Set<string>();
    const visit = (ref: string): void => {
      if (reached.has(ref)) return;
      reached.add(ref);
      after.get(ref)?.forEach(visit);
    };
    visit(program);
    const refs = sbom.components.map((component) => component["bom-ref"]);
    expect(refs.filter((ref) => !after.has(ref))).toEqual([]);
    expect([...reached].filter((ref) => ref !== program && !refs.includes(ref))).toEqual([]);
    // The others come as peers, which the lock file keeps apart.
    expect(reached.size).toBeGreaterThan(0.9 * refs.length);
  });

  test("is the same for the same lock file", () => {
    expect(buildSbom(listProductionPackages())).toEqual(sbom);
    expect(sbom.serialNumber).toMatch(
      /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/,
    );
  });
});

test("every dependency has a licence of the list", () => {
  const isAllowed = ({ license = "", dev }: LockEntry) =>
    license.split(" OR ").some((one) => (dev ? ofTools : permissive).includes(one));
  expect(entries.length).toBeGreaterThan(500);
  expect(
    entries.filter(([, entry]) => !isAllowed(entry)).map(([path, { license }]) => `${path}: ${license}`),
  ).toEqual([]);
});

test("no dependency of production runs a script when it is installed", () => {
  expect(entries.filter(([, { hasInstallScript, dev }]) => hasInstallScript && !dev)).toEqual([]);
});

test("the provenance names the files by their checksums, the commit and the lock file", () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-provenance-"));
  const file = join(folder, "readout-0.1.0.tgz");
  writeFileSync(file, "content");
  const sum = createHash("sha256").update("content").digest("hex");
  const env = {
    GITHUB_SHA: "c0ffee",
    GITHUB_REPOSITORY: "o/r",
    GITHUB_SERVER_URL: "https://forge.example",
    GITHUB_RUN_ID: "7",
  };
  expect(buildProvenance([file], env)).toMatchObject({
    subject: [{ name: "readout-0.1.0.tgz", digest: { sha256: sum } }],
    predicate: {
      buildDefinition: {
        resolvedDependencies: [
          { uri: "git+https://forge.example/o/r", digest: { gitCommit: "c0ffee" } },
          {
            digest: { sha256: createHash("sha256").update(readFileSync("package-lock.json")).digest("hex") },
          },
        ],
      },
      runDetails: { builder: { id: "https://forge.example/o/r/actions/runs/7" } },
    },
  });
  expect(buildProvenance([file], {})).toMatchObject({
    predicate: {
      buildDefinition: { buildType: expect.stringContaining("npm-run") },
      // A URI, as SLSA wants it.
      runDetails: { builder: { id: expect.stringMatching(/^https:/) } },
    },
  });
  expect(printChecksums([file])).toBe(`${sum}  readout-0.1.0.tgz\n`);
  rmSync(folder, { recursive: true });
});

interface Step {
  readonly id?: string;
  readonly run?: string;
  readonly uses?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}
interface Job {
  readonly permissions: Readonly<Record<string, string>>;
  readonly needs?: string | readonly string[];
  readonly outputs?: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

describe("the release workflow", () => {
  const text = readFileSync(".github/workflows/release.yml", "utf8");
  const { jobs, on } = parseYaml(text) as {
    readonly jobs: Readonly<Record<"build" | "release" | "publish", Job>>;
    readonly on: { readonly push: { readonly tags: readonly string[] } };
  };
  const steps = Object.values(jobs).flatMap((job) => job.steps);
  const commands = steps.flatMap(({ run = "" }) => run.split("\n"));

  test("runs for tags of versions, and only scripts that exist", () => {
    expect(on.push.tags).toEqual(["v*"]);
    const named = commands.flatMap((line) => /npm run (?:--silent )?([\w:]+)/.exec(line)?.[1] ?? []);
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => !(name in manifest.scripts))).toEqual([]);
  });

  test("takes actions by their commit: a tag can be moved", () => {
    const used = [...text.matchAll(/uses: (.*)$/gm)].map(([, action]) => action);
    expect(used.length).toBeGreaterThan(4);
    for (const action of used) expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  test("runs code of the checkout only where it has no right but to read", () => {
    for (const { permissions, steps } of Object.values(jobs)) {
      const runsCode = steps.some(
        ({ run, uses }) => /npm (?:ci|run)/.test(run ?? "") || /checkout/.test(uses ?? ""),
      );
      if (runsCode) expect(permissions).toEqual({ contents: "read" });
    }
  });

  test("hands on where the version is shown, from the job that may run code", () => {
    const { channel } = Object.fromEntries(jobs.build.steps.map((step) => [step.id, step.run]));
    expect(channel).toBe('npm run --silent channel >> "$GITHUB_OUTPUT"');
    const names = execFileSync("npm", ["run", "--silent", "channel"], { encoding: "utf8" }).match(
      /^[\w-]+/gm,
    );
    expect(names).toEqual(["npm-tag", "release-flag"]);
    expect(jobs.build.outputs).toEqual(
      Object.fromEntries(names?.map((name) => [name, `\${{ steps.channel.outputs.${name} }}`]) ?? []),
    );
    const read = [...text.matchAll(/\bneeds\.build\.outputs\.([\w-]+)/g)].map(([, name]) => name);
    expect(read.toSorted()).toEqual(names);
    for (const job of [jobs.release, jobs.publish]) expect([job.needs].flat()).toContain("build");
  });

  test("says what was not signed or published, wherever a key may be missing", () => {
    const withKey = commands.filter((line) => /^\s*if \[ -n "\$\w+" \]/.test(line));
    expect(withKey.length).toBeGreaterThanOrEqual(2);
    expect(commands.filter((line) => /not (?:signed|published)/.test(line))).toHaveLength(withKey.length);
  });

  describe("in a folder of what was built", () => {
    /** What `npm run package` leaves, and what the workflow adds. */
    const built = [
      "readout-1.2.3.tgz",
      "sbom.cdx.json",
      "provenance.intoto.json",
      "SHA256SUMS",
      "NOTES.md",
      "other.json",
    ];
    let folder: string;
    beforeEach(() => {
      folder = mkdtempSync(join(tmpdir(), "readout-workflow-"));
      for (const path of ["bin", "dist"]) mkdirSync(join(folder, path));
      for (const file of built) writeFileSync(join(folder, "dist", file), "");
      for (const program of ["gh", "gpg", "npm"])
        writeFileSync(join(folder, "bin", program), printStandIn(program), { mode: 0o755 });
    });
    afterEach(() => rmSync(folder, { recursive: true }));

    function printStandIn(program: string): string {
      const registry = 'if [ "$*" = "config get registry" ]; then echo https://packages.example/; fi';
      return `#!/bin/sh\necho ${program} "$@" >> calls\n${registry}\n`;
    }

    /** Runs the commands of a job as the forge does. Returns the calls of programs that need the network or a key. */
    function runJob(name: "release" | "publish"): readonly string[] {
      const env = {
        PATH: `${join(folder, "bin")}:${process.env.PATH}`,
        GITHUB_REF_NAME: "v1.2.3",
        GITHUB_REPOSITORY: "o/r",
        GITHUB_STEP_SUMMARY: "summary",
        KEY: "key",
        NPM_TOKEN: "token",
        NPM_TAG: "next",
        RELEASE_FLAG: "--prerelease",
      };
      for (const { run } of jobs[name].steps)
        if (run !== undefined) execFileSync("bash", ["-e", "-c", run], { cwd: folder, env });
      return readFileSync(join(folder, "calls"), "utf8").trim().split("\n");
    }

    test("attaches the files of a release, and no others", () => {
      const call = runJob("release").find((line) => line.startsWith("gh release create"));
      expect(call).toContain(" --prerelease ");
      const attached = call
        ?.split(" ")
        .filter((word) => word.startsWith("dist/") && word !== "dist/NOTES.md");
      const listed = readTable(readPage("docs/explanation/supply-chain.md"), "What a release holds");
      const files = listed.map(([file = ""]) => file.replaceAll("`", "").replace("VERSION", "1.2.3"));
      expect(attached?.toSorted()).toEqual(files.map((file) => `dist/${file}`).toSorted());
      const upload = jobs.build.steps.find(({ uses }) => uses?.includes("upload-artifact"));
      const kept = String(upload?.with?.path).replace("*", "1.2.3").trim().split("\n");
      expect(kept.toSorted()).toEqual(["dist/NOTES.md", ...(attached ?? [])].toSorted());
    });

    test("publishes a file, which npm would take for a repository without its folder", () => {
      expect(runJob("publish")).toEqual([
        "npm config get registry",
        // biome-ignore lint/suspicious/noTemplateCurlyInString: npm reads the variable when it needs it
        "npm config set //packages.example/:_authToken ${NPM_TOKEN}",
        "npm publish ./dist/readout-1.2.3.tgz --tag next --provenance --access public",
      ]);
    });
  });
});
