// What was acknowledged survives kill -9. Writers send numbered reports, none twice, while the server is killed and
// started again; in the end the source holds each acknowledged number exactly once.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { renderReport } from "../../support/error-reports.ts";
import { findFreePort } from "../../support/free-port.ts";
import { program } from "../../support/process.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../support/scripted-http-source.ts";

const kills = 20;
const writers = 4;

let folder: string;
let source: ScriptedSource;
/** The source's documents: how often each id was created, and the number that its report carries. */
const created = new Map<string, { times: number; number: number }>();
let server: ChildProcess | undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-kill-"));
  source = await openScriptedSource((response, { url = "" }, body) => {
    if (!url.includes("/_bulk")) {
      return sendJson(
        response,
        url === "/" ? { version: { number: "8.19.0" } } : { indices: [{ name: "reports" }] },
      );
    }
    const lines = body
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const items = [];
    for (let at = 0; at < lines.length; at += 2) {
      const { _id: id } = lines[at].create;
      if (id === "readout-check") {
        items.push({ create: { status: 400, error: { type: "mapper_parsing_exception", reason: "" } } });
        continue;
      }
      const number = Number(/number (\d+)/.exec(lines[at + 1].status?.message ?? "")?.[1] ?? -1);
      const known = created.get(id);
      if (known === undefined) created.set(id, { times: 1, number });
      items.push({
        create:
          known === undefined ? { status: 201 } : { status: 409, error: { type: "conflict", reason: "" } },
      });
    }
    // Now and then the confirmation is lost on its way.
    if (Math.random() < 0.1) response.destroy();
    else sendJson(response, { items });
  });
});
afterAll(async () => {
  server?.kill("SIGKILL");
  await source.close();
  await rm(folder, { recursive: true });
});

test("every acknowledged report is found exactly once", { timeout: 300_000 }, async () => {
  const port = await findFreePort();
  const file = join(folder, "readout.yaml");
  await writeFile(
    file,
    `listen: 127.0.0.1:${port}
intake: { spool: spool.db, address_rate: 100000, key_rate: 100000 }
backends: { elk: { kind: elastic, url: "${source.url}" } }
sites: { shop: { frontend: { keys: [k], backend: elk, index: reports } } }
`,
  );
  const url = `http://127.0.0.1:${port}/errors?api_key=k`;
  const acknowledged = new Set<number>();
  let sent = 0;
  let done = false;
  const writing = Array.from({ length: writers }, async () => {
    while (!done) {
      const number = sent;
      sent += 1;
      try {
        const answer = await fetch(url, {
          method: "POST",
          body: renderReport(number),
          signal: AbortSignal.timeout(5_000),
        });
        if (answer.status === 200 && (await answer.text()) === "{}") acknowledged.add(number);
      } catch {
        // Not acknowledged: it may be there or not, and is never sent again.
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  });
  for (let round = 0; round < kills; round += 1) {
    const before = acknowledged.size;
    server = start(file);
    await expect.poll(() => acknowledged.size).toBeGreaterThan(before + 20);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 300));
    const ended = new Promise((resolve) => server?.once("close", resolve));
    server.kill("SIGKILL");
    await ended;
  }
  done = true;
  await Promise.all(writing);
  server = start(file);
  const metric = async () => {
    const text = await fetch(`http://127.0.0.1:${port}/metrics`).then(
      (answer) => answer.text(),
      () => "",
    );
    return /^readout_intake_spooled_reports (\d+)$/m.exec(text)?.[1];
  };
  await expect.poll(metric, { interval: 200 }).toBe("0");

  const spans = [...created].filter(([id]) => !id.endsWith("-0"));
  const found = new Map<number, number>();
  for (const [, { number }] of spans) found.set(number, (found.get(number) ?? 0) + 1);
  expect([...acknowledged].filter((number) => found.get(number) !== 1)).toEqual([]);
  expect([...found.values()].filter((times) => times !== 1)).toEqual([]);
  for (const [id] of spans) expect(created.has(`${id}-0`)).toBe(true);
  expect(acknowledged.size).toBeGreaterThan(kills * 20);
});

function start(file: string): ChildProcess {
  return spawn(process.execPath, [...program, "serve", "--config", file], { stdio: "ignore" });
}
