// Work that several kinds of figures share: only of readers that hold one moment.
import { expect, test } from "vitest";
import { formatWorkKey, shareWork, startSharing } from "#src/tracing/rollup-store/shared-work.ts";
import { createArrayReader } from "../../conformance/trace-fixture.ts";
import { at, createSource } from "../span-builder.ts";

function createCounter() {
  let made = 0;
  return () => {
    made += 1;
    return made;
  };
}

test("is made each time from a reader that shares nothing, whose source may change", () => {
  const [reader, make] = [createArrayReader([]), createCounter()];
  const work = { name: "calls", key: "k" };
  expect([shareWork(reader, work, make), shareWork(reader, work, make)]).toEqual([1, 2]);
});

test("is made once for each key, of which the last is kept, for each name and each reader", () => {
  const [one, other] = [createArrayReader([]), createArrayReader([])];
  for (const reader of [one, other]) startSharing(reader);
  const make = createCounter();
  const share = (reader: typeof one, name: string, key: string) => shareWork(reader, { name, key }, make);
  expect(share(one, "calls", "a")).toBe(1);
  startSharing(one);
  expect(share(one, "calls", "a")).toBe(1);
  expect(share(one, "events", "a")).toBe(2);
  expect(share(other, "calls", "a")).toBe(3);
  expect(share(one, "calls", "b")).toBe(4);
  expect(share(one, "calls", "a")).toBe(5);
});

test("is told apart by sources, by their sides and by ranges", () => {
  const [a, b] = [createSource("a"), createSource("b")];
  const hour = { from: at(0), to: at(3_600_000) };
  const keys = [
    formatWorkKey([[a], [b]], [hour]),
    formatWorkKey([[b], [a]], [hour]),
    formatWorkKey([[a, b]], [hour]),
    formatWorkKey([[a], [b]], [{ ...hour, to: at(1) }]),
    formatWorkKey([[a], [b]], [hour, hour]),
  ];
  expect(new Set(keys).size).toBe(keys.length);
  expect(formatWorkKey([[createSource("a")], [b]], [{ ...hour }])).toBe(keys[0]);
});
