// The audit log of a run, as reloads switch it on and off and name other places.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openAuditKeeper } from "#src/cli/serve/audit.ts";
import type { AuditConfig } from "#src/config/edge-settings.ts";
import { fromMillis } from "#src/core/time.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "readout-audit-keeper-"));
});
afterEach(() => rm(folder, { recursive: true }));

const open = (config: AuditConfig | undefined) =>
  openAuditKeeper(config, createTelemetry({ write: () => {} }), () => fromMillis(0));
const writtenTo = (name: string): AuditConfig => ({
  file: join(folder, name),
  key: "k".repeat(16),
  queries: "hash",
  sync: "1s",
  onFull: "refuse",
});
const readEvents = async (name: string) => {
  const text = await readFile(join(folder, name), "utf8");
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line).event]));
};

test("each time in which it is on begins with a line and ends with one", async () => {
  const keeper = await open(writtenTo("a"));
  await keeper.configure(undefined);
  await keeper.configure(undefined);
  expect([keeper.log(), await readEvents("a")]).toEqual([undefined, ["start", "stop"]]);
  await keeper.configure(writtenTo("a"));
  await keeper.configure({ ...writtenTo("a"), queries: "text" });
  expect(await readEvents("a")).toEqual(["start", "stop", "start"]);
  await keeper.configure(undefined);
  await keeper.configure(writtenTo("b"));
  await keeper.close();
  expect(await readEvents("a")).toEqual(["start", "stop", "start", "stop"]);
  expect(await readEvents("b")).toEqual(["start", "stop"]);
});

test("it ends with its last line where the program ends while a reload switches it on", async () => {
  const keeper = await open(undefined);
  const configured = keeper.configure(writtenTo("a"));
  await keeper.close();
  await configured;
  expect(await readEvents("a")).toEqual(["start", "stop"]);
});
