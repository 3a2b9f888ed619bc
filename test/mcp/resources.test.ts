// Resources over lines that a test writes.
import { expect, test } from "vitest";
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import { fromMillis, minute } from "#src/core/time.ts";
import { readResourcePage } from "../support/agent-calls.ts";
import { clock, createDemo } from "../support/demo-server.ts";

test("the paths of log lines come in pages, those of the first page on all of them", async () => {
  const logs = createMemoryLogs();
  const addLine = (n: number, time: number, keys: readonly string[]) => {
    const json = JSON.stringify(Object.fromEntries(keys.map((key) => [key, 1])));
    logs.add("demo-shop-app", [{ id: `${n}`, time: fromMillis(time), severity: "info", message: "", json }]);
  };
  const keys = Array.from({ length: 3_000 }, (_, n) => `key_${String(n).padStart(5, "0")}`);
  for (const n of [0, 1, 2]) addLine(n, clock - minute, keys.slice(1_000 * n, 1_000 * n + 1_000));
  let now = clock;
  const demo = await createDemo({
    watch: (backend) => ({ ...backend, stores: { ...backend.stores, logs } }),
    now: () => fromMillis(now),
  });
  const read: unknown[] = [];
  for (let uri: string | null = "readout://sites/demo-shop/log-fields"; uri !== null; ) {
    const page = await readResourcePage(demo, uri);
    expect(JSON.stringify(page.rows).length).toBeLessThanOrEqual(35_000);
    read.push(...page.rows);
    expect(page.left).toBe(keys.length - read.length);
    expect(page.note).toBeUndefined();
    uri = page.next;
    now += minute;
    addLine(read.length, now, [`a_new_key_${now}`]);
  }
  expect(read).toEqual(keys);
  await demo.close();
});
