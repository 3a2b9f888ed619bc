// The npm package as a stranger installs it: packed, installed into an empty folder without any registry, and started.
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
  copyFileSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { createRequire, isBuiltin } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { askEveryRoute } from "../../support/demo-questions.ts";
import { endAll, start, startByNpx } from "../../support/process.ts";

const run = promisify(execFile);
let folder: string;
let tarball: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "readout-installed-"));
  const { stdout } = await run("npm", ["run", "--silent", "package"]);
  tarball = join(process.cwd(), stdout.trim());
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", "--no-save", tarball], {
    cwd: folder,
  });
});
afterAll(() => {
  endAll();
  rmSync(folder, { recursive: true });
});

const inPackage = (path: string) => join(folder, "node_modules/readout", path);
const readJson = (path: string) => JSON.parse(readFileSync(inPackage(path), "utf8"));
const listBundles = () =>
  globSync(["dependencies/*.js", "node_modules/{*,@*/*}/index.js"], {
    cwd: inPackage(""),
    exclude: ["node_modules/graphql"],
  });

describe("the dependencies", () => {
  const listPackages = (): readonly Listed[] => readJson("sbom.cdx.json").components;
  const print = ({ name, version }: Listed) => `${name}@${version}`;

  test("are those of the bill of materials, with their licences", async () => {
    const listed = listPackages().map(print);
    const manifests = globSync("node_modules/**/package.json", { cwd: inPackage("") });
    const named = manifests.map((path) => print(readJson(path)));
    expect(named.length).toBeGreaterThan(20);
    expect(listed).toEqual(expect.arrayContaining(named));
    expect(named.map((one) => one.replace(/@[^@]*$/, "")).toSorted()).toEqual(
      readJson("package.json").bundleDependencies.toSorted(),
    );
    // What Node itself loads for them in the checkout.
    const { stdout } = await run(process.execPath, [
      "--input-type=module",
      "--eval",
      `import { registerHooks } from "node:module";
       let loaded = "";
       registerHooks({ load: (url, context, next) => { loaded += url + "\\n"; return next(url, context); } });
       for (const name of ${JSON.stringify(named.map((one) => one.replace(/@[^@]*$/, "")))})
         if (!${JSON.stringify(servedByName)}.includes(name)) await import(name);
       process.stdout.write(loaded, () => process.exit());`,
    ]);
    const loaded = [...stdout.matchAll(/^file:.*node_modules\/(?:@[^/]+\/)?[^/\n]+(?=\/)/gm)].map(([place]) =>
      print(JSON.parse(readFileSync(`${fileURLToPath(place)}/package.json`, "utf8"))),
    );
    expect(new Set(loaded).size).toBeGreaterThan(100);
    expect(listed).toEqual(expect.arrayContaining([...new Set(loaded)]));
    const licences = readFileSync(inPackage("THIRD_PARTY_LICENSES.txt"), "utf8");
    const licensed = [...licences.matchAll(/^(\S+) (\d\S*): (?=\S)/gm)].map(
      ([, name, version]) => `${name}@${version}`,
    );
    expect([...new Set(licensed)].toSorted()).toEqual(listed.toSorted());
    // Below the names of each group of packages.
    for (const group of licences.split(/^-{80}$/m))
      expect(group).toMatch(/permission|Redistribution|Apache License/i);
  });

  test("are so few files that npm installs them in seconds", () => {
    const files = globSync("**/*", { cwd: inPackage(""), withFileTypes: true }).filter((one) => one.isFile());
    expect(files.length).toBeGreaterThan(500);
    expect(files.length).toBeLessThan(1_000);
  });

  test("give what they give in the checkout", async () => {
    const names: readonly string[] = readJson("package.json").bundleDependencies;
    const code = names
      .filter((name) => !servedByName.includes(name))
      .flatMap((name) => [
        `import * as module${names.indexOf(name)} from "${name}";`,
        `told += "${name} " + Object.entries(module${names.indexOf(name)}).map(([key, one]) => key + " " + typeof one).toSorted().join() + "\\n";`,
      ])
      .concat("process.stdout.write(told, () => process.exit());")
      .join("\n");
    const [installed, expected] = await Promise.all(
      [inPackage("names.js"), join(process.cwd(), "dist/names.mjs")].map(async (file) => {
        writeFileSync(file, `let told = "";\n${code}`);
        return (await run(process.execPath, [file])).stdout;
      }),
    );
    expect(expected?.split("\n").length).toBeGreaterThan(20);
    expect(installed).toBe(expected);
  });

  test("name no module that is not there, but for what their users may have", () => {
    const require = createRequire(inPackage("src/main.js"));
    const isThere = (name: string): boolean => {
      try {
        return name.startsWith("graphql") && require.resolve(name) !== "";
      } catch {
        return false;
      }
    };
    const missed = listBundles().flatMap((file) => {
      const code = readFileSync(inPackage(file), "utf8").replaceAll(/^\s*(?:\/\*)?\*.*$/gm, "");
      const named = code.matchAll(
        /(?:^(?:import|export) .*from |^import |\bimport\(|\brequire(?:\$\d+)?\()"([^"\n]+)"/gm,
      );
      const names = [...named, ...code.matchAll(/\b__require\("([^"\n]+)"/g)].map(([, name = ""]) => name);
      return names.filter((name) =>
        name.startsWith(".")
          ? !existsSync(join(inPackage(file), "..", name))
          : !isBuiltin(name) && !isThere(name) && !ofUsers.includes(name),
      );
    });
    expect(missed).toEqual([]);
  });
});

test("has the notices that its files leave to others", () => {
  const files = globSync("node_modules/**/*.js", { cwd: inPackage("") });
  const named = files.flatMap((file) => {
    const [, notices] =
      /license information please see (\S+)/.exec(readFileSync(inPackage(file), "utf8")) ?? [];
    return notices === undefined ? [] : join(dirname(file), notices);
  });
  expect(named.length).toBeGreaterThan(1);
  const licences = readFileSync(inPackage("THIRD_PARTY_LICENSES.txt"), "utf8");
  for (const file of named) expect(licences).toContain(readFileSync(inPackage(file), "utf8").trim());
});

interface Listed {
  readonly name: string;
  readonly version: string;
}

/** Files for browsers, which Node does not run. */
const servedByName = ["swagger-ui-dist", "@dagrejs/dagre", "uplot", "oauth4webapi"];

/**
 * Each is asked for in a way that may fail, for a faster form of what is there or the language of a schema's file, or by code
 * that is printed and not run.
 */
const ofUsers = [
  "ajv/dist/runtime/validation_error",
  "ajv-formats/dist/formats",
  "bufferutil",
  "utf-8-validate",
  "node-libcurl",
  "supports-color",
  "@astrojs/compiler",
  "@vue/compiler-sfc",
  "astrojs-compiler-sync",
  "content-tag",
  "svelte2tsx",
  "typescript",
];

test("is the same, byte for byte, when it is packed again", async () => {
  const digest = () => createHash("sha256").update(readFileSync(tarball)).digest("hex");
  const first = digest();
  rmSync(tarball);
  await run("npm", ["run", "--silent", "package"]);
  expect(digest()).toBe(first);
});

test("answers by `npx`, with nothing installed and an empty cache", async () => {
  const empty = mkdtempSync(join(tmpdir(), "readout-npx-"));
  copyFileSync(tarball, join(empty, "readout.tgz"));
  const { listening, child, ended } = startByNpx(empty, "readout.tgz");
  expect((await fetch(`${await listening}/livez`)).status).toBe(200);
  process.kill(-(child.pid as number), "SIGTERM");
  await ended;
  rmSync(empty, { recursive: true });
});

test("answers on every route", async () => {
  const program = join(folder, "node_modules/.bin/readout");
  const { listening, child, ended, told } = start(program, ["demo", "--port", "0", "--token", "t"]);
  expect(await askEveryRoute(await listening, "t")).toEqual([]);
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  expect(told.err).toBe("");
});

test.each([
  ["check --config readout.yaml", 1, "the backend does not answer"],
  ["explain --config readout.yaml --site shop --source app x=1", 1, "unreachable"],
  ["init --elastic http://127.0.0.1:9 --prometheus http://127.0.0.1:9 --force", 1, "unreachable"],
  ["token new --user ana --site shop", 0, "Entry for readout.yaml"],
  ["visual new --site shop --title Load", 0, "/api/v2/saved_visuals/"],
  ["schema", 0, "type Query"],
  ["schema --subgraph", 0, "@key"],
  ["mcp --url http://127.0.0.1:9", 0, ""],
  ["completion zsh", 0, "_readout"],
])("runs `readout %s`", async (line, code, said) => {
  const place = mkdtempSync(join(tmpdir(), "readout-command-"));
  writeFileSync(join(place, "readout.yaml"), unreachable);
  const { told, ended } = start(join(folder, "node_modules/.bin/readout"), line.split(" "), {
    cwd: place,
    env: { ...process.env, READOUT_TOKEN: "t" },
  });
  expect([await ended, told.out + told.err]).toEqual([code, expect.stringContaining(said)]);
  rmSync(place, { recursive: true });
});

test("joins a source whose handler is installed beside it, with a GraphQL of its own", async () => {
  const handlers = join(folder, "node_modules/@graphql-mesh");
  mkdirSync(handlers);
  symlinkSync(join(process.cwd(), "node_modules/@graphql-mesh/openapi"), join(handlers, "openapi"));
  const service = createServer((request, response) =>
    response
      .setHeader("content-type", "application/json")
      .end(JSON.stringify(request.url === "/openapi.json" ? duty : { person: `Ana, of ${request.url}` })),
  );
  await new Promise<void>((resolve) => service.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
  const guide = readFileSync("docs/how-to/join-your-graphql-source.md", "utf8");
  const [, meshrc = ""] = /```yaml meshrc\n([^`]+)/.exec(guide) ?? [];
  writeFileSync(
    join(folder, "meshrc.yaml"),
    meshrc.replace('"https://duty.internal/openapi.json"', `"${url}/openapi.json", endpoint: "${url}"`),
  );
  const user = `{ user: ana, sha256: ${createHash("sha256").update("t").digest("hex")}, sites: "*" }`;
  writeFileSync(
    join(folder, "readout.yaml"),
    `listen: 127.0.0.1:0\nmesh: meshrc.yaml${unreachable.replace("[]", `[${user}]`)}`,
  );
  const { listening, child, ended } = start(join(folder, "node_modules/.bin/readout"), ["serve"], {
    cwd: folder,
  });
  const answer = await fetch(`${await listening}/graphql`, {
    method: "POST",
    headers: { authorization: "Bearer t", "content-type": "application/json" },
    body: JSON.stringify({ query: "{ sites { on_call { person } } }" }),
  });
  expect(await answer.json()).toEqual({
    data: { sites: [{ on_call: { person: "Ana, of /on-call/shop" } }] },
  });
  child.kill("SIGTERM");
  await ended;
  service.close();
});

