// A real browser on a page of another origin: what it may post to the intake, and that the reports are found by the
// tracing routes afterwards.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Browser, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { program } from "../../support/process.ts";

let demo: ChildProcess;
let intake: string;
let site: Server;
let browser: Browser;
let page: Page;
const told: string[] = [];

beforeAll(async () => {
  demo = spawn(process.execPath, [...program, "demo", "--port", "0", "--token", "t"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  while (!/listens on (http:\S+)/.test(out)) out += String(await once(demo.stdout ?? demo, "data"));
  intake = /listens on (http:\S+)/.exec(out)?.[1] ?? "";
  site = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html", "set-cookie": "session=1" });
    response.end("<!doctype html><title>shop</title>");
  }).listen(0, "127.0.0.1");
  await once(site, "listening");
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox"],
  });
  page = await browser.newPage();
  page.on("console", (message) => told.push(message.text()));
  page.on("requestfailed", (request) =>
    told.push(`${request.method()} ${request.url()}: ${request.failure()?.errorText}`),
  );
  // Another name is another site to a browser, not only another origin.
  await page.goto(`http://localhost:${(site.address() as AddressInfo).port}/`);
}, 60_000);
afterAll(async () => {
  await browser?.close();
  site?.close().closeAllConnections();
  demo?.kill();
});

type Sent = { readonly status: number; readonly text: string };

/** Runs in the page: posts a report by one of the browser's ways, and tells what the page could read of the answer. */
function send([address, way, body]: readonly [string, string, string]): Promise<Sent> | Sent {
  const read = async (answer: Response): Promise<Sent> => ({
    status: answer.status,
    text: await answer.text(),
  });
  switch (way) {
    case "fetch":
      return fetch(address, { method: "POST", body }).then(read);
    case "fetch with a type, which needs a preflight":
      return fetch(address, {
        method: "POST",
        body,
        headers: { "content-type": "application/json", "x-client": "1" },
      }).then(read);
    case "fetch with credentials":
      return fetch(address, { method: "POST", body, credentials: "include" }).then(read);
    case "fetch as the page closes":
      return fetch(address, { method: "POST", body, keepalive: true }).then(read);
    case "sendBeacon":
      return { status: navigator.sendBeacon(address, body) ? 200 : 0, text: "{}" };
    case "sendBeacon with a type":
      return {
        status: navigator.sendBeacon(address, new Blob([body], { type: "application/json" })) ? 200 : 0,
        text: "{}",
      };
    default:
      return new Promise((resolve) => {
        const request = new XMLHttpRequest();
        request.open("POST", address);
        request.withCredentials = way === "XMLHttpRequest with credentials";
        request.onloadend = () => resolve({ status: request.status, text: request.responseText });
        request.send(body);
      });
  }
}

const ways = [
  "fetch",
  "fetch with a type, which needs a preflight",
  "fetch with credentials",
  "fetch as the page closes",
  "sendBeacon",
  "sendBeacon with a type",
  "XMLHttpRequest",
  "XMLHttpRequest with credentials",
];

async function kept(): Promise<number> {
  const text = await (await fetch(`${intake}/metrics`)).text();
  return Number(/^readout_intake_reports_total\{result="kept"\} (\d+)$/m.exec(text)?.[1] ?? 0);
}

const report = (action: string) =>
  JSON.stringify({
    timestamp: Math.round(Date.now() / 1_000),
    namespace: "frontend",
    action,
    error: { name: "TypeError", message: "x is undefined", backtrace: ["TypeError: x", "  at app.js:1"] },
    tags: { way: action },
  });

test.each(ways)("%s", async (way) => {
  const before = await kept();
  const sent = await page.evaluate(send, [`${intake}/collect?api_key=demo-key`, way, report(way)] as const);
  expect(sent, told.join("\n")).toEqual({ status: 200, text: "{}" });
  await expect.poll(kept).toBe(before + 1);
});

test("each of them is an error trace", async () => {
  const find = async () => {
    const body = {
      site_ids: ["demo-shop"],
      namespace: "frontend",
      pagination: { per_page: 100, order: "ASC", cursor: { time: null } },
    };
    const init = { method: "POST", headers: { authorization: "Bearer t" }, body: JSON.stringify(body) };
    const rows: unknown = await (await fetch(`${intake}/api/v2/tracing/traces/errors`, init)).json();
    return Array.isArray(rows) ? rows.map(({ action_name, tags }) => [action_name, tags.way]) : rows;
  };
  const expected = ways.map((way) => [way, way]);
  await expect.poll(find).toEqual(expect.arrayContaining(expected));
  expect(await find()).toHaveLength(ways.length);
});

test("a page reads the 413 of a report that is too large", async () => {
  const body = report("x".repeat(300_000));
  const sent = await page.evaluate(send, [`${intake}/errors?api_key=demo-key`, "fetch", body] as const);
  expect(sent).toEqual({ status: 413, text: '{"error":"Payload too large"}' });
});
