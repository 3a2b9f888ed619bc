// What a release tells of its dependencies: the bill of materials, the licences, the provenance, and the workflow that makes it.
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse as parseYaml } from "yaml";
import manifest from "../../package.json" with { type: "json" };
import { listProductionPackages } from "../../release/dependencies.ts";
import { buildProvenance, printChecksums } from "../../release/provenance.ts";
import { buildSbom } from "../../release/sbom.ts";

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
  expect(printChecksums([file])).toBe(`${sum}  readout-0.1.0.tgz\n`);
  rmSync(folder, { recursive: true });
});

describe("the release workflow", () => {
  const text = readFileSync(".github/workflows/release.yml", "utf8");
  const { jobs, on } = parseYaml(text);
  const steps: readonly { run?: string; uses?: string; if?: string }[] = Object.values<{ steps: object[] }>(
    jobs,
  ).flatMap((job) => job.steps);
  const commands = steps.flatMap(({ run = "" }) => run.split("\n"));

  test("runs for tags of versions, and only scripts that exist", () => {
    expect(on.push.tags).toEqual(["v*"]);
    const named = commands.flatMap((line) => /npm run (?:--silent )?([\w:]+)/.exec(line)?.[1] ?? []);
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((name) => !(name in manifest.scripts))).toEqual([]);
  });

  test("takes actions of a fixed version", () => {
    for (const { uses } of steps) if (uses !== undefined) expect(uses).toMatch(/^[\w-]+\/[\w-]+@v\d+$/);
  });

  test("says what was not signed or published, wherever a key may be missing", () => {
    const withKey = commands.filter((line) => /^\s*if \[ -n "\$\w+" \]/.test(line));
    expect(withKey.length).toBeGreaterThanOrEqual(2);
    expect(commands.filter((line) => /not (?:signed|published)/.test(line))).toHaveLength(withKey.length);
  });
});
