// One of four sources in trouble: what the clients of the other three notice of it, and how soon a source notices that
// a client has left. The sources are canned and live in this process, so that both ends are timed by one clock. The
// phases are measured in turns, round after round; what counts is the ratio within a round.
import { writeFileSync } from "node:fs";
import { createServer, request as httpRequest, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hashToken } from "../../src/access/auth.ts";
import { findFreePort } from "../../test/support/free-port.ts";
import { createAgent, send } from "../harness/http-client.ts";
import { program, start } from "../harness/process.ts";
import { calculateQuantile, type Figure, summarise } from "../harness/report.ts";

const token = "bench";
const healthy = ["a", "b", "c"] as const;
/** Requests a second, of all three healthy sites and of the one in trouble. */
const rates = { healthy: 45, troubled: 15 };
const aborts = 1_000;

/** The most that each figure may be (README, "What it promises"). */
const floors = { slowdown: 1.2, abortMillis: 250 };

export async function measureIsolation(quick: boolean, folder: string): Promise<readonly Figure[]> {
  const sources = new Map(
    await Promise.all([...healthy, "d"].map(async (name) => [name, await openSource()] as const)),
  );
  const troubled = sources.get("d");
  if (troubled === undefined) throw new Error("no source");
  const port = await findFreePort();
  const file = join(folder, "isolation.yaml");
  const names = [...sources.keys()];
  writeFileSync(
    file,
    `listen: 127.0.0.1:${port}
limits: { rate: 1000000, token_requests: 64, token_streams: 32 }
tokens: [{ user: bench, sha256: "${hashToken(token)}", sites: "*" }]
backends:
${names.map((name) => `  ${name}: { kind: elastic, url: "${sources.get(name)?.url}" }`).join("\n")}
sites:
${names.map((name) => `  ${name}: { logs: { backend: ${name}, sources: { app: { index: app, layout: ecs } } } }`).join("\n")}
`,
  );
  const log = join(folder, "isolation.log");
  const subject = start({ arguments: [...program, "serve", "--config", file], core: 1, log });
  const base = `http://127.0.0.1:${port}`;
  const agent = createAgent();
  const call = (site: string, query = "") =>
    ({
      url: `${base}/api/v2/logs/lines`,
      method: "POST",
      token,
      body: JSON.stringify({
        site_id: site,
        source_ids: ["app"],
        query,
        use_expressions: true,
        pagination: { per_page: 100, order: "DESC", cursor: { time: null } },
      }),
    }) as const;

  let failed = 0;
  /** The times of the healthy sites' requests, which all should be answered; those of the other may fail. */
  async function run(seconds: number): Promise<readonly number[]> {
    const millis: number[] = [];
    const pending: Promise<unknown>[] = [];
    const begin = performance.now();
    const started = { healthy: 0, troubled: 0 };
    while (performance.now() - begin < seconds * 1_000) {
      const elapsed = (performance.now() - begin) / 1_000;
      for (; started.healthy < elapsed * rates.healthy; started.healthy += 1) {
        const site = healthy[started.healthy % healthy.length] ?? "a";
        pending.push(
          send(agent, call(site)).then(
            (sent) => millis.push(sent.millis),
            () => {
              failed += 1;
            },
          ),
        );
      }
      for (; started.troubled < elapsed * rates.troubled; started.troubled += 1) {
        send(agent, call("d")).catch(() => {});
      }
      await sleep(1);
    }
    await Promise.all(pending);
    return millis;
  }

  async function recovered(): Promise<void> {
    for (let tries = 0; tries < 400; tries += 1) {
      const answered = await send(agent, call("d")).then(
        () => true,
        () => false,
      );
      if (answered) return;
      await sleep(100);
    }
    throw new Error("the source did not come back");
  }

  /** How long after a client has gone its request at the source is ended; undefined for one that was not there yet. */
  async function abort(number: number): Promise<number | undefined> {
    const seen = troubled?.expect(`n${number}`);
    if (seen === undefined) throw new Error("no source");
    const { body, url } = call("d", `message=n${number}`);
    const headers = { authorization: `Bearer ${token}`, "content-length": body.length };
    const asked = httpRequest(url, { method: "POST", headers, agent: false });
    const answered = new Promise((resolve) => asked.on("error", () => {}).on("response", resolve));
    asked.end(body);
    // Half of them leave once their search runs, and half at any moment before or after. Some are answered before they
    // search, while the source is asked for its layout again.
    if (number % 2 === 0) await Promise.race([seen.arrived, answered]);
    await sleep(Math.random() * 20);
    const left = performance.now();
    asked.destroy();
    // What has not come by then is not coming.
    const end = await Promise.race([seen.ended, sleep(2_000, undefined, { ref: false })]);
    if (seen.here() && end === undefined) return Number.POSITIVE_INFINITY;
    return end === undefined ? undefined : Math.max(0, end - left);
  }

  try {
    await recovered();
    await run(2);
    const rounds = quick ? 2 : 9;
    const seconds = quick ? 3 : 15;
    const slowdown = { dead: [] as number[], slow: [] as number[] };
    const p99s: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const before = calculateQuantile(await run(seconds), 0.99);
      p99s.push(before);
      for (const state of ["dead", "slow"] as const) {
        troubled.state = state;
        slowdown[state].push(calculateQuantile(await run(seconds), 0.99) / before);
        troubled.state = "well";
        await recovered();
      }
    }
    troubled.state = "slow";
    const delays: number[] = [];
    let next = 0;
    const count = quick ? 100 : aborts;
    const client = async (): Promise<void> => {
      for (let number = next++; number < count; number = next++) {
        const delay = await abort(number);
        if (delay !== undefined) delays.push(delay);
      }
    };
    await Promise.all(Array.from({ length: 8 }, client));
    return [
      ...(["dead", "slow"] as const).map(
        (state): Figure => ({
          name: `isolation: p99 of three sources while a fourth is ${state === "dead" ? "dead" : "30 s slow"}, ratio`,
          unit: "",
          ...summarise(slowdown[state]),
          floor: floors.slowdown,
          note: `p99 ${calculateQuantile(p99s, 0.5).toFixed(1)} ms while it is well`,
        }),
      ),
      {
        name: "isolation: requests to the three sources that failed",
        unit: "",
        value: failed,
        floor: 0,
        note: "where the machine is so busy that all places are taken, they do",
      },
      {
        name: "isolation: a client leaves, until its source sees it go, p99.9",
        unit: "ms",
        value: calculateQuantile(delays, 0.999),
        floor: floors.abortMillis,
        note: `${delays.length} of ${count} had reached the source, each was seen to go; median ${calculateQuantile(delays, 0.5).toFixed(1)} ms`,
      },
    ];
  } finally {
    agent.destroy();
    await subject.stop();
    await Promise.all([...sources.values()].map((source) => source.close()));
  }
}

