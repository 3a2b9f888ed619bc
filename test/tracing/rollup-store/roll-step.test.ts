// Rollers against reading: whatever comes and goes, wherever one is killed, and however many work at once.
import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { requireFirst, requireLast } from "#src/core/collections.ts";
import { Refused } from "#src/core/errors.ts";
import { day, fromMillis, hour, minute } from "#src/core/time.ts";
import type { RollupStore } from "#src/store/rollups.ts";
import { formatManifestId } from "#src/tracing/rollup-store/manifest.ts";
import type { RollTarget } from "#src/tracing/rollup-store/roll-target.ts";
import type { StoredSegment } from "#src/tracing/rollups/stored-cover.ts";
import { createBudget } from "#src/tracing/spans/read-budget.ts";
import { sampleCases, sampleRuns } from "../../support/law-runs.ts";
import { createFederatedStoredSpans } from "../rollups/federated-stored-spans.ts";
import { createLateReader, createStoredSpans } from "../rollups/stored-spans.ts";
import { at, base, createSpan, signal } from "../span-builder.ts";
import {
  type ComparedRows,
  documents,
  expectAnswersOfReading,
  Killed,
  length,
  openRolledSpans,
  pickTarget,
  type RolledSpans,
  requestWithNpo,
  rollGroup,
  rollWithOthers,
} from "./rolled-spans.ts";

/** A longer run is for changes of rollers: `ROLLER_RUNS=300`. */
const runs = Number(process.env.ROLLER_RUNS ?? sampleRuns(12, { share: 3, least: 4 }));

