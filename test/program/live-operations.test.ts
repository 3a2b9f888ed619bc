// The running program under load while an operator rotates secrets, reloads the configuration and stops it.
import { mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import { createFakeSearch } from "../support/elastic/fake-cluster.ts";
import { endAll, startReadout } from "../support/process.ts";
import { openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-operation-"));
});
afterAll(async () => {
  endAll();
  await rm(folder, { recursive: true });
});

const tokens = `tokens: [{ user: ana, sha256: "${hashToken("t")}", sites: "*" }]`;
const generated = `
listen: 127.0.0.1:0
limits: { streams: 64, token_streams: 64, requests: 256, token_requests: 256, rate: 100000 }
${tokens}
backends: { one: { kind: memory } }
sites:
  shop: { logs: { backend: one, sources: { app: { index: demo-shop-app } } } }
`;

const mappings = { properties: { "@timestamp": { type: "date" }, message: { type: "text" } } };
const documents = Array.from({ length: 4_000 }, (_, n) => ({
  "@timestamp": new Date(Date.now() - 3_600_000 + n).toISOString(),
  message: `line ${n}`,
}));

interface Outcome {
  readonly status?: number;
  /** The answer is complete by its HTTP framing. */
  readonly whole: boolean;
  readonly body: string;
  readonly error?: string;
}

/** A page of log lines. Never rejects. */
function ask(
  address: string,
  over: {
    perPage?: number;
    accept?: string;
    site?: string;
    agent?: Agent;
  } = {},
): Promise<Outcome> {
  const body = JSON.stringify({
    site_id: over.site ?? "shop",
    source_ids: ["app"],
    query: "",
    use_expressions: true,
    pagination: { per_page: over.perPage ?? 5, order: "DESC", cursor: { time: null } },
  });
  const headers = {
    authorization: "Bearer t",
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    ...(over.accept && { accept: over.accept }),
  };
  return new Promise((resolve) => {
    const asked = request(`${address}/api/v2/logs/lines`, {
      method: "POST",
      headers,
      agent: over.agent ?? false,
    });
    asked.on("error", ({ message }) => resolve({ whole: false, body: "", error: message }));
    asked.on("response", async (response) => {
      let text = "";
      let error: string | undefined;
      try {
        for await (const piece of response.setEncoding("utf8")) {
          text += piece;
        }
      } catch (cause) {
        error = String(cause);
      }
      resolve({
        ...(response.statusCode !== undefined && { status: response.statusCode }),
        whole: response.complete && error === undefined,
        body: text,
        ...(error !== undefined && { error }),
      });
    });
    asked.end(body);
  });
}

test.concurrent("a secret is rotated under load through its file, also through a symbolic link", {
  timeout: 30_000,
}, async ({ expect }) => {
  let valid = ["Bearer first"];
  const seen = new Set<string>();
  const source = await openFakePrometheus({
    intercept: (response, { headers }) => {
      const authorization = String(headers.authorization);
      seen.add(authorization);
      if (valid.includes(authorization)) return false;
      sendJson(response, { status: "error" }, 401);
      return true;
    },
  });
  // As Kubernetes mounts a secret: a link to a link to the file; rotation replaces the middle link.
  const turn = async (version: string) => {
    await writeFile(join(folder, version), `${version}\n`);
    await symlink(version, join(folder, "..data.new"));
    await rename(join(folder, "..data.new"), join(folder, "..data"));
  };
  await turn("first");
  await symlink("..data", join(folder, "password"));
  const file = join(folder, "secrets.yaml");
  await writeFile(
    file,
    `listen: 127.0.0.1:0
${tokens}
backends: { prom: { kind: prometheus, url: "${source.url}", auth: { bearer: "\${file:password}" } } }
sites: { shop: { metrics: { backend: prom } } }
limits: { rate: 100000 }
`,
  );
  const { child, told, ended, listening } = startReadout("serve", "--config", file);
  const address = await listening;
  const failed: string[] = [];
  let asking = true;
  let answered = 0;
  const load = Array.from({ length: 4 }, async () => {
    while (asking) {
      const answer = await fetch(`${address}/api/v2/metrics/names/shop?token=t`);
      const text = await answer.text();
      if (answer.status === 200) answered += 1;
      else failed.push(`${answer.status} ${text}`);
      await sleep(5);
    }
  });
  await expect.poll(() => seen.has("Bearer first")).toBe(true);

  // Both secrets are valid for a while, as in a rotation without downtime.
  valid = ["Bearer first", "Bearer second"];
  await turn("second");
  await expect.poll(() => seen.has("Bearer second")).toBe(true);
  await expect.poll(() => told.err).toContain('"reloaded"');
  valid = ["Bearer second"];
  const before = answered;
  await expect.poll(() => answered).toBeGreaterThan(before + 20);

  // An empty secret, left by mistake, changes nothing.
  await writeFile(join(folder, "second"), "\n");
  await expect.poll(() => told.err).toContain("not reloaded: the configuration is wrong");
  const after = answered;
  await expect.poll(() => answered).toBeGreaterThan(after + 20);
  asking = false;
  await Promise.all(load);
  expect(failed).toEqual([]);
  for (const secret of ["first", "second"]) expect(told.err).not.toContain(`Bearer ${secret}`);
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  await source.close();
});

