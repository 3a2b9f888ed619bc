// Figures over time, stacks, the map and published charts: nothing is counted twice, lost or put over something else.
import { Graph, layout } from "@dagrejs/dagre";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { layOutMap, nodeSize } from "#src/console/map/map-layout.js";
import { dropNonPositive, stackValues } from "#src/console/metrics/stack.js";
import { generateVisualId, printVisual } from "#src/console/metrics/visual-yaml.js";
import { readPieces, splitRange } from "#src/console/tables/pieces.js";
import { parseInstant } from "#src/core/time.ts";
import { readVisual } from "#src/visuals/visual.ts";

const millis = fc.integer({ min: Date.UTC(2020, 0, 1), max: Date.UTC(2030, 0, 1) });
const print = (at: number) => new Date(at).toISOString();

describe("the pieces of a range", () => {
  test("hold every nanosecond of it once", () => {
    fc.assert(
      fc.property(millis, fc.nat(10_000_000), fc.integer({ min: 1, max: 30 }), (start, length, count) => {
        const bounds = { from: print(start), to: print(start + length) };
        const pieces = splitRange(bounds, count);
        expect(pieces.length).toBeLessThanOrEqual(count);
        expect(pieces[0]?.from).toBe(bounds.from);
        expect(pieces.at(-1)?.to).toBe(bounds.to);
        for (const [at, piece] of pieces.entries()) {
          const [from = 0n, to = 0n] = [parseInstant(piece.from), parseInstant(piece.to)];
          expect(from <= to).toBe(true);
          const before = pieces[at - 1];
          if (before !== undefined) expect(from).toBe((parseInstant(before.to) ?? 0n) + 1n);
        }
      }),
    );
  });

  test("are read two at a time, and answered in order", async () => {
    let [open, most] = [0, 0];
    const pieces = splitRange({ from: print(0), to: print(60_000) }, 7);
    const answers = await readPieces(pieces, async ({ from }) => {
      open += 1;
      most = Math.max(most, open);
      await Promise.resolve();
      open -= 1;
      return from;
    });
    expect(answers).toEqual(pieces.map(({ from }) => from));
    expect(most).toBe(2);
  });
});

describe("a stack", () => {
  const value = fc.option(fc.integer({ min: 0, max: 100 }), { nil: null });

  test("is as high as what is shown, and each series as thick as its value", () => {
    const series = fc.array(fc.array(value, { minLength: 4, maxLength: 4 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(series, fc.array(fc.nat(4)), (values, hide) => {
        const hidden = new Set(hide);
        const tops = stackValues(values, hidden);
        for (const index of [0, 1, 2, 3]) {
          let below = 0;
          for (const [at, one] of values.entries()) {
            const [own, top] = [one[index] ?? null, tops[at]?.[index] ?? null];
            if (hidden.has(at) || own === null) expect(top).toBeNull();
            else expect((top ?? 0) - below).toBe(own);
            below = top ?? below;
          }
        }
      }),
    );
  });

  test("of a logarithm leaves out what is not above zero", () => {
    expect(dropNonPositive([1, 0, -2, null, 0.5])).toEqual([1, null, null, null, 0.5]);
  });
});

describe("the map", () => {
  const edge = (service: string, count: number) => ({
    service,
    count,
    error_count: 0,
    mean: 1,
    p_90: 1,
    p_95: 1,
  });

  test("of 100 services shows each once, callers before the site and others behind it, none over another", () => {
    const names = Array.from({ length: 100 }, (_, at) => `service-${at}`);
    const [up, inside, down] = [names.slice(0, 30), names.slice(30, 50), names.slice(50)];
    const edges = {
      upstream: up.map((name, at) => edge(name, at + 1)),
      internal: inside.map((name, at) => edge(name, at + 1)),
      // Calls and is called.
      downstream: [...down, up[0] ?? ""].map((name, at) => edge(name, at + 1)),
    };
    const map = layOutMap({ Graph, layout } as unknown as Parameters<typeof layOutMap>[0], "shop", edges);
    expect(map.nodes).toHaveLength(102);
    expect(map.edges).toHaveLength(101);
    const site = map.nodes.find(({ side }) => side === "site");
    for (const { side, x, y } of map.nodes) {
      expect(x - nodeSize.width / 2).toBeGreaterThanOrEqual(0);
      expect(y + nodeSize.height / 2).toBeLessThanOrEqual(map.height);
      if (side === "upstream") expect(x).toBeLessThan(site?.x ?? 0);
      else if (side !== "site") expect(x).toBeGreaterThan(site?.x ?? 0);
    }
    for (const [at, one] of map.nodes.entries())
      for (const other of map.nodes.slice(at + 1)) {
        const isApart =
          Math.abs(one.x - other.x) >= nodeSize.width || Math.abs(one.y - other.y) >= nodeSize.height;
        expect(isApart, `${one.name} and ${other.name}`).toBe(true);
      }
  });
});

test("a published chart is read back by the server as it was shown", () => {
  const text = fc.string({
    unit: fc.oneof(fc.constantFrom(..."\"':#-{}[]\n\\ "), fc.string({ minLength: 1, maxLength: 1 })),
    minLength: 1,
    maxLength: 20,
  });
  const range = fc.oneof(
    fc.constantFrom({ last: "15m" }, { last: "7d" }),
    fc.constant({ from: print(0), to: print(60_000) }),
  );
  fc.assert(
    fc.property(text, text, range, (title, tag, shown) => {
      const select = [{ name: title, tags: { [tag]: "*" }, field: "gauge" }];
      const id = generateVisualId();
      const file = {
        id,
        title,
        type: "line" as const,
        site: "shop",
        range: shown,
        resolution: "HOURLY",
        limit: 24,
        select,
      };
      const visual = readVisual(printVisual(file), "a.yaml", () => []);
      expect([visual.id, visual.title, visual.site, visual.type]).toEqual([id, title, "shop", "line"]);
      expect(visual.query).toMatchObject({ select, resolution: "HOURLY", limit: 24 });
    }),
  );
});
