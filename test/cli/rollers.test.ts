// Who makes figures of spans, and of which sites: nobody without `rollups`.
import { expect, test, vi } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { connectSites } from "#src/access/sites.ts";
import { openRollupStore, runRollers } from "#src/cli/serve/rollers.ts";
import { parseConfig } from "#src/config/config.ts";
import type { Backend } from "#src/store/backend.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { parseGroupOfId } from "#src/tracing/rollup-store/manifest.ts";
import { createStoredSpans } from "../tracing/rollups/stored-spans.ts";
import { at } from "../tracing/span-builder.ts";

const hash = (digit: string) => digit.repeat(64);
const sites = `
backends: { elk: { kind: fake }, other: { kind: fake } }
sites:
  a: { retention: 1h, traces: { backend: elk, index: t } }
  b: { retention: 1h, traces: { backend: elk, index: t } }
  c: { traces: [{ backend: elk, index: t }, { backend: other, index: t }] }
tokens:
  - { user: all, sha256: "${hash("1")}", sites: [a, b] }
  - { user: one, sha256: "${hash("2")}", sites: [a] }
  - { user: same, sha256: "${hash("3")}", sites: [a] }
  - { user: logs, sha256: "${hash("4")}", sites: [b], scopes: [logs] }
`;

function open(rollups: string) {
  const config = parseConfig(sites + rollups, "readout.yaml", {
    kinds: new Map([["fake", { parseConfig: () => undefined }]]),
    ...{ env: {}, readText: () => "" },
  });
  const { reader } = createStoredSpans();
  const openSnapshot = vi.fn(reader.openSnapshot);
  const store = createMemoryRollups();
  const openRollups = vi.fn(() => store);
  const createBackend = (name: string): Backend => ({
    ...{ name, kind: "fake", inspections: {}, openRollups },
    stores: { traces: { ...reader, openSnapshot, ...createSpanAnalytics(reader) } },
    probe: async () => ({ product: "fake", version: "1" }),
    close: async () => undefined,
  });
  const backends = new Map(["elk", "other"].map((name) => [name, createBackend(name)]));
  const recordRolled = vi.fn();
  const stop = new AbortController();
  const ended = runRollers(
    { config, sites: connectSites(config, backends) },
    openRollupStore(config, backends),
    { log: () => undefined, recordRolled },
    () => at(0),
    stop.signal,
  );
  return { openSnapshot, openRollups, recordRolled, store, stop, ended };
}

test("nothing is read or written where the configuration has no rollups", async () => {
  const { openSnapshot, openRollups, ended } = open("");
  await ended;
  expect(openSnapshot).not.toHaveBeenCalled();
  expect(openRollups).not.toHaveBeenCalled();
});

test("figures are made of each site, for what each token may see, until the end", async () => {
  const { openRollups, recordRolled, store, stop, ended } = open("rollups: { backend: other, rate: 1 }");
  await vi.waitFor(() => expect(recordRolled.mock.calls.length).toBeGreaterThanOrEqual(42), {
    timeout: 20_000,
  });
  expect(openRollups).toHaveBeenCalledWith("readout-rollups");
  stop.abort();
  await ended;
  const made = new Set(
    recordRolled.mock.calls.map(([{ backend, site, kind }]) => `${backend} ${site} ${kind}`),
  );
  expect([...made].sort()).toEqual([
    "elk a action_edges",
    "elk a actions",
    "elk a site_edges",
    "elk a slow_event_actions",
    "elk a slow_events",
    "elk b action_edges",
    "elk b actions",
    "elk b site_edges",
    "elk b slow_event_actions",
    "elk b slow_events",
  ]);
  const groups: string[] = [];
  for await (const batch of store.list(new AbortController().signal)) {
    for (const { id, site } of batch)
      if (id.startsWith("manifest-") && parseGroupOfId(id) !== undefined) groups.push(site);
  }
  // Requests, slow events, their actions in 16 parts, and edges and those of actions, of `a` alone and with `b`; those of `b` with
  // `a` only, since no token sees the traces of `b` alone.
  expect(groups.sort()).toEqual([...Array(22).fill("a"), ...Array(20).fill("b")]);
});
