// What `init` proposes where some indices of a rotation cannot be read, over a search server in memory: the pattern without them, and
// each of them with its own reason.
import { expect, test } from "vitest";
import type { FakeIndex } from "../../support/elastic/fake-cluster.ts";
import { createFakeIndex, openIndices } from "../../support/elastic/layout-harness.ts";

const ecs = { message: "m", log: { level: "error" }, ecs: { version: "8.0.0" } };
const sound = createFakeIndex([ecs]);
const { properties } = sound.mappings as { readonly properties: object };
const closed: FakeIndex = { ...sound, settings: { verified_before_close: "true" } };
const cut: FakeIndex = { ...sound, mappings: { ...sound.mappings, _source: { enabled: false } } };
const untimed: FakeIndex = {
  ...sound,
  mappings: { properties: { ...properties, "@timestamp": { type: "keyword" } } },
};

async function propose(indices: Readonly<Record<string, FakeIndex>>) {
  const survey = await (await openIndices(indices)).survey(["logs-*"]);
  return { logs: survey?.logs.map(({ index, indices }) => [index, indices]), notes: survey?.notes };
}

test.each([
  ["closed", closed, "closed, so nothing of it can be read"],
  ["without a whole source", cut, "_source is not kept whole, so lines cannot be answered"],
  ["with a text for a time", untimed, "@timestamp is of type keyword, not date or date_nanos"],
])("proposes a rotation without the index that is %s", async (_, faulty, reason) => {
  const indices = { "logs-2026.01.01": faulty, "logs-2026.01.02": sound, "logs-2026.01.03": sound };
  expect(await propose(indices)).toEqual({
    logs: [["logs-*,-logs-2026.01.01", 2]],
    notes: [`logs-2026.01.01: ${reason}`],
  });
});

test("names each index with its own fault", async () => {
  const { logs, notes } = await propose({
    "logs-2026.01.01": closed,
    "logs-2026.01.02": cut,
    "logs-2026.01.03": untimed,
    "logs-2026.01.04": sound,
  });
  expect(logs).toEqual([["logs-*,-logs-2026.01.01,-logs-2026.01.02,-logs-2026.01.03", 1]]);
  expect(notes?.map((note) => note.slice(0, note.indexOf(":"))).sort()).toEqual([
    "logs-2026.01.01",
    "logs-2026.01.02",
    "logs-2026.01.03",
  ]);
});

test("leaves out the whole rotation where too many cannot be read to be named", async () => {
  const days = Array.from({ length: 22 }, (_, n) => `logs-2026.01.${String(n + 1).padStart(2, "0")}`);
  const { logs, notes } = await propose(
    Object.fromEntries(days.map((day, n) => [day, n === 0 ? sound : cut])),
  );
  expect(logs).toEqual([]);
  expect(notes).toHaveLength(1);
});
