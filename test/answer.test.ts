// An answer in pieces leaves the event loop to others after each, whoever reads it.
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, test } from "vitest";
import { chunksOf, write } from "#src/answer.ts";
import { exchangeOf } from "#src/exchange.ts";

/** More than it wants to hold, or less; in either case the system takes all before a turn of the loop has passed. */
class Keen extends ServerResponse {
  readonly full: boolean;
  constructor(full: boolean) {
    super(new IncomingMessage(new Socket()));
    this.full = full;
  }
  override write(): boolean {
    if (this.full) process.nextTick(() => this.emit("drain"));
    return !this.full;
  }
}

test.each([true, false])("one piece to a turn, the buffer being full: %s", async (full) => {
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
      yield "text";
    }
  }
  const body = chunksOf(pieces(), new AbortController().signal);
  const exchange = exchangeOf(new Request("http://readout/"));
  await write({ status: 200, headers: {}, body }, exchange, new Keen(full), false);
  over = true;
  await counting;
  expect(seen).toHaveLength(20);
  expect(new Set(seen).size).toBe(20);
});