const duty = {
  openapi: "3.0.0",
  info: { title: "Duty", version: "1" },
  paths: {
    "/on-call/{site}": {
      get: {
        operationId: "onCall",
        parameters: [{ name: "site", in: "path", required: true, schema: { type: "string" } }],
        responses: {
          200: { description: "OK", content: { "application/json": { schema: describePerson() } } },
        },
      },
    },
  },
};

function describePerson() {
  return { title: "Duty", type: "object", properties: { person: { type: "string" } } };
}

const unreachable = `
tokens: []
backends:
  es: { kind: elastic, url: "http://127.0.0.1:9" }
  prom: { kind: prometheus, url: "http://127.0.0.1:9" }
sites:
  shop:
    logs: { backend: es, sources: { app: { index: app, layout: ecs } } }
    metrics: { backend: prom, match: { site: shop } }
`;

test("holds a backend outside of the tree to the conformance suite that it exports", async () => {
  const tool = (name: string) => join(process.cwd(), "node_modules", name);
  symlinkSync(tool("vitest"), join(folder, "node_modules/vitest"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  copyFileSync("test/release/own-backend/ndjson-backend.js", join(folder, "ndjson-backend.js"));
  writeFileSync(join(folder, "suite.test.js"), suite);
  const report = await run(process.execPath, [tool("vitest/vitest.mjs"), "run", "--reporter=json"], {
    cwd: folder,
  });
  const { numPassedTests, numFailedTests } = JSON.parse(report.stdout);
  expect(numFailedTests).toBe(0);
  expect(numPassedTests).toBeGreaterThan(20);
});

/** Without `isWithinLimits`, which is optional: two tests of it fail, as they have to. */
const suite = `
import { mkdirSync, writeFileSync } from "node:fs";
import { backendToolkit } from "readout/backend";
import { logStoreSuite } from "readout/conformance/logs";
import createKind from "./ndjson-backend.js";

const reason = { reason: "it has no isWithinLimits", failure: /expected undefined to be/ };
logStoreSuite({
  name: "ndjson",
  excuses: {
    "is true only for pages that are not refused": reason,
    "foresees an oversized millisecond at the end of the page and ignores one behind it": reason,
  },
  start: async () => {
    mkdirSync("lines", { recursive: true });
    for (const name of ["app", "nginx"]) writeFileSync("lines/" + name, "");
    const { stores } = createKind(backendToolkit).create("own", { folder: "lines" });
    const source = (id, index = id) => ({ id, index, layout: "auto", tenantFilter: undefined });
    return {
      store: stores.logs,
      sources: { app: source("app"), nginx: source("nginx"), twin: source("twin", "app") },
      seed: async (index, lines) => {
        const print = ({ time, ...line }) =>
          JSON.stringify({ ...line, time: backendToolkit.printInstant(time) }) + "\\n";
        writeFileSync("lines/" + index, lines.map(print).join(""));
      },
      stop: async () => {},
    };
  },
});
`;

test("declares the store contract for backends in TypeScript, or in JavaScript with types", async () => {
  const typed = `
import type { Backend, BackendFactory, LogStore } from "readout/backend";
const create: BackendFactory<{ url: string }> = ({ Refused, fromMillis }) => ({
  kind: "typed",
  parseConfig: (value) => ({ url: String(value) }),
  create: (name, { url }, io): Backend => {
    const logs: LogStore = {
      async *lines({ range, tieLimit }) {
        if (range.from > fromMillis(0)) throw new Refused("result_too_large", url, { limit: tieLimit });
      },
    };
    const probe = async () => ({ product: name, version: String(io.now()) });
    return { name, kind: "typed", stores: { logs }, inspections: {}, probe, close: async () => {} };
  },
});
export default create;
`;
  writeFileSync(join(folder, "typed.ts"), typed);
  writeFileSync(join(folder, "wrong.ts"), typed.replace("url: string", "url: number"));
  const tsc = join(process.cwd(), "node_modules/.bin/tsc");
  const check = (file: string) =>
    run(
      tsc,
      [
        "--noEmit",
        "--allowJs",
        "--checkJs",
        "--strict",
        "--module",
        "nodenext",
        "--target",
        "es2024",
        "--types",
        "node",
        file,
      ].concat(
        ["--typeRoots", join(process.cwd(), "node_modules/@types")],
        ["--lib", "es2024,esnext.disposable"],
      ),
      { cwd: folder },
    );
  await expect(check("typed.ts")).resolves.toMatchObject({ stdout: "" });
  copyFileSync("test/release/own-backend/ndjson-backend.js", join(folder, "ndjson-backend.js"));
  await expect(check("ndjson-backend.js")).resolves.toMatchObject({ stdout: "" });
  await expect(check("wrong.ts")).rejects.toThrow();
});