const whole = [0, length - 1e-6] as const;
const ends = fc.oneof(
  fc.constant(whole),
  fc.tuple(fc.integer({ min: 0, max: length }), fc.integer({ min: 0, max: length })),
);
const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      does: fc.constant("add" as const),
      documents: fc.array(documents, { maxLength: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("remove" as const), place: fc.nat(50) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("replace" as const), place: fc.nat(50) }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("rollOver" as const) }) },
  // A copy of the shards, until the next change or until it catches up.
  { weight: 1, arbitrary: fc.record({ does: fc.constantFrom("fallBehind", "catchUp") }) },
  { weight: 1, arbitrary: fc.record({ does: fc.constant("removeIndex" as const), place: fc.nat(50) }) },
  {
    weight: 6,
    arbitrary: fc.record({
      does: fc.constant("roll" as const),
      target: fc.nat(6),
      steps: fc.integer({ min: 1, max: 4 }),
      /** With the other groups of the same sources. */
      isTogether: fc.boolean(),
      /** Whether what is missing may be there again. */
      waits: fc.boolean(),
      /** Whether what is dropped for it is set aside. */
      isUnstable: fc.boolean(),
      /** Calls of the store until the roller is killed. */
      calls: fc.option(fc.nat(6), { nil: undefined, freq: 3 }),
      isAfter: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record({ does: fc.constant("race" as const), target: fc.nat(6) }) },
);

describe("rollers", () => {
  test("keep figures that answer as reading does, killed at any point, two at once", async () => {
    let [kept, kills] = [0, 0];
    const compared: ComparedRows = { ofActions: 0, withNpo: 0, ofRevisions: 0 };
    const property = fc.asyncProperty(
      fc.array(documents, { minLength: 5, maxLength: 40 }),
      fc.array(fc.record({ step, ends }), { minLength: 3, maxLength: 14 }),
      fc.constantFrom(0, 1_000_000),
      fc.constantFrom(0, 2_000, 2_000_000),
      // Of one backend and of two.
      fc.constantFrom(createStoredSpans, createFederatedStoredSpans),
      async (first, steps, cacheBytes, maxMergedBytes, open) => {
        const rolled = openRolledSpans(cacheBytes, maxMergedBytes, open());
        [...requestWithNpo, ...first].forEach(rolled.spans.add);
        for (const { step, ends } of steps) {
          if (await takeStep(rolled, step)) kills += 1;
          await expectAnswersOfReading(rolled, ends, compared);
        }
        kept += rolled.stored.filter((hit) => hit).length;
        rolled.stored.length = 0;
        await rollAll(rolled);
        // Nothing is left to read.
        await expectAnswersOfReading(rolled, whole, compared, 0);
        expect(rolled.stored).not.toContain(false);
      },
    );
    await fc.assert(property, { numRuns: runs });
    expect(kept).toBeGreaterThan(5 * runs);
    expect(kills).toBeGreaterThan(0);
    expect(compared.ofActions).toBeGreaterThan(5 * runs);
    expect(Math.min(compared.withNpo, compared.ofRevisions)).toBeGreaterThan(runs);
  });
});

/** Returns whether a roller was killed. */
async function takeStep(rolled: RolledSpans, step: Step): Promise<boolean> {
  const { spans, context, killer, targets } = rolled;
  switch (step.does) {
    case "add":
      step.documents.forEach(spans.add);
      return false;
    case "remove":
      spans.remove(step.place);
      return false;
    case "replace":
      spans.replace(step.place, (span) => ({ ...span, service_name: "z", status_code: "ERROR" }));
      return false;
    case "rollOver":
    case "fallBehind":
    case "catchUp":
      spans[step.does]();
      return false;
    case "removeIndex":
      spans.removeIndex(step.place);
      return false;
    case "race": {
      const target = pickTarget(rolled, step.target);
      await Promise.all([rollGroup(context, target), rollWithOthers(context, targets, target)]);
      return false;
    }
    case "roll":
      Object.assign(killer, { calls: step.calls, isAfter: step.isAfter });
      try {
        for (let taken = 0; taken < step.steps; taken += 1) {
          const target = pickTarget(rolled, step.target);
          const over = { mayTakeAsDeleted: () => !step.waits, isUnstable: () => step.isUnstable };
          await (step.isTogether
            ? rollWithOthers(context, targets, target, over)
            : rollGroup(context, target, over));
        }
        return false;
      } catch (error) {
        if (!(error instanceof Killed)) throw error;
        return true;
      } finally {
        killer.calls = undefined;
      }
  }
}
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** From the first span on; the time before has one segment at most for each length. */
const skipped = [{ from: at(-1e9), to: at(-1) }];

const listRecent = ({ targets }: RolledSpans) =>
  targets.map((target) => ({ ...target, retention: length + 20 * minute }));

/** Until nothing is missing and nothing is left to be merged. */
async function rollAll(rolled: RolledSpans): Promise<void> {
  const { context } = rolled;
  const recent = listRecent(rolled);
  for (const target of recent) {
    for (let steps = 0; steps < 500; steps += 1) {
      const taken = await rollWithOthers(context, recent, target, { skipped });
      if (taken.every(({ did }) => did === "idle")) break;
    }
  }
}

describe("a copy of the shards that lacks what was counted", () => {
  test("changes nothing until it shows it, or until that is deleted", async () => {
    const rolled = openRolledSpans();
    for (let time = 0; time < length; time += 5 * minute) {
      const fields = { site_id: "a", trace_id: `t${time}`, from: time, to: time + 10 };
      rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_kind: "server" })]);
    }
    await rollAll(rolled);
    const [target] = listRecent(rolled);
    if (target === undefined) throw new Error("no target");
    const order = { skipped, mayTakeAsDeleted: () => false };
    const { manifest: before } = await rollGroup(rolled.context, target, order);
    rolled.spans.fallBehind();
    const read = vi.spyOn(rolled.inner, "read");
    const behind = await rollGroup(rolled.context, target, { ...order, isUnverified: true });
    expect(behind).toMatchObject({ did: "behind", documents: 0, manifest: before });
    // What may change nothing looks through nothing.
    expect(read.mock.calls.map(([ids]) => ids)).toEqual([[formatManifestId(target.group)]]);
    rolled.spans.catchUp();
    expect(await rollGroup(rolled.context, target, order)).toMatchObject({ did: "idle", manifest: before });
    rolled.spans.remove(0);
    expect((await rollGroup(rolled.context, target, order)).did).toBe("behind");
    expect((await rollGroup(rolled.context, target, { skipped })).did).toBe("made");
    await rollAll(rolled);
    await expectAnswersOfReading(rolled, whole, { ofActions: 0, withNpo: 0, ofRevisions: 0 }, 0);
  });
});

