// Snapshots of several backends: all are open or none is, and what was kept holds only as long as it does in each of them.
import { describe, expect, test, vi } from "vitest";
import { BackendError } from "#src/core/errors.ts";
import type { Span } from "#src/core/rows.ts";
import { allTime } from "#src/core/time.ts";
import { createFederatedSpans } from "#src/federation/federated-spans.ts";
import type { SnapshotVersion, SpanReader } from "#src/store/spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createStoredSpans } from "../tracing/rollups/stored-spans.ts";
import { createSource, createSpan, signal } from "../tracing/span-builder.ts";

const shop = createSource("shop");
const cart = createSource("cart");

/** `cart` lies in the last backend only. */
function join(readers: Readonly<Record<string, SpanReader>>): Required<SpanReader> {
  const places = Object.entries(readers).map(([backend, reader]) => {
    return { backend, store: { ...reader, ...createSpanAnalytics(reader) } };
  });
  return createFederatedSpans({
    listPlaces: (source) => places.slice(source === cart ? -1 : 0).map((place) => ({ ...place, source })),
    findStore: (name) => places.find(({ backend }) => backend === name)?.store,
  }) as unknown as Required<SpanReader>;
}

/** Two backends with a span each. */
function openTwo() {
  const [old, next] = [createStoredSpans(), createStoredSpans()];
  for (const [at, { add }] of [old, next].entries())
    add([createSpan({ site_id: "shop", span_id: `s${at}` })]);
  return { old, next, reader: join({ old: old.reader, next: next.reader }) };
}

async function openSnapshot(reader: Required<SpanReader>, since?: SnapshotVersion) {
  const snapshot = await reader.openSnapshot([shop], since, signal);
  if (snapshot === undefined) throw new Error("no snapshot");
  return snapshot;
}

const budget = { limit: 10, spend: () => undefined };

async function listIds(
  batches: Iterable<never> | AsyncIterable<readonly Span[]>,
): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const spans of batches) found.push(...spans.map(({ span_id }) => span_id));
  return found.sort();
}

test("a snapshot has the spans that each backend had when it was opened", async () => {
  const { old, next, reader } = openTwo();
  const snapshot = await openSnapshot(reader);
  old.remove(0);
  next.add([createSpan({ site_id: "shop", span_id: "late" })]);
  const scan = { sources: [shop], range: allTime, select: "all", budget } as const;
  expect(await listIds(snapshot.reader.scan(scan, signal))).toEqual(["s0", "s1"]);
  expect(await listIds(reader.scan(scan, signal))).toEqual(["late", "s1"]);
});

describe("what was added", () => {
  test("is what any backend has had since, and nothing where none has", async () => {
    const { next, reader } = openTwo();
    const { version } = await openSnapshot(reader);
    expect((await openSnapshot(reader, version)).added?.documents).toBe(0);
    next.add([createSpan({ site_id: "shop", span_id: "late" })]);
    const { added } = await openSnapshot(reader, version);
    expect(await listIds(added?.read({ range: allTime, budget }, signal) ?? [])).toEqual(["late"]);
  });

  test.each(["old", "next"] as const)("names the index where %s has lost a document", async (name) => {
    const stores = openTwo();
    const { version } = await openSnapshot(stores.reader);
    stores[name].remove(0);
    const { added, behindOrigins } = await openSnapshot(stores.reader, version);
    expect(added?.changedOrigins).toEqual(new Set([JSON.stringify([name, "spans-0"])]));
    expect(behindOrigins).toEqual(new Set([JSON.stringify([name, "spans-0"])]));
  });

  test("is unknown since a version of other backends, or of none", async () => {
    const { old, next, reader } = openTwo();
    const { version: ofOne } = await openSnapshot(join({ old: old.reader }));
    const { version: ofOther } = await openSnapshot(join({ old: old.reader, other: next.reader }));
    const { version: ofThree } = await openSnapshot(
      join({ old: old.reader, next: next.reader, other: createStoredSpans().reader }),
    );
    for (const since of [ofOne, ofOther, ofThree, { bytes: 1 }, undefined])
      expect((await openSnapshot(reader, since)).added).toBeUndefined();
  });

  test("is told of some sources by the backends that have them", async () => {
    const { old, next, reader } = openTwo();
    const snapshot = await reader.openSnapshot([shop, cart], undefined, signal);
    const before = await snapshot?.select([cart], undefined, signal);
    old.remove(0);
    next.add([createSpan({ site_id: "cart" })]);
    const later = await reader.openSnapshot([shop, cart], snapshot?.version, signal);
    expect(later?.added?.changedOrigins.size).toBe(1);
    const { documents, changedOrigins } = (await later?.select([cart], before?.version, signal))?.added ?? {};
    expect([documents, changedOrigins?.size]).toEqual([1, 0]);
  });
});

