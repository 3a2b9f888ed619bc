// The events of a tail as those get them who do not send its text.
import { describe, expect, test } from "vitest";
import { Refused } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import {
  printEnd,
  printHeartbeat,
  printLines,
  printOpening,
  printRetry,
  resumedEvent,
  type TailEnd,
} from "#src/tail/sse.ts";
import { readTailEvents } from "#src/tail/tail-events.ts";
import { countTurns } from "../support/event-loop-turns.ts";
import { base } from "./harness.ts";

const { signal } = new AbortController();

async function read(texts: readonly string[]) {
  const chunks = texts[Symbol.iterator]();
  const positions: string[] = [];
  const body = { next: async () => chunks.next(), cancel: async () => {}, signal };
  const events = await readTailEvents(body, (id) => positions.push(id));
  const opening = [...positions];
  const read = [];
  for await (const event of events) read.push(event);
  return { read, positions, opening };
}

const makeLines = (count: number): readonly LogLine[] =>
  Array.from({ length: count }, (_, n) => ({
    id: `l${n}`,
    time: fromMillis(base + n),
    source_id: "app",
    severity: "info" as const,
    message: "a\n\nevent: line\nid: forged\ndata: {}\n\n",
    json: "{}",
  }));

describe("events of a tail", () => {
  test("have at most a hundred lines each, whatever their text is, and the last id of what is before them", async () => {
    const texts = [printOpening("a"), printLines(makeLines(250), "b"), printHeartbeat("c"), resumedEvent];
    const { read: events, positions, opening } = await read(texts);
    const ids = events.map((event) =>
      "lines" in event ? event.lines.map((line) => "id" in line && line.id) : [event],
    );
    expect(ids.map(({ length }) => length)).toEqual([100, 100, 50, 0]);
    expect(ids.flat()).toEqual(makeLines(250).map(({ id }) => id));
    expect(opening).toEqual(["a"]);
    expect([...new Set(positions)]).toEqual(["a", "b", "c"]);
  });

  test("have turns of the event loop of their own", async () => {
    expect(await countTurns(() => read([printLines(makeLines(1_000), "a")]))).toBeGreaterThanOrEqual(10);
  });

  const refused = new Refused("not_supported_by_backend", "no", { backend: "elk", feature: "x" });
  test.each<[TailEnd, object]>([
    [{ reason: "slow" }, { message: expect.stringContaining("slowly"), extensions: { end: "slow" } }],
    [{ reason: "expired" }, { message: "The token has expired", extensions: { end: "expired" } }],
    [
      { reason: "draining" },
      { message: expect.stringContaining("shut down"), extensions: { end: "draining" } },
    ],
    [
      { reason: "reloaded" },
      { message: expect.stringContaining("changed"), extensions: { end: "reloaded" } },
    ],
    [
      { reason: "refused", error: refused },
      {
        message: "no",
        extensions: { status: 422, slug: refused.slug, details: refused.details, end: "refused" },
      },
    ],
  ])("tell why it has ended: $reason", async (end, failure) => {
    // Also of one that ends before it has begun.
    for (const before of [[], [printOpening("a")]]) {
      expect((await read([...before, printEnd(end, "b")])).read).toEqual([{ failure }]);
    }
  });

  test("end without a word where it is complete, and tell of sources that fail", async () => {
    const texts = [
      printRetry("A data source cannot be reached", 2_000),
      printEnd({ reason: "complete" }, "b"),
    ];
    const message = "A data source cannot be reached";
    expect((await read(texts)).read).toEqual([
      { failure: { message, extensions: { status: 500, retry_in_ms: 2_000 } } },
    ]);
  });
});
