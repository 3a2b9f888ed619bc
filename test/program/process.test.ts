// The program as a user starts it: its output and exit code. Refusals before serving are tested on the commands'
// functions, without a process: `test/cli/refused-start.test.ts`.
import { createHash } from "node:crypto";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import manifest from "../../package.json" with { type: "json" };
import { dead, site, useConfigFolder } from "../support/config-files.ts";
import { endAll, program, start, startReadout } from "../support/process.ts";

const { version } = manifest;
const folder = useConfigFolder();
const { configure } = folder;
afterAll(endAll);

describe.concurrent("--version", () => {
  test.each(["--version", "-v"])("readout %s prints the version of package.json", async (option) => {
    const { told, ended } = start(process.execPath, [...program, option]);
    expect(await ended).toBe(0);
    expect(told).toEqual({ out: `${version}\n`, err: "" });
  });
});

// Concurrent, since each mostly waits for a process or the next poll of a file.
describe.concurrent("readout demo", () => {
  test("prints a working curl command and exits cleanly on SIGTERM", async ({ expect }) => {
    const { child, told, ended, listening } = startReadout("demo", "--port", "0", "--token", "it's-a-token");
    await listening;
    await expect.poll(() => told.out).toContain("Ctrl-C");
    const line = told.out.split("\n").find((text) => text.startsWith("curl ")) ?? "";
    // The shell takes the line apart as it would for curl, which this machine may not have.
    const shell = start("sh", [
      "-c",
      `curl() { for argument in "$@"; do printf '%s\\0' "$argument"; done; }; ${line}`,
    ]);
    expect(await shell.ended).toBe(0);
    const [silent, url = "", h1, authorization = "", h2, type, d, body = ""] = shell.told.out.split("\0");
    expect([silent, h1, h2, type, d]).toEqual(["-s", "-H", "-H", "Content-Type: application/json", "-d"]);
    const headers = { authorization: authorization.replace("Authorization: ", "") };
    const answer = await fetch(url, { method: "POST", headers, body });
    expect(answer.status).toBe(200);
    // More where the fifth is one of a burst.
    expect(((await answer.json()) as unknown[]).length).toBeGreaterThanOrEqual(5);
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
    expect(told.err).toBe("");
  });
});