describe("an index that no figures are made of, whose document is written again and again", () => {
  /** As the names of services beside the spans, or the index of figures itself. */
  function openBesideNoise() {
    const spans = createStoredSpans();
    const { reader, countOpened } = createLateReader(spans);
    const rolled = openRolledSpans(0, 2_000_000, { ...spans, reader });
    requestWithNpo.forEach(spans.add);
    spans.rollOver();
    spans.add([createSpan({ site_id: "none", span_id: "noise", to: 20 * minute })]);
    const writeAgain = () => spans.replace(requestWithNpo.length, (span) => ({ ...span, count: 2 }));
    return { rolled, countOpened, writeAgain };
  }

  test("is not waited for by a roller, which makes all segments", async () => {
    const { rolled, countOpened, writeAgain } = openBesideNoise();
    const target = requireFirst(listRecent(rolled));
    let steps = 0;
    let last = "made";
    for (; steps < 100 && last !== "idle"; steps += 1) {
      last = (await rollGroup(rolled.context, target, { skipped, mayTakeAsDeleted: () => false })).did;
      expect(["made", "merged", "idle"]).toContain(last);
      writeAgain();
    }
    expect(last).toBe("idle");
    expect(countOpened()).toBe(steps);
  });

  test("is not waited for by a request", async () => {
    const { rolled, countOpened, writeAgain } = openBesideNoise();
    await rollAll(rolled);
    writeAgain();
    const before = countOpened();
    const edges = {
      sources: [rolled.sources.a] as const,
      range: { from: at(0), to: at(length - 1e-6) },
      partners: [],
      budget: createBudget(0),
    };
    await expect(rolled.analytics.siteEdges(edges, signal)).resolves.toBeDefined();
    expect(countOpened()).toBe(before + 1);
    expect(rolled.stored).not.toContain(false);
    await expectAnswersOfReading(rolled, whole, { ofActions: 0, withNpo: 0, ofRevisions: 0 }, 0);
  });
});

test("a group that waits for documents does not keep others from being made", async () => {
  const rolled = openRolledSpans();
  for (let time = 0; time < length; time += 5 * minute) {
    const fields = { site_id: "a", trace_id: `t${time}`, from: time, to: time + 10 };
    rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_kind: "server" })]);
  }
  const targets = listRecent(rolled).filter(({ sources }) => sources.length === 1);
  const first = requireFirst(targets);
  await rollGroup(rolled.context, first, { skipped });
  rolled.spans.remove(-1);
  const steps = await rollWithOthers(rolled.context, targets, first, {
    skipped,
    mayTakeAsDeleted: () => false,
  });
  const [waiting, ...others] = steps.map(({ did }) => did);
  expect(waiting).toBe("behind");
  expect(others.length).toBeGreaterThan(1);
  expect(new Set(others)).toEqual(new Set(["made"]));
});

test("a request waits for a copy of the shards that shows what the index has counted", async () => {
  const spans = createStoredSpans();
  const { reader, countOpened } = createLateReader(spans);
  const rolled = openRolledSpans(0, 2_000_000, spans);
  const asking = openRolledSpans(0, 2_000_000, { ...spans, reader }, rolled.inner);
  requestWithNpo.forEach(spans.add);
  await rollAll(rolled);
  spans.fallBehind();
  const query = { sources: [asking.sources.a], range: { from: at(0), to: at(length - 1e-6) } } as const;
  const edges = { ...query, partners: [], budget: createBudget(0) };
  await expect(asking.analytics.siteEdges(edges, signal)).resolves.toBeDefined();
  expect(countOpened()).toBe(2);
  expect(asking.stored).not.toContain(false);
});

describe("an index that is deleted or loses a document", () => {
  /** Calls of two hours, each of an index of its own, and one in the second hour whose callee came in the first. */
  async function rollTwoIndices() {
    const rolled = openRolledSpans();
    const addCall = (time: number, trace_id = `t${time}`): void => {
      const fields = { site_id: "a", trace_id, from: time, to: time + 10 };
      rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_kind: "server" })]);
      rolled.spans.add([createSpan({ ...fields, span_id: "n2", parent_span_id: "n1", span_kind: "client" })]);
    };
    for (let time = 0; time < 60 * minute; time += minute) addCall(time);
    const called = { trace_id: `t${80 * minute}`, span_id: "n3", parent_span_id: "n2" };
    rolled.spans.add([
      createSpan({ site_id: "a", ...called, span_kind: "server", from: 70 * minute, to: 70 * minute + 9 }),
    ]);
    rolled.spans.rollOver();
    for (let time = 60 * minute; time < 120 * minute; time += minute) addCall(time);
    await rollAll(rolled);
    return rolled;
  }

  test.each(sampleCases(["removeIndex", "remove"] as const, { share: 2 }))(
    "takes its figures, and leaves the others: %s",
    async (step) => {
      const rolled = await rollTwoIndices();
      const made = vi.spyOn(rolled.inner, "create");
      rolled.spans[step](0);
      await rollAll(rolled);
      const minutes = made.mock.calls
        .flatMap(([documents]) => documents.map(({ id }) => /-(\d+)-(\d+)-[\w-]{16}$/.exec(id)))
        .map((match) => Number(match?.[1]) - Number(at(0) / 60_000_000_000n));
      expect(minutes.filter((minute) => minute < 60).length).toBeGreaterThan(0);
      expect(new Set(minutes.filter((minute) => minute >= 60))).toEqual(new Set([70, 80]));
      await expectAnswersOfReading(rolled, whole, { ofActions: 0, withNpo: 0, ofRevisions: 0 }, 0);
    },
  );
});

