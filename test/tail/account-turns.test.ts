// Turns of one account.
import { expect, test } from "vitest";
import { createAccountTurns } from "#src/tail/account-turns.ts";

test("a turn that is ended twice makes place for one", async () => {
  const { take } = createAccountTurns(2);
  const { signal } = new AbortController();
  const [end] = [await take("ana", signal), await take("ana", signal)];
  end();
  end();
  await take("ana", signal);
  let hasTurn = false;
  void take("ana", signal).then(() => {
    hasTurn = true;
  });
  await new Promise(setImmediate);
  expect(hasTurn).toBe(false);
});