test.concurrent("SIGHUP under load fails no request", { timeout: 90_000 }, async ({ expect }) => {
  const file = join(folder, "hangup.yaml");
  await writeFile(file, generated);
  const { child, told, ended, listening } = startReadout("serve", "--config", file);
  const address = await listening;
  const agent = new Agent({ keepAlive: true });
  const outcomes: (Outcome & { readonly perPage: number })[] = [];
  let asking = true;
  const load = [5, 5, 5, 2_000].map(async (perPage) => {
    while (asking) {
      outcomes.push({ ...(await ask(address, { perPage, agent })), perPage });
      await sleep(20);
    }
  });
  const reloads = () => told.err.split('"reloaded"').length - 1;
  for (let n = 1; n <= 3; n += 1) {
    child.kill("SIGHUP");
    await expect.poll(reloads).toBe(n);
  }
  // However long they take here.
  await expect.poll(() => outcomes.length).toBeGreaterThan(8);
  asking = false;
  await Promise.all(load);
  agent.destroy();
  expect(outcomes.filter(({ status, whole }) => status !== 200 || !whole)).toEqual([]);
  // More where the page ends in a burst: a page holds whole milliseconds.
  for (const { body, perPage } of outcomes) {
    expect(JSON.parse(body).length).toBeGreaterThanOrEqual(perPage);
  }
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
});

test("SIGTERM with 64 clients cuts no answer and exits within ten seconds", {
  timeout: 90_000,
}, async () => {
  // Holds what comes after the lines that a large answer is begun with, until the program has been told to end.
  const released = Promise.withResolvers<void>();
  const begun = Date.parse(documents.at(-1_100)?.["@timestamp"] ?? "");
  let told = false;
  const { reply } = createFakeSearch({ slow: { mappings, documents } }, "Elasticsearch");
  const source = await openScriptedSource(async (response, request, body) => {
    const before = /"lte?":"?([^",}]+)/.exec(body)?.[1] ?? "";
    if ((/^\d+$/.test(before) ? Number(before) : Date.parse(before)) < begun) await released.promise;
    reply(response, request, body);
  });
  const file = join(folder, "drain.yaml");
  await writeFile(
    file,
    `${generated}  far: { logs: { backend: two, sources: { app: { index: slow, layout: ecs } } } }\n`.replace(
      "kind: memory }",
      `kind: memory }, two: { kind: elastic, url: "${source.url}", timeout: 30s }`,
    ),
  );
  const { child, ended, listening } = startReadout("serve", "--config", file);
  const address = await listening;
  const failed: string[] = [];
  let fine = 0;
  let refused = 0;
  /** A request after the signal may fail to connect, but never gets a partial answer. */
  const judge = ({ status, whole, body, error }: Outcome, askedAfter: boolean, what: string) => {
    if (status === undefined && askedAfter && /ECONNREFUSED|ECONNRESET|socket hang up/.test(error ?? ""))
      refused += 1;
    else if (status !== 200 || !whole)
      failed.push(`${what}: ${status} ${whole} ${error} ${body.slice(-200)}`);
    else fine += 1;
  };
  const streams = Array.from({ length: 8 }, () => ask(address, { site: "far", perPage: 10_000 }));
  const tails = Array.from({ length: 36 }, () => ask(address, { accept: "text/event-stream" }));
  const agents = Array.from({ length: 20 }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  let over = false;
  const loop = async (agent: Agent | undefined, pause: number) => {
    while (!over) {
      const askedAfter = told;
      const outcome = await ask(address, agent && { agent });
      judge(outcome, askedAfter, "page");
      if (outcome.status === undefined && askedAfter) return;
      await sleep(pause);
    }
  };
  const pages = agents.map((agent) => loop(agent, 20));
  const newcomers = Array.from({ length: 4 }, () => loop(undefined, 10));
  const open = async () => {
    const text = await (await fetch(`${address}/metrics`)).text();
    const value = (name: string) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
    return [value("readout_open_streams"), value("readout_open_tails")];
  };
  await expect.poll(open).toEqual([8, 36]);

  told = true;
  // Who asks in the last moment before it may come too late: only of the others it is sure. On a busy machine the server hears
  // of a connection long after it was opened.
  await sleep(1_000);
  const began = performance.now();
  child.kill("SIGTERM");
  await sleep(200);
  released.resolve();
  expect(await ended).toBe(0);
  const took = performance.now() - began;
  over = true;
  await Promise.all([...pages, ...newcomers]);
  for (const agent of agents) agent.destroy();
  for (const outcome of await Promise.all(streams)) {
    judge(outcome, false, "stream");
    if (outcome.whole) expect(JSON.parse(outcome.body)).toHaveLength(documents.length);
  }
  for (const outcome of await Promise.all(tails)) judge(outcome, false, "tail");
  expect(failed).toEqual([]);
  expect(fine).toBeGreaterThan(64);
  expect(refused).toBeGreaterThan(0);
  expect(took).toBeLessThan(10_000);
  await source.close();
});

test("SIGTERM waits for collectors that do not answer once, and says that audit lines are lost", {
  timeout: 60_000,
}, async () => {
  // Takes the first line of the run, and nothing after it.
  let taken = 0;
  const collector = await openScriptedSource((response) => {
    taken += 1;
    if (taken === 1) sendJson(response, {});
  });
  const file = join(folder, "collectors.yaml");
  const settings = `audit: { otlp: { url: "${collector.url}" }, sync: always, key: "0123456789abcdef", on_full: drop }`;
  await writeFile(file, `${generated}${settings}\notlp: { url: "${collector.url}", ratio: 1 }\n`);
  const { child, told, ended, listening } = startReadout("serve", "--config", file);
  await listening;
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  expect(told.err).toContain(
    '"reason":"the collector takes no lines","msg":"the audit log cannot be written"',
  );
  expect(told.err).not.toContain("ended before everything was written");
  await collector.close();
});
