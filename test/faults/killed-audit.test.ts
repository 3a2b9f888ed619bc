// The program is killed under load: the audit log has a line for each answer that a client has in full, and the next start
// counts what was not yet on the disk.
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { endAll, startReadout } from "../support/process.ts";

/** `npm run test:faults` raises it. */
const kills = Number(process.env.SEEDS ?? 1);
const settings = process.env.SEEDS === undefined ? ["1s"] : ["1s", "always"];
const askers = 6;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-killed-"));
});
afterAll(async () => {
  endAll();
  await rm(folder, { recursive: true });
});

type Line = { readonly event: string; readonly request?: string; readonly unsynced?: number };

async function readLines(path: string): Promise<readonly Line[]> {
  const text = await readFile(path, "utf8");
  return text.split("\n").flatMap((line) => {
    try {
      return line === "" ? [] : [JSON.parse(line)];
    } catch {
      // The part of a line that was written when the program was killed.
      return [];
    }
  });
}

/** The lines behind what is said to be on the disk. */
async function countUnmarked(path: string): Promise<number> {
  const mark = join(dirname(path), ".audit.jsonl.synced");
  const [, marked = 0] = (await readFile(mark, "utf8")).split(" ").map(Number);
  const rest = (await readFile(path)).subarray(marked).toString().split("\n");
  return rest.filter((line) => line !== "").length;
}

/** Asks until the program is gone. Returns the ids of answers that came in full, and of all that was asked. */
async function ask(address: string, name: string) {
  const answered: string[] = [];
  const asked: string[] = [];
  for (let n = 0; ; n += 1) {
    const id = `${name}.${n}`;
    asked.push(id);
    const headers = {
      authorization: `Bearer ${n % 5 === 4 ? "wrong" : "secret-of-ana"}`,
      "x-request-id": id,
      accept: n % 7 === 6 ? "application/x-ndjson" : "application/json",
    };
    const body = JSON.stringify({
      site_id: n % 3 === 2 ? "none" : "shop",
      source_ids: ["app"],
      query: "severity=error",
      pagination: { per_page: 5, order: "DESC" },
    });
    try {
      const answer = await fetch(`${address}/api/v2/logs/lines`, { method: "POST", headers, body });
      await answer.text();
      answered.push(id);
    } catch {
      return { answered, asked };
    }
  }
}

test.each(settings)("sync %s", async (sync) => {
  const file = join(folder, `${sync}.yaml`);
  const path = join(folder, sync, "audit.jsonl");
  await writeFile(
    file,
    `listen: 127.0.0.1:0
audit: { file: ${sync}/audit.jsonl, key: a-key-that-nobody-knows, sync: ${sync} }
limits: { rate: 100000 }
tokens: [{ user: ana, sha256: "${hashToken("secret-of-ana")}", sites: [shop] }]
backends: { demo: { kind: memory } }
sites:
  shop: { logs: { backend: demo, sources: { app: { index: demo-shop-app } } } }
`,
  );
  const answered: string[] = [];
  const asked = new Set<string>();
  /** What was not synced when each run ended. */
  const lost = [0];
  for (let kill = 0; kill < kills; kill += 1) {
    const { child, listening, ended } = startReadout("serve", "--config", file);
    const address = await listening;
    // Until its data are there the program answers nobody.
    await expect.poll(async () => (await fetch(`${address}/readyz`)).status).toBe(200);
    const linesBefore = (await readLines(path)).length;
    const asking = Array.from({ length: askers }, (_, n) => ask(address, `k${kill}.${n}`));
    // A busy machine takes a while for the first answers.
    await expect.poll(async () => (await readLines(path)).length).toBeGreaterThan(linesBefore + 2 * askers);
    await sleep(1_300 + 400 * Math.random());
    child.kill("SIGKILL");
    await ended;
    lost.push(await countUnmarked(path));
    for (const one of await Promise.all(asking)) {
      answered.push(...one.answered);
      for (const id of one.asked) asked.add(id);
    }
  }
  const before = await readLines(path);
  const written = before.flatMap(({ event, request }) => (event === "request" && request ? [request] : []));
  expect(answered.length).toBeGreaterThan(askers);
  const known = new Set(written);
  expect(known.size).toBe(written.length);
  expect(answered.filter((id) => !known.has(id))).toEqual([]);
  expect(written.filter((id) => !asked.has(id))).toEqual([]);
  // Beside those that were answered only what was under way when the program was killed.
  expect(written.length - answered.length).toBeLessThanOrEqual(askers * kills);

  const unmarked = lost.at(-1) ?? 0;
  if (sync === "always") for (const lines of lost) expect(lines).toBeLessThanOrEqual(askers);
  const { child, listening, ended } = startReadout("serve", "--config", file);
  const metrics = await (await fetch(`${await listening}/metrics`)).text();
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  const after = (await readLines(path)).slice(before.length);
  expect(after.map(({ event }) => event)).toEqual(["start", "stop"]);
  const starts = [...before, ...after].filter(({ event }) => event === "start");
  expect(starts.map(({ unsynced }) => unsynced)).toEqual(lost);
  const counted = /^readout_audit_lost_total\{reason="unsynced"\} (\d+)$/m.exec(metrics)?.[1];
  expect(Number(counted ?? 0)).toBe(unmarked);
});
