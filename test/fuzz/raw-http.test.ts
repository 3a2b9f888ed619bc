// Raw bytes on a connection: targets, methods and headers that no client library sends, and report bodies. The server
// answers each and survives.
import { once } from "node:events";
import type { Server as HttpServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { defaults } from "#src/config/schema.ts";
import { fromMillis } from "#src/core/time.ts";
import { buildReportSpan, readReport } from "#src/intake/error-report.ts";
import { bodyLimitBytes, createIntake, createIntakeServer } from "#src/intake/intake.ts";
import type { SpoolClient } from "#src/intake/spool-client.ts";
import { hostileTexts } from "../conformance/metrics/injection-texts.ts";
import { clock, createDemo, type Demo, token } from "../support/demo-server.ts";
import { createMemorySpooler, createSites, createWatchedTelemetry } from "../support/error-reports.ts";
import {
  hostileKey,
  hostileText,
  hostileValue,
  Members,
  mutate,
  print,
  spoilBytes,
} from "./hostile-values.ts";
import { routes } from "./openapi-requests.ts";
import { type Draw, fuzz, long } from "./seeded-generator.ts";

const published = "9Ubquyg0qqEEfpH6Xefmrg";
let demo: Demo;
let port: number;
let intake: HttpServer;
let spooler: SpoolClient;
const watched = createWatchedTelemetry();
beforeAll(async () => {
  demo = await createDemo();
  ({ port } = await demo.server.listen({ host: "127.0.0.1", port: 0 }));
  spooler = createMemorySpooler();
  const { spoolBytes, proxies } = defaults;
  const store = { deliver: async () => new Map<string, string>() };
  intake = createIntakeServer(
    createIntake({
      config: { spool: ":memory:", spoolBytes, keyRate: 1e9, addressRate: 1e9, proxies },
      sites: createSites({ shop: { keys: ["key"], store } }),
      spool: spooler,
      onSpooled: () => {},
      telemetry: watched.telemetry,
      now: () => fromMillis(clock),
    }),
    { proxies, onLimitReached: () => {} },
  ).http.listen(0, "127.0.0.1");
  await once(intake, "listening");
});
afterAll(async () => {
  await demo.server.close(0);
  await demo.close();
  intake.close().closeAllConnections();
});

/** All that comes back on a connection of its own. */
/** A sender that closes its side counts as gone, and gets only what needs no wait. */
async function exchange(at: number, request: Uint8Array, closesSide = true): Promise<string> {
  const socket = connect(at, "127.0.0.1");
  let received = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => {
    received += chunk;
  });
  // Reset by a server that has answered and reads no more.
  socket.on("error", () => {});
  const closed = new Promise((resolve) => socket.on("close", resolve));
  // Nothing more will come: a request that was cut short is over too.
  if (closesSide) socket.end(request);
  else socket.write(request);
  await closed;
  return received;
}

const bytes = (text: string): Buffer => Buffer.from(text, "utf8");
const line = (text: string): string => text.replace(/[\r\n\0]/g, "");

function drawTarget(draw: Draw): string {
  const text = () => line(hostileText(draw)).slice(0, 3_000);
  const encoded = () => encodeURIComponent(text().toWellFormed());
  const id = draw.pick([
    published,
    published.slice(1),
    `${published}=`,
    published.toLowerCase(),
    encoded(),
    text(),
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "__proto__",
    "a".repeat(5_000),
  ]);
  const { path = "" } = draw.pick(routes) ?? {};
  const known = path.replace(/\{\w+\}/g, () => draw.pick([id, "demo-shop", encoded()]));
  const target = draw.pick([
    known,
    `/api/v2/saved_visuals/${id}`,
    `/api/v2/saved_visuals/${id}/csv`,
    known.replaceAll("/", draw.pick(["//", "%2f", "/./", "/../", "\\", "/;/"])),
    known.toUpperCase(),
    `${known}/`,
    "/metrics",
    "/readyz",
    "/livez",
    "/docs",
    "/docs/../package.json",
    "/docs/%2e%2e/x",
    "/openapi.json",
    "/graphql",
    "/health",
    "*",
    "//",
    "/?",
    "#",
    "http://elsewhere/livez",
    "http://[::1/",
    "//user@host/x",
    `/${encoded()}`,
    text(),
    `/${text()}`,
  ]);
  const search = draw.chance(0.3)
    ? `?${draw.pick([text(), encoded(), `token=${token}`, "explain=true", "query={viewer{id}}", "&&==%", "__proto__=1"])}`
    : "";
  return (target + search).replaceAll(" ", draw.chance(0.95) ? "%20" : " ");
}

