// What is read from outside and shown: numbers in their own spelling, events cut anywhere, and nothing invisible.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createEventReader, isTailSourceFailing } from "#src/console/base/events.js";
import {
  formatAge,
  formatBytes,
  formatDuration,
  formatNumber,
  formatRange,
  formatShortTime,
  splitInvisible,
  splitUntrusted,
} from "#src/console/base/format.js";
import { findText, isSpelt, readJson, toScalarText } from "#src/console/base/json.js";

describe("the JSON reader of the console", () => {
  test.each(["200.0", "9007199254740993", "1e3", "-0", "0.1", "12", "1E400", "true"])(
    "%s is as it is written",
    (spelling) => {
      expect(toScalarText(readJson(spelling))).toBe(spelling);
    },
  );

  test("equals JSON.parse but for the spelling of numbers", () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        const plain = (value: unknown): unknown => {
          if (isSpelt(value)) return Number(value.spelling);
          if (Array.isArray(value)) return value.map(plain);
          if (typeof value !== "object" || value === null) return value;
          return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
        };
        expect(plain(readJson(text))).toEqual(JSON.parse(text));
      }),
    );
  });

  test("keeps an object that looks like a spelt number", () => {
    const value = readJson('{"spelling":"1"}');
    expect(isSpelt(value)).toBe(false);
    expect(toScalarText(value)).toBeUndefined();
  });

  test("follows own keys only", () => {
    const value = readJson('{"trace":{"id":"abc"},"n":1}');
    expect(findText(value, "trace", "id")).toBe("abc");
    expect(findText(value, "constructor", "name")).toBeUndefined();
    expect(findText(value, "n")).toBeUndefined();
  });
});

describe("the event reader of the console", () => {
  const stream =
    'retry: 1000\nid: a\n\nevent: line\nid: b\ndata: {"x":\ndata: 1}\n\n:\nid: c\n\nevent: resumed\ndata:{}\n\ndata\n\nevent: open\ndata: never ended\n';
  const expected = [
    { event: "line", data: '{"x":\n1}' },
    { event: "resumed", data: "{}" },
    { event: "message", data: "" },
  ];

  test.each(["\n", "\r\n", "\r"])(
    "are the same wherever the stream is cut, with lines that end in %j",
    (ending) => {
      const text = stream.replaceAll("\n", ending);
      fc.assert(
        fc.property(fc.array(fc.nat(text.length), { maxLength: 6 }), (cuts) => {
          const read = createEventReader();
          const places = [0, ...cuts.toSorted((a, b) => a - b), text.length];
          const pieces = places.slice(1).map((end, at) => read(text.slice(places[at], end)));
          expect(pieces.flatMap(({ events }) => events)).toEqual(expected);
          expect(pieces.at(-1)?.id).toBe("c");
        }),
      );
    },
  );

  test("applies an id at once, with or without data", () => {
    const read = createEventReader();
    expect(read("id: 1\n\n")).toEqual({ events: [], id: "1" });
    expect(read(":\n\n")).toEqual({ events: [], id: "1" });
  });

  test("shows a failing source until an event other than a heartbeat arrives", () => {
    const events = ["", "line", "retry", "", "", "resumed", "", "retry", "line"];
    let fails = false;
    const failing = events.map((event) => {
      fails = isTailSourceFailing(fails, event === "" ? [] : [{ event, data: "{}" }]);
      return fails;
    });
    expect(failing).toEqual([false, false, true, true, true, false, false, true, false]);
  });
});

