// The dependencies of a release in some 70 files instead of 4,500: npm writes each file of a package up to four times. Each
// package that the program imports keeps its name below `node_modules`, and its code is bundled with all that it imports.
// What several of them import is in one place, `dependencies`, so that there is one of each.
import { existsSync, globSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type LogLevel, type OutputChunk, type RolldownLog, rolldown } from "rolldown";
import { type LockedPackage, listProductionPackages } from "./dependencies.ts";
import { copyFile, readText, root, writeText } from "./program.ts";

/** Packages whose files are read by name, by a browser or by other packages, and which files. The first has the package's name. */
const packagesOfFiles: Readonly<Record<string, readonly string[]>> = {
  "@dagrejs/dagre": ["dist/dagre.esm.js"],
  "swagger-ui-dist": ["swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"],
  oauth4webapi: ["build/index.js"],
  uplot: ["dist/uPlot.esm.js", "dist/uPlot.min.css"],
  // Handlers of Mesh sources import it too, by the names of its files. `src/graphql/mesh.ts` gives them this one.
  graphql: ["index.js", "**/*.js"],
};

/** Packages inside of those files. */
const packagesInFiles = ["@dagrejs/graphlib"];

/** Packages that Mesh imports by a computed name. */
export const packagesByName = [
  "@graphql-mesh/cache-localforage",
  "@graphql-mesh/merger-bare",
  "@graphql-mesh/merger-stitching",
];

/** Writes the dependencies into the folder of a package. Returns those that it holds, in the order of the lock file. */
export async function bundleDependencies(target: string): Promise<readonly LockedPackage[]> {
  const direct = Object.keys(JSON.parse(readText("package.json")).dependencies);
  const named = [...direct, ...packagesByName].map(findPackage);
  const ofFiles = named.filter(({ name }) => name in packagesOfFiles);
  const ofModules = named.filter(({ name }) => !(name in packagesOfFiles));
  for (const one of ofFiles) copyFiles(one, packagesOfFiles[one.name] as readonly string[], target);
  for (const one of ofModules) writeManifest(one, { type: "module", exports: "./index.js" }, target);
  const chunks = await bundleModules(ofModules, target);
  const held = new Set([
    ...[...ofFiles, ...packagesInFiles.map(findPackage)].map(({ path }) => path),
    ...chunks.flatMap(({ moduleIds }) => moduleIds.flatMap(findPlace)),
  ]);
  const packages = listProductionPackages().filter(({ path }) => held.delete(path));
  if (held.size > 0) throw new Error(`these packages are not of production: ${[...held]}`);
  writeText(target, licencesFile, printLicences(packages));
  return packages;
}

const licencesFile = "THIRD_PARTY_LICENSES.txt";

function findPackage(name: string): LockedPackage {
  const found = listProductionPackages().find(({ path }) => path === `node_modules/${name}`);
  if (found === undefined) throw new Error(`${name} is no package of production`);
  return found;
}

/** The place of the package that has a module: `node_modules/a/node_modules/b`. */
function findPlace(module: string): string | [] {
  return /^.*node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(module.slice(root.length))?.[0] ?? [];
}

function copyFiles(one: LockedPackage, patterns: readonly string[], target: string): void {
  const [main] = patterns;
  const rest = one.name === "graphql" ? { main } : { exports: { ".": `./${main}`, "./*": "./*" } };
  writeManifest(one, rest, target);
  const files = globSync([...patterns], { cwd: join(root, one.path) });
  for (const file of [...files, ...listNotices(one)]) copyFile(join(one.path, file), target);
}

/** Without dependencies: npm asks the registry for each that has no folder of its own. */
function writeManifest({ path, name, version, license }: LockedPackage, rest: object, target: string): void {
  writeText(
    target,
    `${path}/package.json`,
    `${JSON.stringify({ name, version, license, ...rest }, null, 2)}\n`,
  );
}

/** Bundles each package and what it imports. Nothing is left out of a module, so that it does what it does in the checkout. */
async function bundleModules(
  packages: readonly LockedPackage[],
  target: string,
): Promise<readonly OutputChunk[]> {
  const entries = join(root, "dist/entries");
  const input: Record<string, string> = {};
  for (const { name, path } of packages) {
    // Node finds the names of a CommonJS module. A bundle of it would have a default and nothing else.
    const names = Object.keys(await import(name)).map((one) =>
      one === "module.exports" ? `default as "module.exports"` : one,
    );
    writeText(entries, `${name}.mjs`, `export { ${names.join(", ")} } from "${name}";\n`);
    input[`${path}/index`] = join(entries, `${name}.mjs`);
  }
  const bundle = await rolldown({
    input,
    platform: "node",
    treeshake: false,
    // TypeScript is no dependency of production. A reader of schemas in the components of Vue would take it from its user.
    external: [/^graphql(?:\/|$)/, "typescript"],
    resolve: { mainFields: ["main"], conditionNames: ["node", "module-sync"] },
    onLog: refuseWarning,
  });
  const { output } = await bundle.write({
    dir: target,
    format: "esm",
    minify: false,
    chunkFileNames: "dependencies/[name]-[hash].js",
  });
  await bundle.close();
  rmSync(entries, { recursive: true });
  return output.filter((one) => one.type === "chunk");
}

/** A module that is not found, or names that it does not export, would be missed at run time only. */
function refuseWarning(level: LogLevel, { code, message }: RolldownLog): void {
  if (level === "warn" && code !== "EVAL") throw new Error(message);
}

/** Each text once, below the packages that have it. */
function printLicences(packages: readonly LockedPackage[]): string {
  const byText = Map.groupBy(packages, readLicence);
  return [...byText]
    .map(([text, held]) => [...held.map(printLicensed), "", text].join("\n"))
    .join(`\n\n${"-".repeat(80)}\n\n`)
    .concat("\n");
}

const printLicensed = ({ name, version, license }: LockedPackage): string => `${name} ${version}: ${license}`;

/** Of code of others that a file holds, where the file leaves them to another one beside it. */
function listNotices({ path, name }: LockedPackage): readonly string[] {
  const beside = (packagesOfFiles[name] ?? []).flatMap((file) => [
    `${file}.LICENSE.txt`,
    `${file}.LEGAL.txt`,
  ]);
  return beside.filter((file) => existsSync(join(root, path, file)));
}

function readLicence(one: LockedPackage): string {
  const { path } = one;
  const files = readdirSync(join(root, path)).filter((file) => /^(?:licen[cs]e|notice|copying)/i.test(file));
  const texts = [...files.toSorted(), ...listNotices(one)].map((file) => readText(join(path, file)).trim());
  return texts.join("\n\n") || printMitLicence(one);
}

/** For a package without a text of its licence. A licence other than MIT needs one of its own here. */
function printMitLicence({ path, name, license }: LockedPackage): string {
  if (license !== "MIT") throw new Error(`${name} has no text of its licence (${license})`);
  const { author } = JSON.parse(readText(join(path, "package.json"))) as {
    readonly author?: string | { readonly name: string };
  };
  const holder = (typeof author === "object" ? author.name : author) ?? "the authors of the packages";
  return `The packages have no text of their licence. This is the usual one.

MIT License

Copyright (c) ${holder}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files
(the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify,
merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`;
}