describe("a version that was printed", () => {
  test("is read again, by another process too", async () => {
    const { old, next, reader } = openTwo();
    const text = (await openSnapshot(reader)).version.print?.() ?? "";
    const other = join({ next: next.reader, old: old.reader });
    expect((await openSnapshot(other, other.parseVersion(text))).added?.documents).toBe(0);
    next.add([createSpan({ site_id: "shop" })]);
    expect((await openSnapshot(other, other.parseVersion(text))).added?.documents).toBe(1);
  });

  test("is none where a backend is unknown or does not read its own part", async () => {
    const { old, next, reader } = openTwo();
    const text = (await openSnapshot(reader)).version.print?.() ?? "";
    expect(reader.parseVersion(text)).toBeDefined();
    expect(join({ old: old.reader }).parseVersion(text)).toBeUndefined();
    const mute = { ...next.reader, parseVersion: () => undefined };
    expect(join({ old: old.reader, next: mute }).parseVersion(text)).toBeUndefined();
    for (const wrong of ["", "{}", "[1]", text.slice(1), '[["old",1]]'])
      expect(reader.parseVersion(wrong)).toBeUndefined();
  });

  test("is not there where one backend's ends with the process", async () => {
    const { old, next } = openTwo();
    const openSnapshot: SpanReader["openSnapshot"] = async (...query) => {
      const snapshot = await next.reader.openSnapshot?.(...query);
      return snapshot && { ...snapshot, version: { bytes: 1 } };
    };
    const reader = join({ old: old.reader, next: { ...next.reader, openSnapshot } });
    expect((await reader.openSnapshot([shop], undefined, signal))?.version.print).toBeUndefined();
  });
});

describe("a snapshot of which a part cannot be opened", () => {
  const closed = vi.fn();
  const opening = (wait: Promise<unknown>): SpanReader => {
    const { reader } = createStoredSpans();
    return {
      ...reader,
      openSnapshot: async (...query) => {
        await wait;
        const snapshot = await reader.openSnapshot?.(...query);
        return snapshot && { ...snapshot, close: closed };
      },
    };
  };
  const down = new BackendError("next", "unreachable", "down");

  test("leaves none open where a backend fails, and those still opening are closed later", async () => {
    closed.mockClear();
    const late = Promise.withResolvers<void>();
    const fail = Promise.withResolvers<never>();
    const reader = join({
      old: opening(Promise.resolve()),
      slow: opening(late.promise),
      next: opening(fail.promise),
    });
    const found = reader.openSnapshot([shop], undefined, signal);
    setImmediate(() => fail.reject(down));
    await expect(found).rejects.toBe(down);
    expect(closed).toHaveBeenCalledTimes(1);
    late.resolve();
    await expect.poll(() => closed.mock.calls.length).toBe(2);
  });

  test("is none where a backend has no snapshots", async () => {
    closed.mockClear();
    const { openSnapshot: _, ...plain } = createStoredSpans().reader;
    const reader = join({ old: opening(Promise.resolve()), next: plain });
    expect(await reader.openSnapshot([shop], undefined, signal)).toBeUndefined();
    expect(closed).toHaveBeenCalledTimes(1);
  });

  test("leaves none open where the caller has left", async () => {
    closed.mockClear();
    const leaving = new AbortController();
    const late = Promise.withResolvers<void>();
    const reader = join({ old: opening(Promise.resolve()), next: opening(late.promise) });
    const found = reader.openSnapshot([shop], undefined, leaving.signal);
    setImmediate(() => {
      leaving.abort(new Error("left"));
      late.resolve();
    });
    await expect(found).rejects.toThrow("left");
    expect(closed).toHaveBeenCalledTimes(2);
  });
});
