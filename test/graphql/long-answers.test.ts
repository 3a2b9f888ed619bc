// Answers of megabytes on a real connection: printed while they are sent, with turns of the event loop between.
import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { fromMillis } from "#src/core/time.ts";
import type { LogStore } from "#src/store/logs.ts";
import { clock, createDemo, type Demo, token } from "../support/demo-server.ts";

const json = JSON.stringify({ trace_id: "a", text: "x".repeat(600), quoted: '"é"' });
const store: LogStore = {
  async *lines({ sources: [{ id: source_id }], expectedLines }) {
    for (let n = 0; n < expectedLines; n += 500) {
      yield Array.from({ length: Math.min(500, expectedLines - n) }, (_, at) => {
        const time = fromMillis(clock - n - at);
        return { id: `l${n + at}`, time, source_id, severity: "error" as const, json };
      });
    }
  },
  isWithinLimits: async () => true,
};

let demo: Demo;
let port = 0;
beforeAll(async () => {
  demo = await createDemo({
    site: (site) => (site.logs === undefined ? site : { ...site, logs: { ...site.logs, store } }),
  });
  port = (await demo.server.listen({ host: "127.0.0.1", port: 0 })).port;
});
afterAll(() => demo.close());

function buildQuery(lines: number): string {
  const page = `pagination: { per_page: ${lines}, order: DESC }`;
  return `{ logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "", ${page}) { id timestamp json } }`;
}

interface Received {
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
}

/** Leaves after so many bytes, if given. */
function ask(
  query: string,
  leaveAfter = Number.POSITIVE_INFINITY,
  accept = "application/json",
): Promise<Received> {
  return new Promise((resolve, reject) => {
    const headers = { accept, authorization: `Bearer ${token}`, "content-type": "application/json" };
    const sent = request(
      { host: "127.0.0.1", port, method: "POST", path: "/graphql", headers },
      (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => {
          text += chunk;
          if (text.length > leaveAfter) response.destroy();
        });
        response.on("close", () => resolve({ headers: response.headers, text }));
      },
    );
    sent.on("error", reject);
    sent.end(JSON.stringify({ query }));
  });
}

test("an answer of megabytes comes in pieces and is what a short one is, row by row", async () => {
  const { headers, text } = await ask(buildQuery(10_000));
  expect(headers["transfer-encoding"]).toBe("chunked");
  expect(headers["content-type"]).toMatch(/^application\/(graphql-response\+)?json/);
  const rows = JSON.parse(text).data.logs_lines as readonly object[];
  expect(rows).toHaveLength(10_000);
  expect(text).toBe(JSON.stringify({ data: { logs_lines: rows } }));
  const few = await ask(buildQuery(3));
  expect(few.headers["content-length"]).toBe(String(Buffer.byteLength(few.text)));
  expect(JSON.parse(few.text).data.logs_lines).toEqual(rows.slice(0, 3));
});

test("a client that leaves in the middle ends the printing and nothing else", async () => {
  const { text } = await ask(buildQuery(10_000), 300_000);
  expect(text.length).toBeLessThan(7_000_000);
  await sleep(50);
  expect(JSON.parse((await ask(buildQuery(5))).text).data.logs_lines).toHaveLength(5);
  expect(demo.logged()).not.toContain('"level":"error"');
});

test.each([
  ["text/event-stream", /^:\n\nevent: next\ndata: (.*)\n\nevent: complete\ndata:\n\n$/s],
  [
    "multipart/mixed",
    /^\r\n---\r\nContent-Type: application\/json; charset=utf-8\r\n\r\n(.*)\r\n-----\r\n$/s,
  ],
])("a long answer as %s stands whole in its frame", async (accept, frame) => {
  const { text } = await ask(buildQuery(1_000));
  const framed = await ask(buildQuery(1_000), undefined, accept);
  expect(framed.headers["content-type"]).toContain(accept);
  expect(frame.exec(framed.text)?.[1]).toBe(text);
});

test("of thousands of errors the first thousand are listed, those of whole fields first, and one counts all", async () => {
  const link = "log_lines(limit: 0) { id }";
  const page = "pagination: { per_page: 600, order: DESC }";
  const list = (site: string) =>
    `logs_lines(site_id: "${site}", source_ids: ["app"], query: "", ${page}) { trace { ${link} other: ${link} } }`;
  const query = `{ a: ${list("demo-shop")} b: ${list("demo-shop")} z: ${list("nowhere")} }`;
  const { errors } = JSON.parse((await ask(query)).text);
  const rows = Array.from({ length: 500 }, (_, at) =>
    ["log_lines", "other"].map((field) => ["a", at, "trace", field]),
  );
  const places = errors.map(({ path }: { readonly path: unknown }) => path);
  expect(places).toEqual([["z"], ...rows.flat().slice(0, 999), undefined]);
  expect(errors.at(-1)).toEqual({
    message: "The answer has 2401 errors, of which 1000 are listed",
    extensions: { status: 422, slug: "result_too_large", details: { limit: 1_000, wanted: 2_401 } },
  });
});
