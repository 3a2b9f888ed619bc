// The npm package without its dependencies: its files, its imports, its manifest. `test/program/package.test.ts` starts the program
// from them; `test/backends/program/package.test.ts` installs the whole tarball.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { isBuiltin } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { packagesByName } from "../../release/bundle.ts";
import { buildPackage } from "../../release/package.ts";
import { nameJavaScript } from "../../release/program.ts";

let folder: string;
let files: readonly string[];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-package-"));
  files = await buildPackage(folder, {
    GITHUB_REPOSITORY: "o/r",
    GITHUB_SERVER_URL: "https://forge.example",
  });
  symlinkSync(join(process.cwd(), "node_modules"), join(folder, "node_modules"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const read = (path: string) => readFileSync(join(folder, path), "utf8");
const readManifest = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const listModules = () => files.filter((file) => file.endsWith(".js") && !file.startsWith("src/console/"));
const withoutComments = (code: string) =>
  code.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/(^|[\s;{}(,])\/\/.*$/gm, "$1");
const listSpecifiers = (code: string) =>
  [
    ...code.matchAll(/^(?:import|export)\s+(?:[^"';]*?\sfrom\s+)?"([^"]+)"/gm),
    ...code.matchAll(/\bimport\("([^"\n]+)"/g),
    ...code.matchAll(/\bnew URL\("([^"\n]+)", import\.meta\.url\)/g),
  ].map(([text, specifier = ""]) => (text.startsWith("new URL") ? `./${specifier}` : specifier));

describe("the package", () => {
  test("has the files of the program and the conformance suites, and neither TypeScript nor other tests", () => {
    expect(
      files.filter((file) =>
        /\.(?:ts|test\.js|map)$|^(?:bench|test\/(?!conformance\/|log-query\/))/.test(file),
      ),
    ).toEqual([]);
    expect(files.filter((file) => !existsSync(join(folder, file)))).toEqual([]);
    const top = [...new Set(files.map((file) => file.split("/")[0]))].toSorted();
    const documents = ["CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md"];
    expect(top).toEqual(
      [".meshrc.yaml", ...documents, "man", "package.json", "resolvers", "src", "test"].toSorted(),
    );
    expect(files).toContain("resolvers/elastic/layout/layouts/logs/ecs.yaml");
    expect(files).toContain("src/cli/demo/throughput.yaml");
    expect(readManifest(join(folder, "package.json")).man.map(normalize)).toEqual(
      files.filter((file) => file.startsWith("man/")),
    );
  });

  test("imports only modules that it has, and packages that its manifest names", () => {
    const { imports, dependencies } = readManifest(join(folder, "package.json"));
    const isThere = (from: string, specifier: string): boolean => {
      if (isBuiltin(specifier)) return true;
      if (specifier.startsWith("."))
        return existsSync(join(folder, normalize(join(dirname(from), specifier))));
      const [prefix = "", target = ""] =
        Object.entries<string>(imports).find(([name]) => specifier.startsWith(name.slice(0, -1))) ?? [];
      if (prefix !== "")
        return existsSync(join(folder, target.replace("*", specifier.slice(prefix.length - 1))));
      if (specifier === "vitest") return from.startsWith("test/");
      const name = /^(?:@[^/]+\/)?[^/]+/.exec(specifier)?.[0] ?? "";
      return name in dependencies;
    };
    const named = listModules().flatMap((file) =>
      listSpecifiers(withoutComments(read(file))).map((specifier) => [file, specifier] as const),
    );
    expect(named.length).toBeGreaterThan(1_000);
    expect(named.filter(([file, specifier]) => !isThere(file, specifier))).toEqual([]);
  });

  test("names no TypeScript in any text of its code", () => {
    const isNamed = (line: string) => /["`']\S*\.ts["`'#]/.test(line);
    const found = listModules().flatMap((file) => withoutComments(read(file)).split("\n").filter(isNamed));
    expect(found).toEqual([]);
    expect(read(".meshrc.yaml")).toContain("./src/graphql/schema.js#schema");
  });

  test("keeps each line where the checkout has it", () => {
    const built = read("src/intake/spool-client.js").split("\n");
    const source = readFileSync("src/intake/spool-client.ts", "utf8").split("\n");
    const isThread = (line: string) => line.includes("new Worker(");
    expect(built).toHaveLength(source.length);
    expect(built.findIndex(isThread)).toBe(source.findIndex(isThread));
    expect(built.find(isThread)).toContain("./spool-worker.js");
  });

  test("has a manifest that can be published, of the checkout's version, with every dependency bundled", () => {
    const manifest = readManifest(join(folder, "package.json"));
    const checkout = readManifest("package.json");
    const { name, version, bin, engines, dependencies } = checkout;
    expect(manifest).toMatchObject({ name, version, bin, engines, dependencies });
    expect(manifest.bundleDependencies).toEqual([...Object.keys(dependencies), ...packagesByName]);
    expect(Object.keys(manifest.dependencies)).toEqual(manifest.bundleDependencies);
    // npm asks a registry for any dependency that is not bundled, optional peers too.
    for (const key of ["private", "scripts", "devDependencies", "optionalDependencies", "peerDependencies"])
      expect(manifest).not.toHaveProperty(key);
    expect(checkout.private).toBe(true);
    // Without it npm takes no provenance.
    expect(manifest.repository).toEqual({ type: "git", url: "git+https://forge.example/o/r.git" });
    expect(manifest.homepage).toBe("https://forge.example/o/r#readme");
    expect(files).toContain(bin.readout);
    const suite = manifest.exports["./conformance/*"].default.replace("./", "").replace("*", "logs");
    expect(files).toEqual(expect.arrayContaining([suite, manifest.exports["./backend"].default.slice(2)]));
  });
});

test("the README of the package links what it has, and starts it without npm's scripts", async () => {
  const text = read("README.md");
  const links = [...text.matchAll(/\]\(([^)]+)\)/g)].map(([, target = ""]) => target);
  expect(links.filter((target) => !files.includes(target))).toEqual([
    `https://forge.example/o/r/blob/v${readManifest("package.json").version}/docs/README.md`,
  ]);
  const commands = /```sh\n([^`]+)```/.exec(text)?.[1]?.trim().split("\n") ?? [];
  expect(commands.length).toBeGreaterThan(2);
  for (const command of commands) expect(command).toMatch(/^npx --no-install readout (\w+)/);
  const ofNobody = mkdtempSync(join(tmpdir(), "readout-package-"));
  await buildPackage(ofNobody, {});
  const readme = readFileSync(join(ofNobody, "README.md"), "utf8");
  expect(readme).toContain("of the checkout that the package was made in");
  rmSync(ofNobody, { recursive: true });
});

test("the checkout itself is not packed, under the name of the package", () => {
  const pack = () => execFileSync("npm", ["pack", "--dry-run"], { stdio: "pipe" });
  expect(pack).toThrow("Use: npm run package");
});

test("JavaScript is named where a module is, and nowhere else", () => {
  const code = [
    'import { a } from "./a.ts";',
    'import "./b.ts";',
    'export * from "../c.ts";',
    'await import("#src/d.ts");',
    'new Worker(new URL("./e.ts", import.meta.url));',
    'const text = "./f.ts";',
  ].join("\n");
  expect(nameJavaScript(code)).toBe(code.replaceAll(/([a-e])\.ts/g, "$1.js"));
});
