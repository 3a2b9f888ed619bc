// Refusals of `readout demo` and `readout serve` before they serve: exit code and what is said. The program as a process is in
// `test/program/process.test.ts`.
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { kinds } from "#resolvers/index.ts";
import * as demo from "#src/cli/demo.ts";
import * as serve from "#src/cli/serve/serve.ts";
import { now } from "#src/core/time.ts";
import type { BackendKind } from "#src/store/backend.ts";
import { dead, site, useConfigFolder } from "../support/config-files.ts";
import { createShell } from "../support/fake-shell.ts";

const configs = useConfigFolder();
const { configure } = configs;

/** Runs a command that ends by itself. Returns its exit code and standard error. */
async function refused(command: typeof demo | typeof serve, ...args: string[]) {
  const shell = {
    ...createShell({ now: now(), kinds: [...kinds.values()] }),
    readText: (path: string) => readFileSync(path, "utf8"),
  };
  const code = await command.run(args, shell);
  return { code, err: shell.complained() };
}
async function takePort() {
  const taken = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => taken.once("listening", resolve));
  const address = taken.address();
  return { taken, port: typeof address === "object" && address !== null ? address.port : 0 };
}

test("readout demo reports a port that is in use", async () => {
  const { taken, port } = await takePort();
  const { code, err } = await refused(demo, "--port", String(port));
  expect(code).toBe(1);
  expect(err).toBe(`http://127.0.0.1:${port} is in use; choose another port with --port\n`);
  taken.close();
});

describe.concurrent("readout serve", () => {
  test("refuses to start when a tenant filter is not exact", async ({ expect }) => {
    const file = await configure(site("{ kind: memory }", "{ index: demo-shop-app, where: a=b }"));
    const { code, err } = await refused(serve, "--config", file);
    expect(code).toBe(1);
    expect(err).toContain("sites.shop.logs.sources.app: where:");
  });

  test("refuses an inexact tenant filter also when the inspection of sources is slow", async ({ expect }) => {
    const names = Array.from({ length: 50 }, (_, n) => `s${n}`);
    const slow: BackendKind<unknown> = {
      kind: "slow",
      parseConfig: () => ({}),
      create: (name) => ({
        name,
        kind: "slow",
        stores: {},
        close: async () => {},
        probe: async () => ({ product: "Slow", version: "1" }),
        inspections: {
          async logs({ id }, signal) {
            await delay(250, undefined, { signal });
            const sound = { layout: "x", newest: undefined, limitations: [], problems: [] };
            const tenantFilterFault = "where: it does not hold";
            return id === names.at(-1)
              ? { ...sound, problems: [tenantFilterFault], tenantFilterFault }
              : sound;
          },
        },
      }),
    };
    const sources = names.map((name) => `${name}: { index: ${name} }`).join(", ");
    const text = site("{ kind: slow }", "{ index: s }").replace("app: { index: s }", sources);
    const shell = createShell({ now: now(), files: { "readout.yaml": text }, kinds: [slow] });
    expect(await serve.run([], shell)).toBe(1);
    expect(shell.complained()).toContain("sites.shop.logs.sources.s49: where: it does not hold");
  });

  test("names the port that is in use", async ({ expect }) => {
    const { taken, port } = await takePort();
    const spool = `intake: { listen: "127.0.0.1:${port}", spool: taken.db }`;
    const file = await configure(`${site(dead, "{ index: logs }")}${spool}\n`);
    const { code, err } = await refused(serve, "--config", file);
    expect(code).toBe(1);
    expect(err).toContain(`http://127.0.0.1:${port} is in use; set another \`listen\` in ${file}\n`);
    taken.close();
  });

  test("names the setting and the line of a certificate that cannot be read", async ({ expect }) => {
    const tls = "\n    kind: elastic\n    url: https://h\n    tls:\n      ca: none.pem";
    const file = await configure(site(tls, "{ index: logs }"));
    const { code, err } = await refused(serve, "--config", file);
    expect(code).toBe(1);
    expect(err).toBe(`${file}:10: backends.one.tls.ca: none.pem cannot be read (ENOENT)\n`);
  });

  test("reports an invalid configuration with its path", async ({ expect }) => {
    const file = await configure("sites: { shop: 1 }\n");
    const { code, err } = await refused(serve, "--config", file);
    expect(code).toBe(1);
    expect(err).toContain(`${file}:1: sites.shop: `);
    expect(await refused(serve, "--config", join(configs.folder, "none.yaml"))).toMatchObject({ code: 1 });
  });
});

test.each<[command: typeof demo | typeof serve, ...args: string[]]>([
  [demo, "--port", "99999"],
  [serve, "x"],
])("wrong arguments end with code 2", async (command, ...args) => {
  const { code, err } = await refused(command, ...args);
  expect(code, args.join(" ")).toBe(2);
  expect(err).toContain("Usage: readout");
});
