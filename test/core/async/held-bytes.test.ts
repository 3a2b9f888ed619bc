// What a request holds is counted over its parts, and a part may be released before the rest.
import { expect, test } from "vitest";
import {
  addToLedger,
  createHeldBytes,
  createHeldLedger,
  holdEach,
  measureHeld,
  measureHeldUse,
} from "#src/core/async/held-bytes.ts";
import { countTurns } from "../../support/event-loop-turns.ts";

test("parts count for one request until they are released", () => {
  const held = createHeldBytes(100);
  const first = held.openPart();
  const second = held.openPart();
  first.hold(60);
  expect(() => second.hold(41)).toThrowError("more than 100 bytes of documents");
  second.hold(40);
  first.release();
  first.release();
  held.hold(60);
  expect(() => held.hold(1)).toThrowError("more than 100 bytes");
});

test("a part is released with what it is a part of, and counts nothing after that", () => {
  const held = createHeldBytes(100);
  const operation = held.openPart();
  const lines = operation.openPart();
  lines.hold(50);
  operation.hold(50);
  operation.release();
  lines.hold(50);
  lines.release();
  held.hold(100);
  expect(() => held.hold(1)).toThrowError("more than 100 bytes");
});

test("measures the text of a value however deep it lies, and each value beside it", () => {
  expect(measureHeld("é".repeat(100))).toBe(224);
  expect(measureHeld({ a: ["x", "y"], b: undefined, c: null })).toBe(24 * 5 + 2);
  let deep: unknown = "x".repeat(1_000);
  for (let at = 0; at < 100_000; at += 1) deep = [deep];
  expect(measureHeld(deep)).toBe(24 * 100_001 + 1_000);
});

test("a token holds as much as one request may, and all requests twice as much", () => {
  const ledger = createHeldLedger();
  const open = (account: string) => createHeldBytes(100, { ledger, account });
  const [ana, other, bob] = [open("ana"), open("ana"), open("bob")];
  ana.hold(60);
  expect(() => other.hold(41)).toThrowError(expect.objectContaining({ limit: "token_held" }));
  other.openPart().hold(40);
  bob.hold(70);
  expect(() => open("eve").hold(31)).toThrowError(expect.objectContaining({ limit: "held" }));
  expect(measureHeldUse(ledger, 100)).toEqual({ held: 0.85, token_held: 1 });
  for (const request of [ana, other, bob]) request.release();
  expect(ledger).toEqual(createHeldLedger());
});

test("bodies are held within limits of their own names", () => {
  const ledger = createHeldLedger("bodies");
  addToLedger(ledger, "ana", 100, 100);
  expect(() => addToLedger(ledger, "ana", 1, 100)).toThrowError(
    expect.objectContaining({ limit: "token_bodies" }),
  );
  addToLedger(ledger, "bob", 100, 100);
  expect(() => addToLedger(ledger, "eve", 1, 100)).toThrowError(
    expect.objectContaining({ limit: "bodies", message: "200 bytes of bodies are held" }),
  );
  expect(measureHeldUse(ledger, 100)).toEqual({ bodies: 1, token_bodies: 1 });
  // What is given back is never refused, also below a limit that has become less.
  addToLedger(ledger, "ana", -50, 10);
  addToLedger(ledger, "bob", -100, 10);
  expect(measureHeldUse(ledger, 100)).toEqual({ bodies: 0.25, token_bodies: 0.5 });
});

test("counts many values in turns of the event loop", async () => {
  const values = Array.from({ length: 20_000 }, (_, n) => Array.from({ length: 50 }, () => String(n)));
  let turns = 0;
  const counting = setInterval(() => {
    turns += 1;
  }, 0);
  const held = createHeldBytes(Number.POSITIVE_INFINITY);
  await holdEach(held, values, new AbortController().signal);
  clearInterval(counting);
  expect(turns).toBeGreaterThan(2);
  await expect(holdEach(createHeldBytes(1), values, new AbortController().signal)).rejects.toThrowError(
    "more than 1 bytes",
  );
});

test("one value of many members is counted in turns, as what it is without", async () => {
  const members = Array.from({ length: 50_000 }, (_, n) => ({ n }));
  const bytes = measureHeld(members);
  const { signal } = new AbortController();
  const turns = await countTurns(() => holdEach(createHeldBytes(bytes), [members], signal));
  expect(turns).toBeGreaterThanOrEqual(50);
  await expect(holdEach(createHeldBytes(bytes - 1), [members], signal)).rejects.toThrowError("more than");
});
