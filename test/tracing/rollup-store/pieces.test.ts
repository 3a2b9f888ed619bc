// Which segments are added up, and which take the place of others.
import { describe, expect, test } from "vitest";
import { day, hour, type Instant, minute } from "#src/core/time.ts";
import { findDayToMerge, findHourToMerge, replaceOldSegments } from "#src/tracing/rollup-store/pieces.ts";
import { type StoredSegment, selectSegments } from "#src/tracing/rollups/stored-cover.ts";

/** A day that is over, with segments of five minutes but for an hour that is one. Times are milliseconds since its begin. */
const begin = BigInt(Date.UTC(2026, 0, 15)) * 1_000_000n;
const at = (millis: number): Instant => (begin + BigInt(millis) * 1_000_000n) as Instant;
const create = (from: number, length: number): StoredSegment => ({
  range: { from: at(from), to: (at(from + length) - 1n) as Instant },
  id: `${from}+${length}`,
  bytes: 100,
  origins: [],
});
const cut = (from: number, to: number, length: number): readonly StoredSegment[] =>
  Array.from({ length: (to - from) / length }, (_, n) => create(from + n * length, length));
const segments = [...cut(0, 3 * hour, 5 * minute), create(3 * hour, hour), ...cut(4 * hour, day, 5 * minute)];
const never = (): boolean => false;
const list = (all: readonly StoredSegment[]): readonly string[] => all.map(({ id }) => id);

describe("a day of segments", () => {
  test("is added up hour by hour, the newest first, and then as a whole", () => {
    const merged: StoredSegment[] = [];
    const now = at(2 * day);
    for (let merge = findHourToMerge({ segments, merged }, now, never); merge !== undefined; ) {
      expect(merge.segments).toHaveLength(12);
      merged.push({ ...create(0, hour), range: merge.range, id: `hour ${merged.length}` });
      merge = findHourToMerge({ segments, merged }, now, never);
    }
    expect(merged).toHaveLength(23);
    expect(merged[0]?.range).toEqual(create(day - hour, hour).range);
    const whole = findDayToMerge({ segments, merged }, now, never);
    expect(whole?.range).toEqual(create(0, day).range);
    expect(whole?.segments).toHaveLength(24);
    const added = [...merged, create(0, day)];
    expect(findDayToMerge({ segments, merged: added }, now, never)).toBeUndefined();
    expect(list(selectSegments({ segments, merged: added }, { from: at(0), to: at(day) }))).toEqual([
      `0+${day}`,
    ]);
  });

  test("has no hour that is not over for an hour, or that stays apart", () => {
    const find = (now: number, isApart: () => boolean) =>
      findHourToMerge({ segments, merged: [] }, at(now), isApart)?.range;
    expect(find(day + hour + 1, never)).toEqual(create(day - hour, hour).range);
    expect(find(day + hour - 1, never)).toEqual(create(day - 2 * hour, hour).range);
    expect(find(day + 2 * hour, () => true)).toBeUndefined();
  });

  test("is answered from the longest that lie in a range, with short ones at its ends", () => {
    const merged = [...cut(0, 3 * hour, hour), ...cut(4 * hour, day, hour)];
    const range = { from: at(50 * minute), to: (at(4 * hour + 10 * minute) - 1n) as Instant };
    expect(list(selectSegments({ segments, merged }, range))).toEqual(
      list([
        ...cut(50 * minute, hour, 5 * minute),
        ...cut(hour, 4 * hour, hour),
        ...cut(4 * hour, 4 * hour + 10 * minute, 5 * minute),
      ]),
    );
  });

  test("is added up only of hours that follow one another", () => {
    const find = (hours: readonly StoredSegment[]) =>
      findDayToMerge({ segments: [], merged: hours }, at(2 * day), never)?.range;
    const hours = cut(0, day, hour);
    expect(find(hours)).toEqual(create(0, day).range);
    expect(find([...hours.slice(0, -2), ...hours.slice(4, 6)])).toBeUndefined();
    expect(find([...hours, ...hours.slice(4, 5)])).toBeUndefined();
    expect(find(hours.slice(1))).toBeUndefined();
  });

  test("keeps short segments for eight days; then hours take their place", () => {
    const merged = [...cut(4 * hour, day, hour), create(0, day)];
    const early = { segments, merged };
    expect(replaceOldSegments(early, at(8 * day + 4 * hour))).toEqual(early);
    const late = replaceOldSegments(early, at(8 * day + 6 * hour));
    expect(list(late.segments)).toEqual(
      list([
        ...cut(0, 3 * hour, 5 * minute),
        create(3 * hour, hour),
        ...cut(4 * hour, 6 * hour, hour),
        ...cut(6 * hour, day, 5 * minute),
      ]),
    );
    expect(list(late.merged)).toEqual(list([...cut(6 * hour, day, hour), create(0, day)]));
  });
});
