// What a sweep deletes in a source: what this program wrote and nobody needs any more, and nothing of anybody else.
import { expect, test } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { day, hour, type Millis, minute } from "#src/core/time.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import { formatLeaseId, holdLease } from "#src/tracing/rollup-store/lease.ts";
import {
  emptyManifest,
  formatManifestId,
  hashGroup,
  printManifest,
  printSegment,
} from "#src/tracing/rollup-store/manifest.ts";
import { surveyRollups } from "#src/tracing/rollup-store/survey.ts";
import { sweepRollups } from "#src/tracing/rollup-store/sweep.ts";
import { at, base, signal } from "../span-builder.ts";

const group = hashGroup({ site: "a", key: "requests" });
const segmentOf = (first: number) => {
  const range = { from: at(first * minute), to: at((first + 5) * minute - 1e-6) };
  return printSegment(group, { range, origins: new Set(["spans-1"]) }, { first });
};
const kept = [segmentOf(0), segmentOf(5)];
const keptIds = kept.map(({ segment: { id } }) => id).sort();

async function create(store: RollupStore, id: string, made: Millis, body = "{}"): Promise<void> {
  await store.create([{ id, site: "a", made, body }], signal);
}

async function listIds(store: RollupStore): Promise<readonly string[]> {
  const ids: string[] = [];
  for await (const batch of store.list(signal)) ids.push(...batch.map(({ id }) => id));
  return ids.sort();
}

async function writeManifest(
  store: RollupStore,
  made: Millis,
  change: (body: string) => string = (body) => body,
): Promise<void> {
  const id = formatManifestId(group);
  const segments = kept.map(({ segment }) => segment);
  const body = change(printManifest(group, { ...emptyManifest, at: made, version: "v", segments }));
  const [found] = await store.read([id], signal);
  expect(await store.replace({ id, site: "a", made, body }, found?.revision, signal)).toBe(true);
}

async function openKept(): Promise<RollupStore> {
  const store = createMemoryRollups();
  for (const { segment, body } of kept) await create(store, segment.id, base, body);
  return store;
}

/** A sweep every hour, as rollers do; `prepare` runs before each. */
async function sweepHourly(
  store: RollupStore,
  { from, to }: { readonly from: Millis; readonly to: Millis },
  prepare: (now: Millis) => Promise<void> = async () => undefined,
): Promise<void> {
  let unreferenced: ReadonlySet<string> = new Set();
  for (let now = from; now <= to; now += hour) {
    await prepare(now);
    ({ unreferenced } = await sweepRollups(store, now, unreferenced, signal));
  }
}

test("deletes segments that no manifest refers to, at the second sweep", async () => {
  const store = await openKept();
  await writeManifest(store, base);
  await create(store, segmentOf(10).segment.id, base);
  const first = await sweepRollups(store, base, new Set(), signal);
  expect([...first.unreferenced]).toEqual([segmentOf(10).segment.id]);
  expect(await listIds(store)).toContain(segmentOf(10).segment.id);
  await sweepRollups(store, base, first.unreferenced, signal);
  expect(await listIds(store)).toEqual([formatManifestId(group), ...keptIds]);
});

test("leaves documents alone whose ids this program does not write, however old they are", async () => {
  const store = createMemoryRollups();
  const others = [
    `lease-${"a".repeat(24)}-signed`,
    "lease-agreement",
    `manifest-${"a".repeat(24)}-2`,
    "manifest-of-another-program",
    "mine",
    `segment-${"a".repeat(24)}`,
    `segment-${"a".repeat(24)}-5-1-short`,
    `segment-${"a".repeat(24)}-notes`,
  ];
  for (const id of others) await create(store, id, 0);
  await sweepHourly(store, { from: base, to: base + 3 * hour });
  expect(await listIds(store)).toEqual(others);
});

const versions = [
  ["of a site that is gone", (body: string) => body],
  ["of another version", (body: string) => body.replace(/"format":\d+/, '"format":3')],
  ["that are damaged", (body: string) => body.slice(0, -5)],
] as const;

test.each(versions)(
  "leaves figures %s alone while they are written, and not for a day more",
  async (_, change) => {
    const store = await openKept();
    const all = [formatManifestId(group), ...keptIds];
    const lived = base + 2 * day;
    await sweepHourly(store, { from: base, to: lived }, async (now) => {
      await writeManifest(store, now, change);
    });
    expect(await listIds(store)).toEqual(all);
    await sweepHourly(store, { from: lived + hour, to: lived + 20 * hour });
    expect(await listIds(store)).toEqual(all);
    await sweepHourly(store, { from: lived + 21 * hour, to: lived + day });
    expect(await listIds(store)).toEqual([]);
  },
);

test("deletes leases that nobody holds, and what `readout check` has written", async () => {
  const store = createMemoryRollups();
  const id = formatLeaseId([group]);
  await holdLease({ store, id, holder: "x", now: () => base }, signal);
  await surveyRollups(store, base, signal);
  const both = ["lease-check", id].sort();
  expect(await listIds(store)).toEqual(both);
  await sweepHourly(store, { from: base, to: base + 20 * hour });
  expect(await listIds(store)).toEqual(both);
  await sweepHourly(store, { from: base + 21 * hour, to: base + day });
  expect(await listIds(store)).toEqual([]);
});

test("names the groups of which documents are gone", async () => {
  const store = await openKept();
  await writeManifest(store, base);
  expect((await sweepRollups(store, base, new Set(), signal)).broken).toEqual(new Set());
  await store.remove(keptIds.slice(1), signal);
  expect((await sweepRollups(store, base, new Set(), signal)).broken).toEqual(new Set([group]));
});