interface Expected {
  /** Resolves with the moment at which the request has gone. */
  readonly ended: Promise<number>;
  readonly arrived: Promise<void>;
  readonly here: () => boolean;
}

const newest = Date.now() - 60_000;
const hits = Array.from({ length: 101 }, (_, n) => {
  const time = newest - n * 1_000;
  const source = { "@timestamp": new Date(time).toISOString(), message: `line ${n}`, log: { level: "info" } };
  return { _index: "app", _id: String(n), _source: source, sort: [time] };
});
const answer = JSON.stringify({ timed_out: false, _shards: { total: 1, failed: 0 }, hits: { hits } });
const mapping = JSON.stringify({
  app: {
    mappings: { properties: { "@timestamp": { type: "date" }, message: { type: "keyword" } } },
    settings: { index: { number_of_shards: "1", version: { created: "8190899" } } },
  },
});

/** A cluster with a hundred lines; `dead` breaks each connection, `slow` answers a search after 30 s. */
async function openSource() {
  const expected = new Map<string, { arrive: () => void; end: (at: number) => void }>();
  const source = {
    url: "",
    state: "well" as "well" | "dead" | "slow",
    close: async () => {},
    expect(mark: string): Expected {
      const arrived = Promise.withResolvers<void>();
      const ended = Promise.withResolvers<number>();
      let here = false;
      const arrive = () => {
        here = true;
        arrived.resolve();
      };
      expected.set(mark, { arrive, end: ended.resolve });
      return { arrived: arrived.promise, ended: ended.promise, here: () => here };
    },
  };
  const reply = (response: ServerResponse, text: string) => {
    response
      .writeHead(200, { "x-elastic-product": "Elasticsearch", "content-type": "application/json" })
      .end(text);
  };
  const server = createServer((request, response) => {
    if (source.state === "dead") return void request.socket.resetAndDestroy();
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      if (request.url === "/") return reply(response, '{"version":{"number":"8.19.8"}}');
      if (!request.url?.includes("_search")) return reply(response, mapping);
      if (source.state === "well") return reply(response, answer);
      const mark = expected.get(/\bn\d+\b/.exec(Buffer.concat(chunks).toString())?.[0] ?? "");
      mark?.arrive();
      const timer = setTimeout(() => reply(response, answer), 30_000);
      response.on("close", () => {
        clearTimeout(timer);
        mark?.end(performance.now());
      });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  source.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  source.close = () =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  return source;
}
