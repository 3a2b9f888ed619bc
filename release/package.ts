// `npm run package`: the npm package of a release, in `dist/`. It holds JavaScript and every dependency in the version that was
// tested: npm ignores the lock file and the `overrides` of a package that it installs, and would choose others.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { copyDependencies } from "./dependencies.ts";
import { buildProgram, readText, root, writeText } from "./program.ts";

interface Manifest extends Readonly<Record<string, unknown>> {
  readonly dependencies: Readonly<Record<string, string>>;
}

/** Fills a folder with everything but the dependencies. Returns the paths of its files, relative to the folder. */
export function buildPackage(target: string): readonly string[] {
  const written = buildProgram(target);
  for (const file of documents) copyFileSync(join(root, file), join(target, file));
  writeText(target, "package.json", `${JSON.stringify(buildManifest(), null, 2)}\n`);
  return [...written, ...documents, "package.json"];
}

const documents = ["README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"] as const;

/** Without what belongs to the checkout: its scripts, its tools, and the mark that keeps the checkout from being published. */
function buildManifest(): Manifest {
  const {
    scripts,
    devDependencies,
    overrides,
    allowScripts,
    private: _,
    ...kept
  } = JSON.parse(readText("package.json")) as Manifest;
  return { ...kept, bundleDependencies: Object.keys(kept.dependencies) };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const folder = join(root, "dist/readout");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  buildPackage(folder);
  copyDependencies(folder);
  // A stage of the image takes the folder as it is.
  if (!process.argv.includes("--folder")) {
    const [tarball] = execFileSync(
      "npm",
      ["pack", folder, "--pack-destination", join(root, "dist"), "--silent"],
      {
        encoding: "utf8",
      },
    ).split("\n");
    process.stdout.write(`dist/${tarball}\n`);
  }
}