function drawRaw(draw: Draw): Buffer {
  const method = draw.pick([
    "GET",
    "GET",
    "GET",
    "GET",
    "POST",
    "POST",
    "HEAD",
    "OPTIONS",
    "PUT",
    "TRACE",
    "DELETE",
    "PATCH",
    "QUERY",
    "get",
    "X",
  ]);
  const body = draw.chance(0.5) ? "" : print(draw.pick([hostileValue(draw), { site_id: "demo-shop" }]));
  const value = () => line(draw.pick([hostileText(draw), draw.pick(hostileTexts) ?? ""])).slice(0, 4_000);
  const headers = [
    ["Host", draw.chance(0.8) ? "x" : draw.pick(["", "[", "a b", "x:99999", value()])],
    ["Connection", "close"],
    ["Accept", draw.pick(["text/event-stream", "text/html", "application/x-ndjson", "*/*;q=2", value()])],
    ...(draw.chance(0.5)
      ? [["Last-Event-ID", draw.pick(["0", "1768478400000", "-1", "1e999", value()])]]
      : []),
    ...(draw.chance(0.7)
      ? [
          [
            "Authorization",
            draw.pick([
              `Bearer ${token}`,
              `Bearer ${token}`,
              `Bearer  ${token} x`,
              "Bearer",
              "Basic eDp5",
              value(),
            ]),
          ],
        ]
      : []),
    ...(draw.chance(0.2) ? [["Accept-Encoding", draw.pick(["gzip", "gzip;q=0", "br, gzip", value()])]] : []),
    ...(draw.chance(0.3)
      ? [["Content-Type", draw.pick(["application/json", "multipart/form-data", value()])]]
      : []),
    ...(draw.chance(0.1)
      ? [
          [
            draw.pick(["__proto__", "constructor", "X-Request-Id", "Expect", "Upgrade", "Origin", "Range"]),
            draw.pick(["100-continue", "websocket", "null", value()]),
          ],
        ]
      : []),
    ["Content-Length", String(Buffer.byteLength(body))],
  ];
  const head = headers.map(([name, content]) => `${name}: ${content}\r\n`).join("");
  const text = `${method} ${drawTarget(draw)} HTTP/${draw.pick(["1.1", "1.1", "1.1", "1.1", "1.0"])}\r\n${head}\r\n${body}`;
  return draw.chance(0.05) ? Buffer.from(spoilBytes(text.slice(0, 10_000), draw)) : bytes(text);
}

const statuses = new Map<string, number>();

test("raw HTTP requests get an answer without a server failure, and no token reaches the log", async () => {
  await fuzz(4_000, drawRaw, async (request) => {
    const received = (await exchange(port, request)).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, "");
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(received)?.[1] ?? "none";
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    // Nothing came of a request that did not end, was no HTTP, or asked to be something else.
    expect([
      "none",
      "200",
      "204",
      "400",
      "401",
      "403",
      "404",
      "405",
      "406",
      "408",
      "413",
      "415",
      "417",
      "422",
      "431",
    ]).toContain(status);
    if (status !== "200") expect(received).not.toMatch(/\bat .{1,200}\.(ts|js):\d|node_modules/);
  });
  expect(demo.logged()).not.toContain(token);
  expect(
    demo
      .logged()
      .split("\n")
      .filter((entry) => entry.includes('"level":"error"')),
  ).toEqual([]);
  for (const status of long ? ["200", "400", "401", "404"] : ["200", "404"])
    expect(statuses.get(status) ?? 0, status).toBeGreaterThan(0);
  expect(statuses.get("none") ?? 0).toBeLessThan((long ? 4_000 : 80) / 10);
});

const template = new Members([
  ["timestamp", 1_768_478_400],
  ["namespace", "frontend"],
  ["action", "Cart"],
  ["revision", "abc"],
  [
    "error",
    new Members([
      ["name", "TypeError"],
      ["message", "x is undefined"],
      ["backtrace", ["at a.js:1", null, 5]],
    ]),
  ],
  [
    "tags",
    new Members([
      ["plan", "pro"],
      ["n", 5],
    ]),
  ],
  ["params", new Members([["a", new Members([["b", []]])]])],
  ["environment", new Members([["origin", "https://x"]])],
  [
    "breadcrumbs",
    [
      new Members([
        ["timestamp", 1],
        ["category", "ui"],
        ["metadata", new Members([["k", "v"]])],
      ]),
    ],
  ],
]);

function drawReport(draw: Draw): Buffer {
  switch (draw.below(10)) {
    case 0:
      return Buffer.from(Array.from({ length: draw.below(300) }, () => draw.below(256)));
    case 1:
      return Buffer.from(spoilBytes(print(template), draw));
    case 2:
      return bytes(`{${JSON.stringify(hostileKey(draw))}:${hostileValue(draw).text}}`);
    case 3:
      return bytes("x".repeat(bodyLimitBytes - 2 + draw.below(5)));
    case 4:
      return bytes(print(template));
    default:
      return bytes(print(mutate(template, draw)));
  }
}

test("random browser reports are answered 200, counted and kept only as spans", async () => {
  const at = (intake.address() as AddressInfo).port;
  let sent = 0;
  await fuzz(4_000, drawReport, async (body) => {
    sent += 1;
    const head = `POST /errors?api_key=key HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`;
    const received = await exchange(at, Buffer.concat([bytes(head), body]), false);
    expect(received).toMatch(
      body.length > bodyLimitBytes ? /^HTTP\/1\.1 413 / : /^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\n\{\}$/,
    );
    const report = await readReport(body.toString("utf8"));
    if (report === undefined) return;
    const span = buildReportSpan("shop", "a".repeat(32), report);
    expect(span.report).toBe(true);
    expect(span.events).toHaveLength(1);
    for (const value of Object.values(span.tags)) expect(typeof value).toBe("string");
  });
  const results = ["kept", "too_large", "invalid"];
  const counts = await Promise.all(
    results.map((result) => watched.metric(`readout_intake_reports_total{result="${result}"}`)),
  );
  expect(counts.reduce((sum, count) => sum + count, 0)).toBe(sent);
  for (const count of counts) expect(count).toBeGreaterThan(0);
  expect((await spooler.readLevel()).reports).toBe(counts[0]);
  expect(watched.logged()).toBe("");
});