describe.concurrent("readout serve", () => {
  test("starts with an unreachable backend and shows it in /readyz", async ({ expect }) => {
    const file = await configure(site(dead, '{ index: "logs-*" }'));
    const { child, told, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    const answer = await fetch(`${address}/api/v2/auth?token=t`);
    expect(await answer.json()).toEqual({ message: "Authenticated as ana" });
    await expect
      .poll(async () => (await fetch(`${address}/readyz`)).text())
      .toContain("one: does not answer");
    expect(JSON.parse(told.err.split("\n", 1).join())).toMatchObject({
      msg: `readout ${version}`,
      version,
    });
    const metrics = await (await fetch(`${address}/metrics`)).text();
    expect(metrics).toContain(`readout_build_info{version="${version}"} 1\n`);
    const limit = Number(/^readout_memory_limit_bytes (\d+)$/m.exec(metrics)?.[1]);
    expect(limit).toBeGreaterThan(0);
    expect(limit).toBeLessThanOrEqual(totalmem());
    expect((await fetch(`${address}/readyz`)).status).toBe(200);
    child.kill("SIGINT");
    expect(await ended).toBe(0);
  });
});

/** A kind that reports what it keeps as soon as it is opened. */
const keepingKind = `
const create = (name, settings, io) => {
  io.recordRollupBytes(name, 7);
  return {
    name,
    kind: "keeping",
    stores: {},
    inspections: {},
    probe: async () => ({ product: "none", version: "1" }),
    close: async () => {},
  };
};
export default () => ({ parseConfig: () => ({}), create });
`;

describe.concurrent("readout serve: reload", () => {
  const two = (token: string, listen = "127.0.0.1:0"): string =>
    site(dead, "{ index: logs }").replace(hashToken("t"), hashToken(token)).replace("127.0.0.1:0", listen);
  const statusOf = async (address: string, token: string) =>
    (await fetch(`${address}/api/v2/auth?token=${token}`)).status;

  test("applies a changed file after SIGHUP and on its own; an invalid file is logged and changes nothing", async ({
    expect,
  }) => {
    const file = await configure(two("old"));
    const { child, told, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    expect(await statusOf(address, "old")).toBe(200);

    await writeFile(file, two("new"));
    child.kill("SIGHUP");
    await expect.poll(() => statusOf(address, "new")).toBe(200);
    expect(await statusOf(address, "old")).toBe(401);

    for (const [wrong, reason] of [
      ["sites: { shop: 1 }\n", "sites.shop: "],
      [
        site("{ kind: memory }", "{ index: demo-shop-app, where: a=b }"),
        "sites.shop.logs.sources.app: where:",
      ],
      ["{", "not reloaded"],
    ] as const) {
      const before = told.err.length;
      await writeFile(file, wrong);
      await expect.poll(() => told.err.slice(before)).toContain(reason);
      expect(await statusOf(address, "new")).toBe(200);
    }

    await writeFile(file, two("newer", "127.0.0.1:1"));
    await expect.poll(() => statusOf(address, "newer")).toBe(200);
    await expect.poll(() => told.err).toContain("a change of listen needs a restart");
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });

  test("has the folders of the new configuration once it counts", async ({ expect }) => {
    const vis = join(folder.folder, "visuals");
    const docs = join(folder.folder, "documents");
    for (const path of [vis, docs]) await mkdir(path);
    await copyFile("src/cli/demo/throughput.yaml", join(vis, "throughput.yaml"));
    const query = "{ __typename }";
    await writeFile(join(docs, "name.graphql"), query);
    const text = site("{ kind: memory }", "{ index: demo-shop-app }").replace(
      "  shop: {",
      "  demo-shop: { metrics: { backend: one, match: { site: demo-shop } },",
    );
    const file = await configure(`${text}visuals: visuals\n`);
    const { child, told, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    const readVisual = async () =>
      (await fetch(`${address}/api/v2/saved_visuals/9Ubquyg0qqEEfpH6Xefmrg`)).status;
    const askByHash = async () => {
      const sha256Hash = createHash("sha256").update(query).digest("hex");
      const answer = await fetch(`${address}/graphql?token=t`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ extensions: { persistedQuery: { version: 1, sha256Hash } } }),
      });
      return answer.json();
    };
    expect(await readVisual()).toBe(200);
    await writeFile(file, `${text}graphql: { documents: documents, only_documents: true }\n`);
    child.kill("SIGHUP");
    const reloaded = new Promise<void>((resolve) =>
      child.stderr.on("data", () => told.err.includes('"reloaded"') && resolve()),
    );
    await reloaded;
    expect(await readVisual()).toBe(404);
    expect(await askByHash()).toEqual({ data: { __typename: "Query" } });
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });

  test("forgets what a backend kept that the file has no longer", async ({ expect }) => {
    await writeFile(join(folder.folder, "keeping.mjs"), keepingKind);
    const backend = "  two: { kind: ./keeping.mjs }\n";
    const text = two("t").replace("backends:\n", `backends:\n${backend}`);
    const file = await configure(text);
    const { child, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    const readMetrics = async () => (await fetch(`${address}/metrics`)).text();
    expect(await readMetrics()).toContain('readout_rollup_bytes{backend="two"} 7');
    await writeFile(file, text.replace(backend, ""));
    child.kill("SIGHUP");
    await expect.poll(readMetrics).not.toContain('backend="two"} 7');
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });

  test("keeps the used rate of a token", async ({ expect }) => {
    const text = `${two("eager")}limits: { rate: 1 }\n`;
    const file = await configure(text);
    const { child, told, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    const started = performance.now();
    let answered = 0;
    const askUntilRefused = async () => {
      while ((await statusOf(address, "eager")) === 200) answered += 1;
    };
    await askUntilRefused();
    await writeFile(file, `${text}# changed\n`);
    child.kill("SIGHUP");
    await expect.poll(() => told.err).toContain('"reloaded"');
    await askUntilRefused();
    // Ten at once, and one more each second.
    expect(answered).toBeLessThanOrEqual(11 + (performance.now() - started) / 1_000);
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });

  test("keeps a removed intake until the restart, on the new backends", async ({ expect }) => {
    const text = site("{ kind: memory }", "{ index: demo-shop-app }").replace(
      "shop: {",
      "shop: { frontend: { keys: [k], backend: one, index: reports },",
    );
    const file = await configure(`${text}intake: { spool: reports.db }\n`);
    const { child, told, ended, listening } = startReadout("serve", "--config", file);
    const address = await listening;
    await writeFile(file, text);
    // No signal as well: a second reload would take a report in memory with the backend that holds it.
    await expect.poll(() => told.err).toContain('"reloaded"');
    expect(told.err).toContain("needs a restart");
    const body = {
      timestamp: Math.floor(Date.now() / 1_000),
      namespace: "frontend",
      error: { name: "Late" },
    };
    const listed = async () => {
      // Anew each time: one that was on its way during the change may be in the memory of the old backend.
      await fetch(`${address}/errors?api_key=k`, { method: "POST", body: JSON.stringify(body) });
      const pagination = { per_page: 10, order: "DESC", cursor: { time: null } };
      const answer = await fetch(`${address}/api/v2/tracing/traces/errors?token=t`, {
        method: "POST",
        body: JSON.stringify({ site_ids: ["shop"], pagination }),
      });
      return answer.text();
    };
    await expect.poll(listed).toContain('"Late"');
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });
});

test.concurrent("wrong arguments exit with code 2 and --help with 0", async ({ expect }) => {
  for (const args of [[], ["nope"], ["demo", "--nope"]]) {
    const { told, ended } = startReadout(...args);
    expect(await ended, args.join(" ")).toBe(2);
    expect(told.err).toContain("Usage: readout");
    expect(told.out).toBe("");
  }
  for (const args of [["--help"], ["serve", "--help"], ["token", "new", "-h"]]) {
    const { told, ended } = startReadout(...args);
    expect(await ended, args.join(" ")).toBe(0);
    expect(told.out).toContain(`Usage: readout ${args.length === 1 ? "COMMAND" : args[0]}`);
    expect(told.err).toBe("");
  }
});

test.concurrent("an unsupported Node version is reported", async ({ expect }) => {
  const old = 'Object.defineProperty(process, "versions", { value: { node: "22.20.0" } })';
  const { told, ended } = start(process.execPath, [
    "--import",
    `data:text/javascript,${old}`,
    ...program,
    "demo",
  ]);
  expect(await ended).toBe(2);
  expect(told.err).toMatch(/^readout needs Node 24 or later, and this is v[\d.]+\n$/);
});
