// Makes JavaScript of the program, in the folders of the checkout. Node refuses TypeScript below node_modules, so a package
// needs it. Types are erased as Node itself erases them when it runs the checkout: each line stays where it is, and a
// package runs the same code.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("..", import.meta.url));

/** The conformance suites, for backends of one's own. */
export const suites = ["logs", "spans", "metrics", "kubernetes"].map((name) => `test/conformance/${name}.ts`);

/** Fills a folder with the program and the suites. Returns the paths of its files, relative to the folder. */
export function buildProgram(target: string): readonly string[] {
  const ofSuites = [...listImported(suites), ...listSources(["test/log-query/cases"])];
  const sources = [
    ...listSources(["src", "resolvers"]),
    ...ofSuites.filter((path) => path.startsWith("test/")),
  ];
  const written = sources.map((source) => buildFile(source, target));
  writeText(target, ".meshrc.yaml", nameJavaScript(readText(".meshrc.yaml")));
  return [...written, ".meshrc.yaml"];
}

/** Lists the files of folders of the checkout, without documents for its readers. */
function listSources(folders: readonly string[]): readonly string[] {
  return folders.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && !/\.d\.ts$|\.md$/.test(entry.name))
      .map((entry) => join(entry.parentPath, entry.name).slice(root.length))
      .toSorted(),
  );
}

/** Lists modules and those of the checkout that they import, directly or not. */
function listImported(modules: readonly string[]): readonly string[] {
  const found = new Set<string>();
  const visit = (path: string) => {
    if (found.has(path)) return;
    found.add(path);
    for (const [, specifier = ""] of readText(path).matchAll(/^(?:import|export|\}) .*?"((?:\.|#)[^"]+)"/gm))
      visit(specifier.startsWith("#") ? specifier.slice(1) : join(dirname(path), specifier));
  };
  for (const path of modules) visit(path);
  return [...found].toSorted();
}

function buildFile(source: string, target: string): string {
  const built = source.replace(/\.ts$/, ".js");
  if (source.endsWith(".ts"))
    writeText(target, built, nameJavaScript(stripTypeScriptTypes(readText(source))));
  else if (isNodeModule(source)) writeText(target, built, nameJavaScript(readText(source)));
  else copyFile(source, target);
  return built;
}

/** The modules of the console are a browser's, and name no TypeScript. */
const isNodeModule = (source: string): boolean =>
  source.endsWith(".js") && !source.startsWith("src/console/");

/** Names the JavaScript where a module is imported, started as a thread or named for Mesh. */
export function nameJavaScript(code: string): string {
  return code
    .replaceAll(/(\bfrom |\bimport |\bimport\(|\bnew URL\()"((?:\.|#)[^"\n]*)\.ts"/g, '$1"$2.js"')
    .replaceAll(/(source: \.\/\S+)\.ts#/g, "$1.js#");
}

export function readText(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** Without the rights of the file, which depend on who checked it out. */
export function copyFile(path: string, target: string): void {
  writeText(target, path, readFileSync(join(root, path)));
}

export function writeText(folder: string, path: string, content: string | Uint8Array): void {
  mkdirSync(join(folder, dirname(path)), { recursive: true });
  writeFileSync(join(folder, path), content);
}
