// The loop of a roller: who works, how often, what it leaves behind, and what a request meets before it has come far.
import { afterEach, describe, expect, test, vi } from "vitest";
import { createMemoryRollups } from "#resolvers/memory/stores/rollup-store.ts";
import { requireFirst } from "#src/core/collections.ts";
import { BackendError, FiguresUnfinished } from "#src/core/errors.ts";
import { day, hour, minute } from "#src/core/time.ts";
import { describeFailure } from "#src/operations/runtime/error-response.ts";
import type { LogEvent } from "#src/store/backend.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import { createRollupAnalytics } from "#src/tracing/figures/rollup-analytics.ts";
import { createRollupCatalogue } from "#src/tracing/rollup-store/catalogue.ts";
import { holdLease, releaseLease } from "#src/tracing/rollup-store/lease.ts";
import { formatManifestId, parseManifest, parseSegmentId } from "#src/tracing/rollup-store/manifest.ts";
import { announceGroup } from "#src/tracing/rollup-store/roll-step.ts";
import { type RollerSettings, runRoller } from "#src/tracing/rollup-store/roller.ts";
import { createRollupCache } from "#src/tracing/rollups/rollup-cache.ts";
import { coversRange, type StoredSegment } from "#src/tracing/rollups/stored-cover.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { at, base, createSpan, signal } from "../span-builder.ts";
import { expectAnswersOfReading, length, openRolledSpans, rolledAt, rollGroup } from "./rolled-spans.ts";

const range = { from: at(0), to: at(length - 1e-6) };

function openBusySite(calls = 30) {
  const rolled = openRolledSpans();
  for (let n = 0; n < calls; n += 1) {
    const to = (n % 30) * 5 * minute + 7;
    const times = { from: to - 7, to };
    rolled.spans.add([
      createSpan({
        site_id: "a",
        span_id: `s${n}`,
        trace_id: `t${n}`,
        span_kind: "client",
        peer: "db",
        ...times,
      }),
    ]);
  }
  const query = (limit: number) => ({
    sources: [rolled.sources.a] as const,
    partners: [],
    range,
    budget: createBudget(limit),
  });
  const ask = (limit: number) => rolled.analytics.siteEdges(query(limit), signal);
  return { ...rolled, query, ask };
}

const running: { readonly stop: AbortController; readonly ended: Promise<void> }[] = [];
afterEach(async () => {
  for (const { stop, ended } of running.splice(0)) {
    stop.abort();
    await ended;
  }
});

function start(
  { targets }: ReturnType<typeof openRolledSpans>,
  store: RollupStore,
  over: Partial<RollerSettings> = {},
) {
  const stop = new AbortController();
  const [log, record] = [vi.fn(), vi.fn()];
  const settings: RollerSettings = {
    backend: "es",
    store,
    rate: 1,
    log,
    record,
    now: () => at(rolledAt),
    targets: targets.map((target) => ({ ...target, retention: length + 20 * minute })),
    limits: { segmentSpans: 4 },
    pauses: { idle: 5, leased: 5, failed: 1, longestFailed: 10, sweep: hour },
    ...over,
  };
  const ended = runRoller(settings, stop.signal);
  running.push({ stop, ended });
  return { stop, ended, log, record };
}

