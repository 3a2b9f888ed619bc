// An answer in pieces leaves the event loop to others after some of them, whoever reads it.
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { toExchange } from "#src/http/request.ts";
import { toStreamedBody, writeAnswer } from "#src/http/response.ts";

/** Holds as much as it may, or nothing because the system takes all at once. */
class Keen extends ServerResponse {
  constructor(full: boolean) {
    super(new IncomingMessage(new Socket()));
    if (full) Object.defineProperty(this, "writableLength", { get: () => this.#held() });
  }
  #held(): number {
    process.nextTick(() => this.emit("drain"));
    return 262_144;
  }
  override write(): boolean {
    return true;
  }
}

/** Takes nothing, and is closed in the turn after it was written to. */
class Leaving extends ServerResponse {
  constructor() {
    super(new IncomingMessage(new Socket()));
    Object.defineProperty(this, "writableLength", { get: () => 262_144 });
  }
  override write(): boolean {
    setImmediate(() => this.destroy());
    return false;
  }
  override destroy(): this {
    this.destroyed = true;
    this.emit("close");
    return this;
  }
}

test("a client that leaves while nothing more is taken ends the reading", async () => {
  let ended = false;
  async function* pieces() {
    try {
      for (;;) yield "x".repeat(65_536);
    } finally {
      ended = true;
    }
  }
  const body = toStreamedBody(pieces(), new AbortController().signal);
  const exchange = toExchange(new Request("http://readout/"));
  await writeAnswer({ status: 200, headers: {}, body }, exchange, new Leaving(), false);
  expect(ended).toBe(true);
});

test.each([
  [true, Array(20).fill(1)],
  [false, Array(10).fill(2)],
])("no more than 128 KiB to a turn, the buffer being full: %s", async (full, expected) => {
  let turns = 0;
  let over = false;
  const count = async () => {
    while (!over) {
      await nextTurn();
      turns += 1;
    }
  };
  const counting = count();
  const seen: number[] = [];
  async function* pieces() {
    for (let piece = 0; piece < 20; piece += 1) {
      seen.push(turns);
      yield "x".repeat(65_536);
    }
  }
  const body = toStreamedBody(pieces(), new AbortController().signal);
  const exchange = toExchange(new Request("http://readout/"));
  await writeAnswer({ status: 200, headers: {}, body }, exchange, new Keen(full), false);
  over = true;
  await counting;
  expect(seen).toHaveLength(20);
  const ofTurns = [...Map.groupBy(seen, (turn) => turn).values()].map(({ length }) => length);
  expect(ofTurns).toEqual(expected);
});