test("what a step has made is written, also where it is refused the next piece", async () => {
  const rolled = openRolledSpans();
  for (let time = 0; time < length; time += minute) {
    const fields = { site_id: "a", trace_id: `t${time}`, from: time, to: time + 10 };
    rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_kind: "server" })]);
  }
  const target = requireFirst(listRecent(rolled));
  const make: RollTarget["make"] = async (reader, range, ...rest) => {
    if (range.from < at(length / 2)) throw new Refused("result_too_large", "too much", { limit: 1 });
    return target.make(reader, range, ...rest);
  };
  const roll = (isUnverified: boolean) =>
    rollGroup(rolled.context, { ...target, make }, { skipped: [], isUnverified });
  let before = await roll(false);
  for (let steps = 0; steps < 500 && before.did !== "refused"; steps += 1) before = await roll(false);
  expect(before.did).toBe("refused");
  await rolled.inner.remove([requireLast(before.manifest.segments).id], signal);
  const after = await roll(true);
  expect([after.did, after.manifest.segments.length]).toEqual(["refused", before.manifest.segments.length]);
  const ids = after.manifest.segments.map(({ id }) => id);
  expect((await rolled.inner.read(ids, signal)).map(({ id }) => id).sort()).toEqual(ids.toSorted());
});

test("a retention that reaches before 1970 ends there", async () => {
  const rolled = openRolledSpans();
  const context = { ...rolled.context, now: () => fromMillis(3 * 60 * minute) };
  const target = requireFirst(rolled.targets);
  const roll = () => rollGroup(context, { ...target, retention: 30 * day });
  let last = await roll();
  for (let steps = 0; steps < 50 && last.did !== "idle"; steps += 1) last = await roll();
  expect(last.did).toBe("idle");
  expect(last.manifest.segments[0]?.range.from).toBe(fromMillis(0));
});

describe("the segments of an hour", () => {
  const bytesOfNothing = 200;
  /** The same calls again and again: the sum has hardly more to say than one of them. Returns the hours that were added up. */
  async function rollBusyHours(maxMergedBytes: number) {
    const rolled = openRolledSpans(0, maxMergedBytes);
    for (let time = 0; time < length; time += minute) {
      const fields = { site_id: "a", trace_id: `t${time}`, from: time, to: time + 10 };
      rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_kind: "server" })]);
      const call = { span_id: "n2", parent_span_id: "n1", span_kind: "client" } as const;
      rolled.spans.add([createSpan({ ...fields, ...call, statement: "select 3" })]);
    }
    await rollAll(rolled);
    await expectAnswersOfReading(rolled, whole, { ofActions: 0, withNpo: 0, ofRevisions: 0 }, 0);
    const manifests = await Promise.all(
      rolled.targets.map(async (target) => (await rollGroup(rolled.context, target)).manifest),
    );
    // A range may begin in the middle of an hour.
    for (const { segments } of manifests.filter(({ merged }) => merged.length > 0))
      expect(segments.length).toBeGreaterThan(20);
    return manifests.flatMap(({ merged }) =>
      merged.filter(({ range, bytes }) => range.to > at(0) && bytes > bytesOfNothing),
    );
  }

  test("are added up where their sum is short, however many bytes they have", async () => {
    const hours = await rollBusyHours(10_000);
    expect(hours.length).toBeGreaterThan(0);
  });

  test("stay apart where it is not", async () => {
    expect(await rollBusyHours(100)).toEqual([]);
  });

  test("are not added up again by a roller that starts anew, where their sum was too long", async () => {
    const rolled = openRolledSpans(0, 2_000);
    for (let time = 0; time < length; time += minute) {
      const fields = { site_id: "a", trace_id: `t${time}`, from: time, to: time + 10 };
      rolled.spans.add([createSpan({ ...fields, span_id: "n1", span_name: `GET /${time}` })]);
    }
    await rollAll(rolled);
    const read: string[] = [];
    const store: RollupStore = {
      ...rolled.store,
      read: (ids, own) => {
        read.push(...ids);
        return rolled.store.read(ids, own);
      },
    };
    const steps = await Promise.all(
      listRecent(rolled).map((target) => rollGroup({ ...rolled.context, store }, target, { skipped })),
    );
    expect(new Set(steps.map(({ did }) => did))).toEqual(new Set(["idle"]));
    expect(steps.some(({ manifest }) => manifest.unmergeable.length > 0)).toBe(true);
    expect(read.filter((id) => !id.startsWith("manifest-"))).toEqual([]);
    // What no segment has any more is forgotten.
    for (let place = rolled.spans.listSpans().length - 1; place >= 0; place -= 1) rolled.spans.remove(place);
    await rollAll(rolled);
    for (const target of listRecent(rolled))
      expect((await rollGroup(rolled.context, target, { skipped })).manifest.unmergeable).toEqual([]);
  });
});

