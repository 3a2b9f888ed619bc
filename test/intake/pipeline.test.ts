// The intake, its spool and its delivery together, as `serve` has them, while the configuration changes.
import { once } from "node:events";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openErrorIntake } from "#src/cli/serve/error-intake.ts";
import { defaults } from "#src/config/schema.ts";
import { BackendError, ConfigError } from "#src/core/errors.ts";
import { now } from "#src/core/time.ts";
import { openSpool } from "#src/intake/spool.ts";
import type { ErrorReportStore } from "#src/store/error-reports.ts";
import { createSites, createWatchedTelemetry, renderReport } from "../support/error-reports.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "readout-reports-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

function keep() {
  const held: string[] = [];
  const store: ErrorReportStore = {
    deliver: async (_, reports) => {
      held.push(...reports.map(({ status_message }) => status_message ?? ""));
      return new Map();
    },
  };
  return { held, store };
}
const { spoolBytes, keyRate, addressRate, proxies } = defaults;
const configFor = (spool: string) => ({ spool, spoolBytes, keyRate, addressRate, proxies });

test("uses keys and stores of a new configuration at once", async () => {
  const config = configFor(join(folder, "spool.db"));
  const [before, after] = [keep(), keep()];
  const { telemetry } = createWatchedTelemetry();
  const reports = await openErrorIntake(
    config,
    createSites({ shop: { keys: ["old"], store: before.store } }),
    telemetry,
    now,
  );
  const http = createServer((request, response) => void reports.intake.tryAnswer(request, response)).listen(
    0,
    "127.0.0.1",
  );
  await once(http, "listening");
  const { port } = http.address() as AddressInfo;
  const post = async (key: string, number: number) => {
    const init = { method: "POST", body: renderReport(number) };
    expect((await fetch(`http://127.0.0.1:${port}/errors?api_key=${key}`, init)).status).toBe(200);
  };
  await post("old", 1);
  await expect.poll(() => before.held).toEqual(["number 1"]);
  await reports.replace(config, createSites({ shop: { keys: ["new"], store: after.store } }));
  await post("old", 2);
  await post("new", 3);
  await expect.poll(() => after.held).toEqual(["number 3"]);
  expect(before.held).toEqual(["number 1"]);
  http.close();
  await reports.close(0);
});

test("runs one delivery after two simultaneous reloads, and none after the end", async () => {
  const { telemetry, logged } = createWatchedTelemetry();
  const asked = [0, 0, 0];
  const away = (at: number) => {
    const deliver = async () => {
      asked[at] = (asked[at] ?? 0) + 1;
      throw new BackendError("fake", "unreachable", "connection refused");
    };
    return createSites({ shop: { keys: ["key"], store: { deliver } } });
  };
  const config = configFor(":memory:");
  const reports = await openErrorIntake(config, away(0), telemetry, now);
  const takes = (request: IncomingMessage, response: ServerResponse) =>
    void reports.intake.tryAnswer(request, response);
  const http = createServer(takes).listen(0, "127.0.0.1");
  await once(http, "listening");
  const { port } = http.address() as AddressInfo;
  await fetch(`http://127.0.0.1:${port}/errors?api_key=key`, { method: "POST", body: renderReport(1) });
  await Promise.all([reports.replace(config, away(1)), reports.replace(config, away(2))]);
  // By its third time the one that was replaced would have tried again.
  await expect.poll(() => asked[2]).toBe(3);
  expect(asked[1]).toBeLessThan(2);
  http.close();
  await Promise.all([reports.replace(config, away(1)), reports.close(0)]);
  expect(logged()).not.toContain("the spool is closed");
});

