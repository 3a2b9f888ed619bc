// `npm run package`: the npm package of a release, in `dist/`. It holds JavaScript and every dependency in the version that was
// tested: npm ignores the lock file and the `overrides` of a package that it installs, and would choose others.
import { execFileSync } from "node:child_process";
import { copyFileSync, globSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleDependencies, packagesByName } from "./bundle.ts";
import { listProductionPackages } from "./dependencies.ts";
import { buildManPage } from "./man-page.ts";
import { buildProgram, copyFile, nameJavaScript, readText, root, suites, writeText } from "./program.ts";
import { buildProvenance, type Env, printChecksums, readRepository } from "./provenance.ts";
import { buildSbom } from "./sbom.ts";

interface Manifest extends Readonly<Record<string, unknown>> {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
}

/**
 * Fills a folder with everything but the dependencies. `env` is that of the workflow, or of a person's shell. Returns the paths
 * of its files, relative to the folder.
 */
export async function buildPackage(target: string, env: Env): Promise<readonly string[]> {
  const written = buildProgram(target);
  for (const file of documents) copyFile(file, target);
  const manifest = buildManifest(env);
  writeText(target, manPage, await buildManPage(manifest.version));
  writeText(target, "package.json", `${JSON.stringify(manifest, null, 2)}\n`);
  writeText(target, "README.md", buildReadme(manifest.version, readRepository(env)));
  return [...written, ...documents, manPage, "package.json", "README.md"];
}

const sbomFile = "sbom.cdx.json";
const manPage = "man/readout.1";
const documents = ["LICENSE", "CHANGELOG.md", "SECURITY.md"] as const;

/** The README of the checkout is for those who have its documents, and npm with its scripts. */
function buildReadme(version: string, repository: string | undefined): string {
  const documents = repository && `[the repository](${repository}/blob/v${version}/docs/README.md)`;
  return readText("release/package-readme.md").replace(
    "DOCUMENTS",
    documents ?? "`docs/` of the checkout that the package was made in",
  );
}

/** Without what belongs to the checkout: its scripts, its tools, and the mark that keeps the checkout from being published. */
function buildManifest(env: Env): Manifest {
  const {
    scripts,
    devDependencies,
    overrides,
    allowScripts,
    private: _,
    ...kept
  } = JSON.parse(readText("package.json")) as Manifest;
  const named = listProductionPackages()
    .filter(({ name }) => packagesByName.includes(name))
    .map(({ name, version }) => [name, version] as const);
  const dependencies = { ...kept.dependencies, ...Object.fromEntries(named) };
  const repository = readRepository(env);
  return {
    ...kept,
    // npm takes a provenance only of the repository that the manifest names, and only the workflow knows its own.
    ...(repository !== undefined && {
      repository: { type: "git", url: `git+${repository}.git` },
      homepage: `${repository}#readme`,
    }),
    dependencies,
    man: [`./${manPage}`],
    exports: {
      "./backend": describeExport("resolvers/backend-toolkit"),
      "./conformance/*": describeExport("test/conformance/*"),
      "./package.json": "./package.json",
    },
    // Vitest (for the suites) and Amazon's SDK (for its sources) are no peers: npm asks the registry even for optional ones.
    bundleDependencies: Object.keys(dependencies),
  };
}

const describeExport = (path: string) => ({ types: `./${path}.d.ts`, default: `./${path}.js` });

/** Writes the declarations of what the package exports, for backends in TypeScript. Takes the compiler some seconds. */
function buildDeclarations(target: string): void {
  const options = {
    extends: "../tsconfig.json",
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      rootDir: "..",
      outDir: target,
    },
    files: ["resolvers/backend-toolkit.ts", ...suites].map((path) => `../${path}`),
    include: [],
  };
  const project = "dist/tsconfig.json";
  writeText(root, project, JSON.stringify(options));
  execFileSync(join(root, "node_modules/.bin/tsc"), ["-p", join(root, project)], { stdio: "inherit" });
  // Everything in `dist/` is part of a release.
  rmSync(join(root, project));
  for (const path of globSync("**/*.d.ts", { cwd: target }))
    writeText(target, path, nameJavaScript(readFileSync(join(target, path), "utf8")));
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  // Files of the image have the rights that they have here, and the same commit makes the same image.
  process.umask(0o022);
  const folder = join(root, "dist/readout");
  rmSync(join(root, "dist"), { recursive: true, force: true });
  await buildPackage(folder, process.env);
  const packages = await bundleDependencies(folder);
  writeText(folder, sbomFile, `${JSON.stringify(buildSbom(packages), null, 2)}\n`);
  // The image takes the folder as it is. Nobody compiles against it, and its stage has no compiler.
  if (!process.argv.includes("--folder")) {
    buildDeclarations(folder);
    const [tarball] = execFileSync(
      "npm",
      ["pack", folder, "--pack-destination", join(root, "dist"), "--silent"],
      {
        encoding: "utf8",
      },
    ).split("\n");
    const files = [join(root, `dist/${tarball}`), join(root, "dist", sbomFile)];
    copyFileSync(join(folder, sbomFile), join(root, "dist", sbomFile));
    writeText(join(root, "dist"), "SHA256SUMS", printChecksums(files));
    const provenance = buildProvenance(files, process.env);
    writeText(join(root, "dist"), "provenance.intoto.json", `${JSON.stringify(provenance, null, 2)}\n`);
    process.stdout.write(`dist/${tarball}\n`);
  }
}
