// A backend outside of the tree, as a configuration names it: loaded, held to the conformance suite, checked and refused.
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { kinds, loadOwnKind } from "#resolvers/index.ts";
import { run } from "#src/cli/check/check.ts";
import { now, printInstant } from "#src/core/time.ts";
import { logStoreSuite } from "../conformance/logs.ts";
import { createShell } from "../support/fake-shell.ts";
import { testIO } from "../support/io.ts";

const folder = mkdtempSync(join(tmpdir(), "readout-own-backend-"));
const file = join(folder, "readout.yaml");
const module = "./ndjson-backend.js";
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
copyFileSync("test/release/own-backend/ndjson-backend.js", join(folder, module));
mkdirSync(join(folder, "lines"));
afterAll(() => rmSync(folder, { recursive: true }));

const source = (id: string, index = id) => ({ id, index, layout: "auto", tenantFilter: undefined });

logStoreSuite({
  name: "a backend of one's own",
  excuses: Object.fromEntries(
    [
      "is true only for pages that are not refused",
      "foresees an oversized millisecond at the end of the page and ignores one behind it",
    ].map((title) => [title, { reason: "it has no isWithinLimits", failure: /expected undefined to be/ }]),
  ),
  start: async () => {
    const settings = { folder: join(folder, "lines") };
    const store = loadOwnKind(module, file)?.create("own", settings, testIO).stores.logs;
    if (store === undefined) throw new Error("the module is no kind with a log store");
    for (const name of ["app", "nginx"]) writeFileSync(join(folder, "lines", name), "");
    return {
      store,
      sources: { app: source("app"), nginx: source("nginx"), twin: source("twin", "app") },
      seed: async (index, lines) => {
        const documents = lines.map(({ source_id: _, time, ...line }) => ({
          ...line,
          time: printInstant(time),
        }));
        writeFileSync(
          join(folder, "lines", index),
          documents.map((line) => `${JSON.stringify(line)}\n`).join(""),
        );
      },
      stop: async () => {},
    };
  },
});

describe("kind", () => {
  const check = async (kind: string, settings = `folder: ${join(folder, "lines")}`, where = "") => {
    const text = `
tokens: [{ user: ana, sha256: "${"ab".repeat(32)}", sites: "*" }]
backends: { own: { kind: ${JSON.stringify(kind)}, ${settings} } }
sites: { shop: { logs: { backend: own, sources: { app: { index: app${where} } } } } }
`;
    const shell = createShell({ now: now(), files: { [file]: text }, kinds: [...kinds.values()] });
    const code = await run(["--config", file], shell);
    return { code, text: shell.printed() + shell.complained() };
  };
  const define = (name: string, text: string) => writeFileSync(join(folder, name), text);

  test("a path of a module is served", async () => {
    const { code, text } = await check(module);
    expect(text).toContain("ndjson");
    expect(code).toBe(0);
  });

  test("a package beside the file is served", async () => {
    const home = join(folder, "node_modules/@acme/lines");
    mkdirSync(home, { recursive: true });
    writeFileSync(join(home, "package.json"), '{ "type": "module", "exports": "./ndjson-backend.js" }');
    copyFileSync("test/release/own-backend/ndjson-backend.js", join(home, module));
    expect((await check("@acme/lines")).code).toBe(0);
  });

  test("a module in TypeScript is served", async () => {
    const text = readFileSync(join(folder, module), "utf8");
    define("typed.ts", text.replace("(name, { folder })", "(name: string, { folder }: { folder: string })"));
    expect((await check("./typed.ts")).code).toBe(0);
  });

  test("a tenant filter that the backend cannot hold is refused", async () => {
    const { code, text } = await check(module, undefined, ", where: 'a=\"b\"'");
    expect(code).toBe(1);
    expect(text).toContain("use one file for each site");
  });

  test.each([
    ["./missing.js", 'backends.own.kind: "./missing.js": there is no such module'],
    ["elastik", 'unknown kind "elastik"'],
    ["http", 'unknown kind "http"'],
    ["./broken.js", "the module cannot be used: broken on purpose"],
    ["./empty.js", "the module cannot be used: its default export is no function"],
    ["./other.js", "the module cannot be used: its function returns no backend kind"],
    ["./waiting.js", "the module cannot be used: "],
  ])("%s is refused with its reason", async (kind, reason) => {
    define("broken.js", 'throw new Error("broken on purpose\\nand a second line");');
    define("empty.js", "export const nothing = 1;");
    define("other.js", "export default () => ({});");
    define("waiting.js", "await null; export default () => ({});");
    const { code, text } = await check(kind);
    expect(text).toContain(reason);
    expect(text).not.toContain("second line");
    expect(code).toBe(1);
  });

  test("what is wrong with its settings is reported under the backend", async () => {
    const { code, text } = await check(module, "folder: 1");
    expect(text).toMatch(/readout\.yaml:3: backends\.own: folder: expected the path of a folder/);
    expect(code).toBe(1);
    define(
      "issues.js",
      'export default () => ({ create() {}, parseConfig() { throw { issues: [{ path: ["url"], message: "is no address" }] } } });',
    );
    expect((await check("./issues.js", "url: x")).text).toContain("backends.own.url: is no address");
  });

  test("an error of its judgement of a tenant filter is a fault of that filter", async () => {
    const findFault = 'findTenantFilterFault() { throw new Error("broken on purpose"); }';
    define(
      "throws.js",
      `export default () => ({ create() {}, parseConfig() { return {}; }, ${findFault} });`,
    );
    const { code, text } = await check("./throws.js", undefined, ", where: a");
    expect(text).toContain(".where: broken on purpose");
    expect(code).toBe(1);
  });
});