describe("untrusted text", () => {
  const seen = {
    inLine: /[\p{Cc}\u202a-\u202e\u2066-\u2069\u200b]/u,
    inText: /(?![\n\t])[\p{Cc}\u202a-\u202e\u2066-\u2069\u200b]/u,
  };
  test("spells out invisible characters and keeps all others", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.boolean(), (text, breaks) => {
        const pieces = splitInvisible(text.toWellFormed(), { breaks });
        for (const piece of pieces) {
          if (piece.spelt) expect(piece.text).toMatch(/^(\\[ntre]|U\+[0-9A-F]{4,6})+$/);
          else expect(piece.text).not.toMatch(breaks ? seen.inText : seen.inLine);
        }
      }),
    );
    expect(splitInvisible("\r\u202e", { breaks: true })).toEqual([{ text: "\\rU+202E", spelt: true }]);
    expect(splitInvisible("a\u202eb\tc\u001b[31m", { breaks: true }).map(({ text }) => text)).toEqual([
      "a",
      "U+202E",
      "b\tc",
      "\\e",
      "[31m",
    ]);
    expect(splitInvisible("👩\u200d🚒 नमस्ते", { breaks: false })).toEqual([
      { text: "👩\u200d🚒 नमस्ते", spelt: false },
    ]);
  });

  test("is shown in few pieces, whatever it holds, and whole where it may break", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("\u001b", "\r", "ab", "\u{1f600}", "needle", "\n"), { maxLength: 3_000 }),
        fc.boolean(),
        (words, breaks) => {
          const text = words.join("");
          const parts = splitUntrusted(text, { breaks, sought: ["needle"], most: 1_000 });
          const shown = parts.flatMap(({ pieces }) => pieces.map((piece) => piece.text)).join("");
          expect(parts.flatMap(({ pieces }) => pieces).length).toBeLessThanOrEqual(501);
          const whole = splitInvisible(text, { breaks }).map((piece) => piece.text);
          if (breaks || text.length <= 1_000) expect(shown).toBe(whole.join(""));
          else expect(whole.join("").startsWith(shown.slice(0, -1))).toBe(true);
          for (const { isHit, pieces } of parts)
            if (isHit)
              expect(pieces).toEqual([{ text: expect.stringMatching(/^(?:needle)+$/), spelt: false }]);
        },
      ),
    );
    const codes = "\u001b[m".repeat(100_000);
    const [{ pieces } = { pieces: [] }, ...others] = splitUntrusted(codes, { breaks: true });
    expect([pieces.length, others.length]).toEqual([500, 1]);
    expect(splitUntrusted("a\u{1f600}b", { most: 2 })).toEqual([
      { isHit: false, pieces: [{ text: "a…", spelt: false }] },
    ]);
  });

  test.each([
    [formatDuration(0.0123), "12 µs"],
    [formatDuration(8.456), "8.46 ms"],
    [formatDuration(999.4), "999 ms"],
    [formatDuration(1_500), "1.50 s"],
    [formatDuration(125_000), "2 min 5 s"],
    [formatDuration(119_700), "2 min 0 s"],
    [formatNumber(5_726_623_061), "5,726,623,061"],
    [formatNumber(1_234_567.89), "1,234,568"],
    [formatNumber(-12_345.678), "-12,345.7"],
    [formatNumber(0.123456789), "0.123457"],
    [formatNumber(2), "2"],
    [formatAge(93_784), "1 d 2 h"],
    [formatAge(59), "59 s"],
    [formatBytes(0), "0 B"],
    [formatBytes(1_536), "1.5 KiB"],
    [formatBytes(107_374_182_400), "100 GiB"],
    [formatShortTime("2026-01-31T12:00:00.123Z"), "01-31 12:00:00.123"],
    [formatShortTime("2026-01-31T12:00:00Z"), "01-31 12:00:00"],
    [formatRange("2026-01-31T12:00:00Z", "2026-01-31T13:00:00Z"), "2026-01-31 12:00:00 – 13:00:00 UTC"],
    [
      formatRange("2026-01-30T12:00:00Z", "2026-01-31T13:00:00Z"),
      "2026-01-30 12:00:00 – 2026-01-31 13:00:00 UTC",
    ],
  ])("%s", (printed, expected) => {
    expect(printed).toBe(expected);
  });
});
