// What this process holds of manifests, which list segments of figures that an index keeps: a bounded part of memory.
import { describe, expect, test } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import { createPartnerTargets } from "#src/tracing/figures/roll-targets.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import {
  formatManifestId,
  hashGroup,
  type Manifest,
  printManifest,
  printSegment,
} from "#src/tracing/rollup-store/manifest.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { at, base, createSource, createSpan } from "../span-builder.ts";
import { createStoredSpans } from "./stored-spans.ts";

const signal = new AbortController().signal;
const minute = 60_000;

/** Writes the manifest of a group with segments of a minute each. */
async function writeManifest(
  store: RollupStore,
  group: string,
  version: string,
  minutes: number,
): Promise<void> {
  const segments = Array.from({ length: minutes }, (_, n) => {
    const range = { from: at(n * minute), to: (at((n + 1) * minute) - 1n) as ReturnType<typeof at> };
    return printSegment(group, { range, origins: new Set(["spans-0"]) }, { n }).segment;
  });
  const manifest: Manifest = { at: base, version, segments, merged: [], unmergeable: [] };
  const id = formatManifestId(group);
  const [before] = await store.read([id], signal);
  const document = { id, site: "a", made: base, body: printManifest(group, manifest) };
  expect(await store.replace(document, before?.revision, signal)).toBe(true);
}

describe("the manifests that are kept", () => {
  const parseVersion = (text: string) => ({ bytes: text.length }) as never;

  test("are read again after some seconds, also if the clock is set back, and parsed again only if replaced", async () => {
    const store = createMemoryRollups();
    const name = { site: "a", key: "k" };
    let clock = base;
    let reads = 0;
    const counting: RollupStore = {
      ...store,
      read: (...asked) => {
        reads += 1;
        return store.read(...asked);
      },
    };
    const { find } = createRollupCatalogue(
      () => counting,
      () => clock,
      () => undefined,
    );
    const read = async () => (await find(name, parseVersion, signal))?.segments;
    await writeManifest(store, hashGroup(name), "one", 3);
    const first = await read();
    expect(first).toHaveLength(3);
    expect(await read()).toBe(first);
    expect(reads).toBe(1);
    clock -= 60 * minute;
    expect(await read()).toBe(first);
    expect(reads).toBe(2);
    clock += 6_000;
    await writeManifest(store, hashGroup(name), "two", 4);
    expect(await read()).toHaveLength(4);
    expect(reads).toBe(3);
  });

  test("are forgotten, the oldest first, where they list too many segments", async () => {
    const store = createMemoryRollups();
    const names = ["a", "b", "c", "d"].map((key) => ({ site: "a", key }));
    for (const name of names) await writeManifest(store, hashGroup(name), "one", 30_000);
    const { find } = createRollupCatalogue(
      () => store,
      () => base,
      () => undefined,
    );
    const read = async (name: (typeof names)[number]) => (await find(name, parseVersion, signal))?.segments;
    const [first, ...others] = names;
    if (first === undefined) throw new Error("no name");
    const found = new Map<string, unknown>();
    for (const name of names) found.set(name.key, await read(name));
    for (const name of others) expect(await read(name)).toBe(found.get(name.key));
    expect(await read(first)).not.toBe(found.get(first.key));
  });
});

test("what groups hold of manifests counts as memory of figures, so that clients who choose groups do not fill it", async () => {
  const spans = createStoredSpans();
  spans.add([
    createSpan({
      site_id: "a",
      span_id: "s",
      trace_id: "t",
      span_kind: "client",
      peer: "db",
      from: 0,
      to: 7,
    }),
  ]);
  const source = createSource("a");
  const store = createMemoryRollups();
  const rolled = { backend: "es", reader: spans.reader, source, retention: 30 * 24 * 60 * minute };
  const [, target] = createPartnerTargets(rolled, []);
  const snapshot = await spans.reader.openSnapshot?.([source], undefined, signal);
  if (target === undefined || snapshot === undefined) throw new Error("no target");
  await writeManifest(store, target.group, snapshot.version.print?.() ?? "", 1_000);
  const cache = createRollupCache({
    backend: "es",
    maxBytes: 1_000_000,
    minSpans: 0,
    stored: createRollupCatalogue(
      () => store,
      () => base,
      (error) => {
        throw error;
      },
    ),
  });
  const analytics = createRollupAnalytics(spans.reader, cache);
  const kept: number[] = [];
  for (let n = 0; n < 10; n++) {
    const range = { from: at(0), to: (at(2 * minute) - 1n) as ReturnType<typeof at> };
    const asked = {
      sources: [source],
      partners: [],
      service: "x",
      namespace: "web",
      action: `action ${n}`,
      range,
    };
    await analytics.actionEdges({ ...asked, budget: createBudget(1e6) } as never, signal);
    kept.push(cache.groups.size);
    expect(cache.bytes).toBeLessThanOrEqual(cache.maxBytes);
  }
  // A thousand segments take some 400 kB of a megabyte.
  expect(kept.slice(0, 4)).toEqual([1, 2, 2, 2]);
});
