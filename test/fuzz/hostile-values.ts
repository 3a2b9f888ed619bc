// Hostile values as JSON text. Text can hold what a JavaScript value cannot: numbers beyond a double, duplicate keys.
import { hostileTexts } from "../conformance/metrics/injection-texts.ts";
import type { Draw } from "./seeded-generator.ts";

/** JSON text that stands in a value's place. */
class Raw {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

const numbers = [
  "0",
  "-0",
  "-1",
  "1",
  "0.5",
  "1e3",
  "10001",
  "2147483648",
  "4294967296",
  "1e15",
  "1e-400",
  "9007199254740993",
  "-9007199254740993",
  "1e308",
  "1e999",
  "-1e999",
  "1".repeat(400),
  `0.${"3".repeat(400)}`,
];
export const absurdTimes = [
  "",
  "now",
  "0",
  "1768471200",
  "NaN",
  "Infinity",
  "2026-02-30T00:00:00Z",
  "2025-02-29T00:00:00Z",
  "2026-01-15T10:00:00",
  "2026-01-15",
  "2026-01-15T24:00:00Z",
  "2026-01-15T23:59:60Z",
  "2026-13-01T00:00:00Z",
  "0000-01-01T00:00:00Z",
  "0001-01-01T00:00:00+23:59",
  "9999-12-31T23:59:59.999999999Z",
  "9999-12-31T23:59:59-00:01",
  "1969-12-31T23:59:59.999999999Z",
  "1970-01-01T00:00:00Z",
  "2262-04-11T23:47:16.854775807Z",
  "2262-04-11T23:47:16.854775808Z",
  "2262-04-12T00:00:00Z",
  "3000-01-01T00:00:00Z",
  "-000001-01-01T00:00:00Z",
  "+275760-09-13T00:00:00.000Z",
  "2026-01-15T10:00:00.0000000001Z",
  "2026-01-15T10:00:00+24:00",
  "2026-01-15t10:00:00z",
  "2026-01-15 10:00:00Z",
  "２０２６-01-15T10:00:00Z",
  `2026-01-15T10:00:00.${"1".repeat(9_000)}Z`,
  "Time",
  "Duration",
  "2026-01-15T11:59:59.123456789Z",
];
const keys = [
  "__proto__",
  "constructor",
  "prototype",
  "toString",
  "hasOwnProperty",
  "then",
  "toJSON",
  "length",
  "",
  "0",
];
const polluted = '{"polluted":1}';
const objects = [
  "null",
  "true",
  "false",
  "[]",
  "{}",
  "[[]]",
  "[null]",
  '[""]',
  "[0]",
  '{"a":1}',
  ...keys.map((key) => `{${JSON.stringify(key)}:${polluted}}`),
  `{"constructor":{"prototype":${polluted}}}`,
  `{"__proto__":{"__proto__":${polluted},"length":1e9}}`,
  '{"length":4294967295}',
];
const depths = [60, 1_000, 100_000];

export function hostileText(draw: Draw): string {
  switch (draw.below(5)) {
    case 0:
      return draw.pick(absurdTimes) ?? "";
    case 1:
      return draw.pick(["(", "a=1 OR ", "\\ ", "*", "é", '"', "\n"]).repeat(10 ** draw.below(5));
    case 2:
      return draw
        .some(20, () => String.fromCharCode(draw.below(draw.chance(0.5) ? 128 : 0x1_00_00)))
        .join("");
    default:
      return draw.pick(hostileTexts) ?? "";
  }
}

export function hostileKey(draw: Draw): string {
  return draw.chance(0.7) ? (draw.pick(keys) ?? "") : hostileText(draw);
}

export function hostileValue(draw: Draw): Raw {
  switch (draw.below(7)) {
    case 0:
      return new Raw(draw.pick(numbers) ?? "");
    case 1:
      return new Raw(draw.pick(objects) ?? "");
    case 2: {
      const [depth = 0, [open = "", close = ""] = []] = [
        draw.pick(depths),
        draw.pick([
          ["[", "]"],
          ['{"a":', "}"],
          ['{"__proto__":', "}"],
        ]),
      ];
      return new Raw(`${open.repeat(depth)}1${close.repeat(depth)}`);
    }
    case 3:
      return new Raw(`[${draw.some(2_000, (at) => String(at)).join(",")}]`);
    default:
      return new Raw(JSON.stringify(hostileText(draw)));
  }
}

/** A value with one to three of its parts replaced, left out, doubled or renamed. */
export function mutate(value: unknown, draw: Draw): unknown {
  let mutated = value;
  for (let left = 1 + draw.below(3); left > 0; left--) {
    let at = draw.below(countNodes(mutated));
    const visit = (node: unknown): unknown => {
      if (at-- === 0) return hostileValue(draw);
      if (Array.isArray(node)) return node.map(visit);
      if (node instanceof Members)
        return new Members(node.entries.map(([key, child]) => [key, visit(child)]));
      return node;
    };
    const spoil = (node: unknown): unknown => {
      if (Array.isArray(node)) return node.map(spoil);
      if (!(node instanceof Members)) return node;
      const entries = node.entries.map(([key, child]) => [key, spoil(child)] as const);
      if (entries.length === 0 || !draw.chance(0.3)) return new Members(entries);
      const index = draw.below(entries.length);
      const [key = "", child] = entries[index] ?? [];
      switch (draw.below(4)) {
        case 0:
          return new Members(entries.toSpliced(index, 1));
        case 1:
          return new Members([...entries, [key, hostileValue(draw)]]);
        case 2:
          return new Members(entries.with(index, [hostileKey(draw), child]));
        default:
          return new Members([...entries, [hostileKey(draw), hostileValue(draw)]]);
      }
    };
    mutated = draw.chance(0.6) ? visit(mutated) : spoil(mutated);
  }
  return mutated;
}

/** An object whose keys may stand twice. */
export class Members {
  readonly entries: readonly (readonly [string, unknown])[];
  constructor(entries: readonly (readonly [string, unknown])[]) {
    this.entries = entries;
  }
}

function countNodes(value: unknown): number {
  const children = Array.isArray(value)
    ? value
    : value instanceof Members
      ? value.entries.map(([, child]) => child)
      : [];
  return 1 + children.reduce((sum: number, child) => sum + countNodes(child), 0);
}

export function print(value: unknown): string {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(print).join(",")}]`;
  if (value instanceof Members) {
    return `{${value.entries.map(([key, child]) => `${JSON.stringify(key)}:${print(child)}`).join(",")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

/** The text's bytes, cut, with some exchanged, or with some that are no UTF-8. */
export function spoilBytes(text: string, draw: Draw): Uint8Array {
  const bytes = new TextEncoder().encode(text);
  if (draw.chance(0.3)) return bytes.slice(0, draw.below(bytes.length + 1));
  const spoiled = [...bytes.slice(0, 20_000)];
  for (let left = 1 + draw.below(4); left > 0; left--) {
    const piece = draw.pick([
      [0xff],
      [0xc0, 0x80],
      [0xed, 0xa0, 0x80],
      [0xf4, 0x90, 0x80, 0x80],
      [0],
      [draw.below(256)],
    ]);
    spoiled.splice(draw.below(spoiled.length + 1), draw.below(2), ...piece);
  }
  return Uint8Array.from(spoiled);
}
