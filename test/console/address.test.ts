// Every state of a view has an address, and the address is that state.
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  aggregations,
  chartStyles,
  eventKinds,
  podStates,
  printAddress,
  rangeLengths,
  readAddress,
  readMillisBound,
  resolutions,
  resolveRange,
  type ViewName,
} from "#src/console/base/address.js";

const text = fc
  .oneof(
    fc.string({ unit: fc.constantFrom(..."ab =&#?%+/,:;\"\\'<>()\n\u202e😀".split("")), maxLength: 12 }),
    fc.string({ unit: "grapheme", maxLength: 12 }),
  )
  .map((value) => value.toWellFormed());
const texts = fc.array(text, { maxLength: 4 });
const instant = fc
  .date({ min: new Date(0), max: new Date("2200-01-01T00:00:00Z"), noInvalidDate: true })
  .map((date) => date.toISOString());
const range = fc.oneof(
  fc.constantFrom(...Object.keys(rangeLengths)).map((last) => ({ last })),
  fc.record({ from: instant, to: instant }),
);
const states: Readonly<Record<ViewName, fc.Arbitrary<object>>> = {
  logs: fc.record({
    site: text,
    query: text,
    sources: texts,
    range,
    order: fc.constantFrom("ASC", "DESC"),
    live: fc.boolean(),
    columns: texts,
    line: text,
  }),
  traces: fc.record({
    site: text,
    kind: fc.constantFrom("performance", "errors"),
    query: text,
    namespace: text,
    action: text,
    min: fc.oneof(fc.nat(999_999_999), fc.constant(0.5)),
    range,
    order: fc.constantFrom("newest", "slowest"),
    digest: text,
    below: fc.nat(999_999_999),
  }),
  trace: fc.record({ site: text, id: text, span: text, open: text, other: text }),
  metrics: fc.record({
    site: text,
    name: text,
    field: text,
    tags: fc.dictionary(fc.oneof(text, fc.constant("__proto__")), text, {
      maxKeys: 4,
      noNullPrototype: true,
    }),
    aggregation: fc.constantFrom(...aggregations),
    resolution: fc.constantFrom(...resolutions),
    range,
    also: texts,
    style: fc.constantFrom(...chartStyles),
    scale: fc.constantFrom("linear", "log"),
  }),
  errors: fc.record({ site: text, range, sort: text }),
  actions: fc.record({ site: text, range, sort: text }),
  slow: fc.record({ site: text, kind: fc.constantFrom("any", ...eventKinds), range, sort: text }),
  map: fc.record({ site: text, range }),
  deploys: fc.record({ site: text, range, sort: text }),
  visuals: fc.record({ site: text, id: text }),
  checkins: fc.record({ site: text, schedule: text, zone: text }),
  kubernetes: fc.record({ site: text, query: text, state: fc.constantFrom(...podStates), range, pod: text }),
};

test.each(Object.entries(states))(
  "%s: what is printed is read back, and printed alike",
  (view, arbitrary) => {
    fc.assert(
      fc.property(arbitrary, (state) => {
        const name = view as ViewName;
        const printed = printAddress(name, state);
        expect(readAddress(printed)).toEqual({ view, state });
        expect(printAddress(name, readAddress(printed).state)).toBe(printed);
        // As a browser would have it.
        expect(new URL(printed, "http://readout/").hash).toBe(printed);
      }),
    );
  },
);

test("omits parameters at their default", () => {
  expect(printAddress("logs")).toBe("#/logs");
  expect(printAddress("logs", { site: "shop", range: { last: "1h" }, order: "DESC" })).toBe(
    "#/logs?site=shop",
  );
});

test.each([
  ["", "logs"],
  ["#", "logs"],
  ["#main", "logs"],
  ["#/nothing?site=a", "logs"],
  ["#/constructor", "logs"],
  ["#/traces?kind=__proto__&min=-1&range=1y&order=", "traces"],
  ["#/metrics?resolution=SECONDLY&range=2026-01-01T00:00:00Z", "metrics"],
])("%j shows a view at its defaults", (hash, view) => {
  expect(readAddress(hash)).toEqual({ view, state: readAddress(`#/${view}`).state });
});

test("bounds a range that ends now to the second", () => {
  const now = Date.UTC(2026, 0, 31, 12, 0, 0, 250);
  expect(resolveRange({ last: "15m" }, now)).toEqual({
    from: "2026-01-31T11:45:01Z",
    to: "2026-01-31T12:00:01Z",
  });
});

test("a typed bound is what its address has", () => {
  const typed = fc.oneof(fc.double(), fc.constantFrom(40.1234567, 1e-7, 1e21, -5, 999_999_999.9)).map(String);
  fc.assert(
    fc.property(typed, (text) => {
      const min = readMillisBound(text);
      const range = { last: "1h" } as const;
      expect(readAddress(printAddress("traces", { min, range })).state).toMatchObject({ min });
    }),
  );
  expect(["40.1234567", "", "x", "-1", "1e-7"].map(readMillisBound)).toEqual([40.123457, 0, 0, 0, 0]);
});