test("a day of which short segments and sums are lost is made anew of each of its hours once", async () => {
  const rolled = openRolledSpans();
  const begin = Math.ceil(base / day) * day - base;
  // Some hours have segments of 15 minutes, others of 5 minutes, of which a step makes fewer hours.
  const countPieces = (place: number): number => (place >= 10 && place <= 12 ? 12 : place >= 22 ? 3 : 4);
  const times = Array.from({ length: 24 }, (_, place) =>
    Array.from(
      { length: countPieces(place) },
      (_, n) => begin + place * hour + n * (countPieces(place) === 12 ? 5 : 15) * minute + minute,
    ),
  ).flat();
  for (const time of times) {
    const fields = { site_id: "a", trace_id: `t${time}`, span_id: "n1", span_kind: "server" } as const;
    rolled.spans.add([createSpan({ ...fields, from: time, to: time + 10 })]);
  }
  const actions = rolled.targets.find(({ kind }) => kind === "actions");
  if (actions === undefined) throw new Error("no target");
  const target = { ...actions, retention: 2 * day };
  const skipped = [{ from: at(-1e12), to: at(begin - 1e-6) }];
  const rollAt = (time: number, over = {}) =>
    rollGroup({ ...rolled.context, now: () => at(time) }, target, { skipped, ...over });
  // Each while, as spans come: so the hours are cut into short segments.
  const end = begin + day + 8 * hour;
  for (let time = begin + 10 * minute; time < end; time += 5 * minute) await rollAt(time);
  const { manifest } = await rollAt(end);
  const placeOf = ({ range }: StoredSegment): number => Number((range.from - at(begin)) / 3_600_000_000_000n);
  const isOf = (segment: StoredSegment, places: readonly number[]): boolean =>
    segment.range.from >= at(begin) && places.includes(placeOf(segment));
  const isWholeDay = ({ range }: StoredSegment): boolean => range.to - range.from > 3_600_000_000_000n;
  expect(manifest.merged.filter(isWholeDay)).toHaveLength(1);
  const lost = [
    ...manifest.segments.filter((segment) => isOf(segment, [4, 5, 10, 11, 12, 22, 23])),
    ...manifest.merged.filter((segment) => isWholeDay(segment) || isOf(segment, [4, 5])),
  ];
  await rolled.inner.remove(
    lost.map(({ id }) => id),
    signal,
  );
  const range = { from: at(begin), to: at(begin + day - 1e-6) };
  const query = { sources: [rolled.sources.a] as const, range, namespaces: [], revision: undefined };
  let last = await rollAt(end, { isUnverified: true });
  for (let steps = 0; steps < 100 && last.did !== "idle"; steps += 1) {
    const found = await rolled.analytics.actions(
      { ...query, action: undefined, budget: createBudget(100_000) },
      signal,
    );
    expect(found.map(({ count }) => count)).toEqual([times.length]);
    last = await rollAt(end);
  }
  expect(last.manifest.merged.filter(isWholeDay)).toHaveLength(1);
});