describe("rollers", () => {
  test("make all figures, so that a range is answered that was refused", async () => {
    const site = openBusySite();
    await expect(site.ask(10)).rejects.toMatchObject({ slug: "result_too_large" });
    start(site, site.inner);
    await expect.poll(async () => (await site.ask(0)).downstream).toMatchObject([{ count: 30 }]);
  });

  test.each([
    ["does not answer", "timeout", 30, 30],
    ["does not answer, and there is much to read", "timeout", 70, "timeout"],
    ["may not be read", "denied", 70, 70],
  ] as const)("are done without where the index %s", async (_, failure, calls, expected) => {
    const site = openBusySite(calls);
    const failed = new BackendError("figures", failure, "no answer");
    const read = () => Promise.reject(failed);
    const report = vi.fn();
    const stored = createRollupCatalogue(
      () => ({ ...site.inner, read }),
      () => 0,
      report,
    );
    const settings = { backend: "es", maxBytes: 0, minSpans: 0, segmentSpans: 10, stored };
    const analytics = createRollupAnalytics(site.spans.reader, createRollupCache(settings));
    const answer = await analytics
      .siteEdges(site.query(1_000), signal)
      .then(({ downstream: [edge] }) => edge?.count)
      .catch((error: BackendError) => error.failure);
    expect(answer).toBe(expected);
    expect(report.mock.calls).toEqual([[failed]]);
  });

  test("make figures anew without a document only after no copy has shown it for minutes", async () => {
    const site = openBusySite();
    let passed = 0;
    const limits = { segmentSpans: 4, behindPause: 0 };
    const created = vi.spyOn(site.inner, "create");
    const { record } = start(site, site.inner, { limits, now: () => at(rolledAt + passed) });
    const expectCalls = (count: number) =>
      expect.poll(async () => (await site.ask(0)).downstream).toMatchObject([{ count }]);
    /** Until two rounds have made nothing. */
    const waitUntilIdle = async (): Promise<void> => {
      const countSteps = () => {
        created.mockClear();
        record.mockClear();
      };
      countSteps();
      const countIdleSteps = () => {
        if (created.mock.calls.length > 0) countSteps();
        return record.mock.calls.length;
      };
      await expect.poll(countIdleSteps).toBeGreaterThan(2 * site.targets.length);
    };
    await expectCalls(30);
    await waitUntilIdle();
    site.spans.remove(0);
    record.mockClear();
    await expect.poll(() => record.mock.calls.length).toBeGreaterThan(2 * site.targets.length);
    expect(created).not.toHaveBeenCalled();
    passed = 3 * minute;
    await expectCalls(29);
  });

  test("come through an index beside one that goes on losing documents", async () => {
    const site = openRolledSpans();
    const add = (from: number, span_id: string) =>
      site.spans.add([
        createSpan({ site_id: "a", span_id, trace_id: span_id, from, to: from + 9, span_kind: "server" }),
      ]);
    for (let n = 0; n < 100; n += 1) add(Math.floor((n * 135 * minute) / 100), `old${n}`);
    site.spans.rollOver();
    for (let n = 0; n < 500; n += 1) add(136 * minute + n, `new${n}`);
    let passed = 0;
    let isLosing = true;
    const isRead: boolean[] = [];
    const target = requireFirst(site.targets.filter(({ sources }) => sources.length === 1));
    const covers = (segments: readonly StoredSegment[], from: number, to: number): boolean =>
      coversRange({ segments, merged: [] }, { from: at(from), to: at(to) });
    const record: RollerSettings["record"] = ({ manifest: { segments } }) => {
      passed += 5_000;
      if (isLosing) site.spans.remove(-1);
      isRead.push(covers(segments, 0, 135 * minute));
      isLosing &&= !isRead.at(-1);
    };
    start(site, site.inner, {
      now: () => at(rolledAt + passed),
      record,
      targets: [{ ...target, retention: day }],
      limits: { segmentSpans: 4, behindPause: 0 },
      pauses: { idle: 0, leased: 0, failed: 0, longestFailed: 0, sweep: day },
    });
    await expect.poll(() => isRead).toContain(true);
    expect(isRead.indexOf(true)).toBeLessThan(150);
    // What was set aside is made when the index has been quiet.
    const stored = async () => {
      const [document] = await site.inner.read([formatManifestId(target.group)], signal);
      return parseManifest(target.group, document?.body ?? "")?.segments ?? [];
    };
    await expect.poll(async () => covers(await stored(), 0, length)).toBe(true);
    await expectAnswersOfReading(site, [0, length - 1e-6], { ofActions: 0, withNpo: 0, ofRevisions: 0 });
  });

  test("let a request know how far they have come", async () => {
    const site = openBusySite();
    for (const target of site.targets) await announceGroup(site.context, target, signal);
    const none: unknown = await site.ask(10).catch((error) => error);
    expect(none).toBeInstanceOf(FiguresUnfinished);
    expect(none).toMatchObject({
      sentence: expect.stringContaining("none are there yet"),
      retryAfterSeconds: 30,
    });
    expect(describeFailure(none)).toMatchObject({
      status: 500,
      headers: { "Retry-After": "30" },
      body: { error: expect.stringContaining("are being made") },
    });
    for (const target of site.targets) await rollGroup(site.context, target);
    await expect(site.ask(10)).rejects.toMatchObject({
      sentence: expect.stringMatching(/they reach back to 2026-01-15T1[23]:\d\d:00.000Z/),
    });
  });

  test.each(["damaged", "gone"])(
    "make figures anew of which a request found that they are %s",
    async (how) => {
      const site = openBusySite();
      const { record } = start(site, site.inner);
      const expectFigures = () =>
        expect.poll(async () => (await site.ask(0)).downstream).toMatchObject([{ count: 30 }]);
      await expectFigures();
      const ids: string[] = [];
      for await (const batch of site.inner.list(signal)) ids.push(...batch.map(({ id }) => id));
      const segments = ids.filter((id) => parseSegmentId(id) !== undefined);
      await site.inner.remove(segments, signal);
      if (how === "damaged")
        await site.inner.create(
          segments.map((id) => ({ id, site: "a", made: 0, body: "{}" })),
          signal,
        );
      // The roller, which has looked through all at its start, does not see it by itself.
      record.mockClear();
      await expect.poll(() => record.mock.calls.length).toBeGreaterThan(3 * site.targets.length);
      await expect(site.ask(1)).rejects.toBeInstanceOf(FiguresUnfinished);
      await expectFigures();
    },
  );

  test("let a request wait only for what they will make", async () => {
    const site = openBusySite();
    const askWith = (retention: number) => {
      const stored = createRollupCatalogue(
        () => site.inner,
        () => base + length,
        () => undefined,
        (id) => (id === "a" ? retention : undefined),
      );
      const settings = { backend: "es", maxBytes: 0, minSpans: 0, segmentSpans: 10, stored };
      const analytics = createRollupAnalytics(site.spans.reader, createRollupCache(settings));
      return analytics.siteEdges(site.query(1), signal);
    };
    for (const target of site.targets) await announceGroup(site.context, target, signal);
    await expect(askWith(length)).rejects.toBeInstanceOf(FiguresUnfinished);
    // An end that the retention has just passed is read.
    await expect(askWith(length - 59 * minute)).rejects.toBeInstanceOf(FiguresUnfinished);
    await expect(askWith(length - 61 * minute)).rejects.toMatchObject({ slug: "result_too_large" });
    for (const target of site.targets)
      for (let step = 0; step < 100; step += 1)
        if ((await rollGroup(site.context, target)).did === "idle") break;
    site.spans.add([createSpan({ site_id: "a", span_id: "late", from: 120 * minute, to: 121 * minute })]);
    await expect(askWith(length - 61 * minute)).rejects.toBeInstanceOf(FiguresUnfinished);
  });

  test("make figures anew that a request of another instance found damaged", async () => {
    const site = openBusySite();
    // Another process has another store, with the same documents.
    const pauses = { idle: 5, leased: 5, failed: 1, longestFailed: 10, sweep: 0 };
    start(site, { ...site.inner }, { pauses });
    const expectFigures = () =>
      expect.poll(async () => (await site.ask(0)).downstream).toMatchObject([{ count: 30 }]);
    await expectFigures();
    start(site, site.inner, { pauses });
    await damageSegments(site.inner);
    await expect(site.ask(1)).rejects.toBeInstanceOf(FiguresUnfinished);
    await expectFigures();
  });

  test("remove what a request found damaged although the first attempt fails", async () => {
    const site = openBusySite();
    const pauses = { idle: 5, leased: 5, failed: 1, longestFailed: 10, sweep: hour };
    start(site, { ...site.inner }, { pauses });
    await expect.poll(async () => (await site.ask(0)).downstream).toMatchObject([{ count: 30 }]);
    await damageSegments(site.inner);
    await expect(site.ask(1)).rejects.toBeInstanceOf(FiguresUnfinished);
    const remove = vi.spyOn(site.inner, "remove");
    remove.mockRejectedValueOnce(new BackendError("figures", "unreachable", "no answer"));
    // The lease is another one's.
    start(site, site.inner, { pauses });
    await expect.poll(() => remove).toHaveBeenCalledTimes(2);
    expect(remove.mock.calls[1]?.[0]).toEqual(remove.mock.calls[0]?.[0]);
    expect(remove.mock.calls[0]?.[0]).not.toEqual([]);
  });

  test("let a request know that only the ends of its range are too long", async () => {
    const site = openBusySite();
    for (const target of site.targets)
      for (let step = 0; step < 100; step += 1)
        if ((await rollGroup(site.context, target)).did === "idle") break;
    const ask = () => {
      const cut = { from: at(3 * minute), to: at(142 * minute) };
      return site.analytics.siteEdges({ ...site.query(1), range: cut }, signal);
    };
    await expect(ask()).rejects.toMatchObject({
      slug: "result_too_large",
      message: expect.stringContaining("begin and end it at full hours"),
    });
    // Its segment is made anew: asking again helps.
    site.spans.add([createSpan({ site_id: "a", span_id: "late", from: 2 * minute, to: 4 * minute })]);
    await expect(ask()).rejects.toBeInstanceOf(FiguresUnfinished);
  });

  test("work one at a time, and the next one when the first has ended", async () => {
    const site = openBusySite();
    const first = start(site, site.inner);
    await expect.poll(() => first.record).toHaveBeenCalled();
    const second = start(site, site.inner);
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(second.record).not.toHaveBeenCalled();
    first.stop.abort();
    await first.ended;
    await expect.poll(() => second.record).toHaveBeenCalled();
  });

  test("announce nothing that they cannot make: without it a request is refused at once", async () => {
    const site = openBusySite();
    const cannotTell = {
      ...site,
      targets: site.targets.map((target) => ({
        ...target,
        reader: { ...target.reader, openSnapshot: async () => undefined },
      })),
    };
    const { log } = start(cannotTell, site.inner);
    await expect.poll(() => log).toHaveBeenCalledTimes(site.targets.length);
    const listManifests = async () => {
      const documents = [];
      for await (const some of site.inner.list(signal)) documents.push(...some);
      return documents.filter(({ id }) => id.startsWith("manifest-"));
    };
    await expect.poll(listManifests).toEqual([]);
    await expect(site.ask(10)).rejects.toMatchObject({ slug: "result_too_large" });
  });

  test("take over a lease that nobody prolongs", async () => {
    const store = createMemoryRollups();
    let time = base;
    const lease = (holder: string) => ({ store, id: "lease-a", holder, now: () => time });
    expect(await holdLease(lease("x"), signal)).toBe(true);
    expect(await holdLease(lease("y"), signal)).toBe(false);
    expect(await holdLease(lease("x"), signal)).toBe(true);
    time += 2 * minute;
    expect(await holdLease(lease("y"), signal)).toBe(true);
    expect(await holdLease(lease("x"), signal)).toBe(false);
    await releaseLease(lease("x"), signal);
    expect(await holdLease(lease("x"), signal)).toBe(false);
    await releaseLease(lease("y"), signal);
    expect(await holdLease(lease("x"), signal)).toBe(true);
    // The clock of the holder was wrong, or this one was set back: nobody waits for hours.
    time -= 60 * minute;
    expect(await holdLease(lease("y"), signal)).toBe(true);
    expect(await holdLease(lease("x"), signal)).toBe(false);
  });

  test("rest as long as their rate says", async () => {
    const site = openBusySite();
    const slow: RollupStore = {
      ...site.inner,
      create: async (documents, own) => {
        await new Promise((resolve) => setTimeout(resolve, 30));
        await site.inner.create(documents, own);
      },
    };
    const before = performance.now();
    const { record } = start(site, slow, { rate: 0.2 });
    // Each of them has its share of the time of a step.
    const recorded = 2 * site.targets.length;
    await expect.poll(() => record.mock.calls.length, { interval: 5 }).toBeGreaterThan(recorded);
    const worked = record.mock.calls.slice(0, recorded).reduce((sum, [{ took }]) => sum + took, 0);
    expect((performance.now() - before) / worked).toBeGreaterThan(4);
  });

  test("rest longer than a timer can last where their rate says so", async () => {
    const site = openBusySite();
    const { record } = start(site, site.inner, { rate: 1e-12 });
    await expect.poll(() => record).toHaveBeenCalled();
    const first = record.mock.calls.length;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(record).toHaveBeenCalledTimes(first);
  });

  test("wait while the source does not answer, and go on", async () => {
    const site = openBusySite();
    let isDown = true;
    const [target] = site.targets;
    if (target === undefined) throw new Error("no target");
    const reader = {
      ...target.reader,
      openSnapshot: (...query: Parameters<NonNullable<typeof target.reader.openSnapshot>>) => {
        if (isDown) throw new BackendError("es", "unreachable", "the breaker is open");
        return target.reader.openSnapshot?.(...query) ?? Promise.resolve(undefined);
      },
    };
    const { log, record } = start(site, site.inner, { targets: [{ ...target, reader, retention: length }] });
    await expect.poll(() => log.mock.calls.length).toBeGreaterThan(2);
    expect(record).not.toHaveBeenCalled();
    isDown = false;
    await expect.poll(() => record).toHaveBeenCalled();
  });

  test.each([
    ["are not supported", async () => undefined],
    [
      "may not be read",
      async () => {
        throw new BackendError("es", "denied", "no rights");
      },
    ],
  ])("make the figures of one site where those with its partners %s", async (_, openBoth) => {
    const site = openBusySite();
    const { reader } = requireFirst(site.targets);
    const openSnapshot: typeof reader.openSnapshot = async (sources, ...rest) =>
      sources.length > 1 ? openBoth() : reader.openSnapshot?.(sources, ...rest);
    const limited = { ...reader, openSnapshot };
    const targets = site.targets.map((target) => ({ ...target, reader: limited, retention: length }));
    const { log, record } = start(site, site.inner, { targets });
    const alone = targets.filter(({ sources }) => sources.length === 1);
    expect(alone.length).toBeGreaterThan(2);
    const listMadeKinds = () => {
      const made = record.mock.calls.filter(([{ manifest }]) => manifest.segments.length > 0);
      return new Set(made.map(([{ kind }]) => kind));
    };
    await expect.poll(listMadeKinds).toEqual(new Set(alone.map(({ kind }) => kind)));
    await expect.poll(() => log).toHaveBeenCalled();
    const isOfTogether = ({ message }: LogEvent) => message.includes("could not be made together");
    const named = log.mock.calls.map(([event]) => event).filter((event) => !isOfTogether(event));
    expect(new Set(named.map(({ kind }) => kind))).toEqual(new Set(["site_edges", "action_edges"]));
  });

  test("say why figures are made apart that can only not be made together", async () => {
    const site = openBusySite();
    const { reader } = requireFirst(site.targets);
    const failure = new BackendError("es", "denied", "no rights");
    let failures = 0;
    const openSnapshot: typeof reader.openSnapshot = async (sources, ...rest) => {
      if (sources.length < 2 || failures > 0) return reader.openSnapshot?.(sources, ...rest);
      failures += 1;
      throw failure;
    };
    const limited = { ...reader, openSnapshot };
    const targets = site.targets.map((target) => ({ ...target, reader: limited, retention: length }));
    const { log, record } = start(site, site.inner, { targets });
    await expect.poll(() => record).toHaveBeenCalled();
    expect(failures).toBe(1);
    expect(log.mock.calls).toEqual([
      [expect.objectContaining({ level: "warn", backend: "es", err: failure })],
    ]);
  });

  test("drop what the retention has passed, and make anew what is gone or was changed", async () => {
    const site = openBusySite();
    const [target] = site.targets;
    if (target === undefined) throw new Error("no target");
    const roll = async (now: number, over: { isUnverified?: boolean } = {}) => {
      const context = { ...site.context, now: () => at(now) };
      for (let steps = 0; steps < 200; steps += 1) {
        const step = await rollGroup(context, { ...target, retention: length }, over);
        if (step.did === "idle") break;
      }
      const [document] = await site.inner.read([formatManifestId(target.group)], signal);
      return parseManifest(target.group, document?.body ?? "")?.segments ?? [];
    };
    const all = await roll(rolledAt);
    const later = await roll(rolledAt + length);
    expect(later.filter(({ range: { to } }) => to < at(rolledAt - 5 * minute))).toEqual([]);
    expect(all.length).toBeGreaterThan(5);
    const list = async (segments: readonly StoredSegment[]) =>
      new Map(
        (
          await site.inner.read(
            segments.map(({ id }) => id),
            signal,
          )
        ).map((document) => [document.id, document]),
      );
    const written = await list(later);
    const [gone, changed] = later.map(({ id }) => id);
    await site.inner.remove([gone ?? ""], signal);
    const { body = "", revision } = written.get(changed ?? "") ?? {};
    // Still figures, but not those of its spans.
    const other = body.replace(/\d+(?=\D*$)/, (digits) => `${digits}1`);
    expect(other).not.toBe(body);
    await site.inner.replace({ id: changed ?? "", site: "a", made: 0, body: other }, revision, signal);
    const again = await roll(rolledAt + length, { isUnverified: true });
    const made = await list(again);
    expect(made.size).toBe(again.length);
    for (const [id, { body }] of written)
      if (id !== gone && id !== changed) expect(made.get(id)?.body).toBe(body);
    expect([...made.values()].map(({ body }) => body)).not.toContain(other);
  });
});

/** Replaces all segments by documents that do not parse. */
async function damageSegments(store: RollupStore): Promise<void> {
  const ids: string[] = [];
  for await (const batch of store.list(signal)) ids.push(...batch.map(({ id }) => id));
  const segments = ids.filter((id) => parseSegmentId(id) !== undefined);
  await store.remove(segments, signal);
  await store.create(
    segments.map((id) => ({ id, site: "a", made: 0, body: "{}" })),
    signal,
  );
}