test("logs at a start and a reload that reports wait for a site without a store, and delivers them once it has one", async () => {
  const config = configFor(join(folder, "spool.db"));
  const away: ErrorReportStore = { deliver: () => Promise.reject(new Error("away")) };
  const first = await openErrorIntake(
    config,
    createSites({ shop: { keys: ["k"], store: away } }),
    createWatchedTelemetry().telemetry,
    now,
  );
  const http = createServer((request, response) => void first.intake.tryAnswer(request, response)).listen(
    0,
    "127.0.0.1",
  );
  await once(http, "listening");
  const { port } = http.address() as AddressInfo;
  await fetch(`http://127.0.0.1:${port}/errors?api_key=k`, { method: "POST", body: renderReport(7) });
  http.close();
  await first.close(0);

  const watched = createWatchedTelemetry();
  const { held, store } = keep();
  const second = await openErrorIntake(config, createSites({}), watched.telemetry, now);
  expect(watched.logged()).toContain(
    "spooled error reports cannot be delivered: the site has no `frontend` backend",
  );
  expect(await watched.metric("readout_intake_spooled_reports")).toBe(1);
  const count = () => watched.logged().split("the site has no `frontend` backend").length - 1;
  expect(count()).toBe(1);
  await second.replace(config, createSites({ blog: { keys: ["k"], store } }));
  expect(count()).toBe(2);
  await second.replace(config, createSites({ shop: { keys: ["k"], store } }));
  await expect.poll(() => held).toEqual(["number 7"]);
  await second.close(0);
});

test("sets a damaged spool aside and delivers its reports from the new one", async () => {
  const path = join(folder, "spool.db");
  const spool = openSpool(path, 1e6);
  spool.append([{ site: "shop", index: "reports", received: 1, body: renderReport(4) }]);
  spool.close();
  const file = openSync(path, "r+");
  writeSync(file, Buffer.alloc(100), 0, 100, 0);
  closeSync(file);
  const { held, store } = keep();
  const { telemetry, logged, metric } = createWatchedTelemetry();
  const sites = createSites({ shop: { keys: ["k"], store } });
  const reports = await openErrorIntake(configFor(path), sites, telemetry, now);
  await expect.poll(() => held).toEqual(["number 4"]);
  expect(logged()).toContain("the spool of front-end reports was damaged");
  const [name] = readdirSync(folder).filter((entry) => entry.startsWith("spool.db.set-aside-"));
  expect(logged()).toContain(name);
  expect(await metric('readout_intake_spools_set_aside_total{salvaged="all"}')).toBe(1);
  expect(await metric("readout_intake_spool_usable")).toBe(1);
  await reports.close(0);
});

test("starts without a usable spool and counts each report as not kept", async () => {
  writeFileSync(join(folder, "file"), "");
  mkdirSync(join(folder, "full", "of"), { recursive: true });
  for (const path of [join(folder, "file", "spool.db"), join(folder, "full")]) {
    const { telemetry, logged, metric } = createWatchedTelemetry();
    const { store } = keep();
    const sites = createSites({ shop: { keys: ["k"], store } });
    const reports = await openErrorIntake(configFor(path), sites, telemetry, now);
    expect(logged()).toContain("the spool of front-end reports cannot be used");
    expect(await metric("readout_intake_spool_usable")).toBe(0);
    const http = createServer((request, response) => void reports.intake.tryAnswer(request, response));
    http.listen(0, "127.0.0.1");
    await once(http, "listening");
    const { port } = http.address() as AddressInfo;
    const answer = await fetch(`http://127.0.0.1:${port}/errors?api_key=k`, {
      method: "POST",
      body: renderReport(1),
    });
    expect(answer.status).toBe(200);
    expect(await metric('readout_intake_reports_total{result="spool_failed"}')).toBe(1);
    http.close();
    await reports.close(0);
  }
});

test("refuses a spool that another process uses, with its path", async () => {
  const config = configFor(join(folder, "spool.db"));
  const open = () => openErrorIntake(config, createSites({}), createWatchedTelemetry().telemetry, now);
  const first = await open();
  const second = open();
  await expect(second).rejects.toThrow(ConfigError);
  await expect(second).rejects.toThrow(`${config.spool}: cannot be used as a spool: another process`);
  await first.close(0);
  await (await open()).close(0);
});
