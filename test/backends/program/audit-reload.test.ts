// The audit log of a program whose configuration changes while it is asked: each answer has its line where the configuration
// says, and no line is lost between two files.
import { mkdtemp, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { endAll, startReadout } from "../../support/process.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-audit-reload-"));
});
afterAll(async () => {
  endAll();
  await rm(folder, { recursive: true });
});

type Line = Readonly<Record<string, unknown>>;
const readLines = async (name: string): Promise<readonly Line[]> =>
  (await readFile(join(folder, name), "utf8"))
    .split("\n")
    .flatMap((line) => (line === "" ? [] : [JSON.parse(line)]));

async function configure(audit: string): Promise<string> {
  const file = join(folder, "readout.yaml");
  await writeFile(
    `${file}.next`,
    `listen: 127.0.0.1:0
${audit}
limits: { rate: 100000 }
tokens: [{ user: ana, sha256: "${hashToken(token)}", sites: "*" }]
backends: { demo: { kind: memory } }
sites: { shop: { logs: { backend: demo, sources: { app: { index: demo-shop-app } } } } }
`,
  );
  await rename(`${file}.next`, file);
  return file;
}

const token = "secret-of-ana";
const written = (file: string, more = "") => `audit: { file: ${file}, key: key-that-nobody-knows${more} }`;

function createClient(address: string) {
  let probes = 0;
  const ask = async (id: string): Promise<number> => {
    const headers = { authorization: `Bearer ${token}`, "x-request-id": id };
    const body = JSON.stringify({
      site_id: "shop",
      source_ids: ["app"],
      query: "severity=error",
      pagination: { per_page: 1, order: "DESC" },
    });
    const answer = await fetch(`${address}/api/v2/logs/lines`, { method: "POST", headers, body });
    await answer.text();
    return answer.status;
  };
  /** The line of a new request in the file; undefined where it has none there. */
  const probe = async (file: string): Promise<Line | undefined> => {
    probes += 1;
    await ask(`probe.${probes}`);
    return (await readLines(file)).find(({ request }) => request === `probe.${probes}`);
  };
  return { ask, probe };
}

test("a reload changes what lines say and where they go, and loses none", { timeout: 120_000 }, async () => {
  const { child, told, ended, listening } = startReadout("serve", "--config", await configure(written("a")));
  const { ask, probe } = createClient(await listening);
  await expect.poll(() => probe("a")).toHaveProperty("query_hash");
  const asked: string[] = [];
  const wrong: number[] = [];
  let isOver = false;
  const asking = [0, 1].map(async (client) => {
    for (let n = 0; !isOver; n += 1) {
      const status = await ask(`${client}.${n}`);
      if (status !== 200) wrong.push(status);
      asked.push(`${client}.${n}`);
    }
  });
  await configure(written("a", ", queries: text, sync: always"));
  await expect.poll(() => probe("a")).toMatchObject({ query: "severity=error" });
  await configure(written("b"));
  await expect.poll(() => probe("b")).toHaveProperty("query_hash");
  await configure(written("a"));
  await expect.poll(() => probe("a")).toHaveProperty("query_hash");
  isOver = true;
  await Promise.all(asking);
  await configure("visuals: visuals");
  await expect.poll(() => probe("a")).toBeUndefined();
  await symlink("/dev/null", join(folder, "link"));
  await configure(written("link"));
  await expect.poll(() => told.err).toMatch(/is a link[^\n]*not reloaded/);
  expect(await probe("a")).toBeUndefined();
  await configure(written("b"));
  await expect.poll(() => probe("b")).toHaveProperty("query_hash");
  child.kill("SIGTERM");
  expect(await ended).toBe(0);

  const [a, b] = [await readLines("a"), await readLines("b")];
  const ids = [...a, ...b].flatMap(({ request }) => (request === undefined ? [] : [request]));
  expect(new Set(ids).size).toBe(ids.length);
  expect(asked.length).toBeGreaterThan(20);
  expect([wrong, asked.filter((id) => !ids.includes(id))]).toEqual([[], []]);
  for (const lines of [a, b]) {
    expect(lines.flatMap(({ event }) => (event === "request" ? [] : [event]))).toEqual([
      "start",
      "stop",
      "start",
      "stop",
    ]);
    for (const { unsynced = 0 } of lines) expect(unsynced).toBe(0);
  }
});
