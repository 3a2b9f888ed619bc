// Names and types of many metrics are read without holding the event loop up.
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Backend } from "#src/store/backend.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";
import { type FakePrometheus, openFakePrometheus } from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";

const count = 300;
/** Types of other metrics, so many that reading them takes more turns than reading the names. */
const typeCount = 12_000;
const numbers = Array.from({ length: count }, (_, n) => String(n).padStart(3, "0"));
const signal = new AbortController().signal;

let fake: FakePrometheus;
let backend: Backend;
beforeAll(async () => {
  const metrics = numbers.flatMap((n) => [
    [`s${n}_count`, undefined],
    [`s${n}_sum`, undefined],
    [`g${n}`, "gauge"],
  ]);
  const types = [...numbers.map((n) => `g${n}`), ...Array.from({ length: typeCount }, (_, n) => `other${n}`)];
  const metadata = Object.fromEntries(types.map((name) => [name, [{ type: "gauge" }]]));
  fake = await openFakePrometheus({
    metrics: Object.fromEntries(metrics),
    intercept: (response, request) => {
      const isOfMetadata = request.url?.endsWith("/metadata") === true;
      if (isOfMetadata) sendJson(response, { status: "success", data: metadata });
      return isOfMetadata;
    },
  });
  backend = fake.open();
});
afterAll(async () => {
  await backend.close();
  await fake.close();
});

// First, while the names are not known yet.
test("names are grouped into families in turns", async () => {
  let names: readonly string[] | undefined;
  const turns = await countTurns(async () => {
    names = await backend.stores.metrics?.names({}, signal);
  });
  expect(names).toEqual([...numbers.map((n) => `g${n}`), ...numbers.map((n) => `s${n}`)]);
  // Of the three names of each number there are two lists. They are looked for parts, grouped and sorted.
  expect(turns).toBeGreaterThanOrEqual(12 * count);
});

test("declared types are read and counted in turns", async () => {
  let found: readonly string[] | undefined;
  const turns = await countTurns(async () => {
    found = (await backend.inspections.metrics?.({}, signal))?.found;
  });
  expect(found?.[0]).toBe(`${2 * count} metrics: ${count} gauges, ${count} summaries`);
  expect(turns).toBeGreaterThanOrEqual(typeCount);
});
