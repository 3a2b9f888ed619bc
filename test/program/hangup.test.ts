// SIGHUP has a server reload, and never ends it: not while it starts, and not while requests finish.
import { writeFile } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { site, useConfigFolder } from "../support/config-files.ts";
import { endAll, startReadout } from "../support/process.ts";

const folder = useConfigFolder();
const { configure } = folder;
afterAll(endAll);

/** A kind that sends the signal to the program while the configuration is read for the first time. */
const signallingKind = `
process.kill(process.pid, "SIGHUP");
const create = (name) => ({
  name,
  kind: "signalling",
  stores: {},
  inspections: {},
  probe: async () => ({ product: "none", version: "1" }),
  close: async () => {},
});
export default () => ({ parseConfig: () => ({}), create });
`;

const text = site("{ kind: memory }", "{ index: demo-shop-app }");

test("one that comes while the server starts has it reload afterwards", async () => {
  await writeFile(join(folder.folder, "signalling.mjs"), signallingKind);
  const file = await configure(text.replace("backends:", "backends:\n  two: { kind: ./signalling.mjs }"));
  const { child, told, ended, listening } = startReadout("serve", "--config", file);
  await listening;
  await expect.poll(() => told.err).toContain('"reloaded"');
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
});

test("one that comes while requests finish cuts none", async () => {
  const { child, told, ended, listening } = startReadout("serve", "--config", await configure(text));
  const pagination = { per_page: 1, order: "DESC", cursor: { time: null } };
  const body = JSON.stringify({ site_id: "shop", source_ids: ["app"], query: "", pagination });
  const headers = {
    authorization: "Bearer t",
    "content-type": "application/json",
    "content-length": body.length,
    expect: "100-continue",
  };
  const pending = request(`${await listening}/api/v2/logs/lines`, { method: "POST", headers });
  const answered = new Promise<IncomingMessage>((resolve, reject) =>
    pending.on("response", resolve).on("error", reject),
  );
  pending.flushHeaders();
  await new Promise((resolve) => pending.on("continue", resolve));
  child.kill("SIGTERM");
  await expect.poll(() => told.err).toContain('"draining"');
  child.kill("SIGHUP");
  pending.end(body);
  const answer = await answered;
  expect(answer.statusCode).toBe(200);
  answer.resume();
  expect(await ended).toBe(0);
  expect(told.err).not.toContain('"reloaded"');
});
