// Requests that are as unfavourable as their kind can be: none holds the event loop up for more than 50 ms of processor time,
// and the memory that they took is free again afterwards. The server runs in a process of its own and measures itself.
import { afterAll, beforeAll, expect, test } from "vitest";
import { type AttackedServer, startAttackedServer, token } from "../support/attacked-server.ts";
import { long } from "./seeded-generator.ts";
import { type Attack, attacks } from "./stall-attacks.ts";

/** Each is tried so often one after the other; the first tries compile what they run. */
const tries = long ? 20 : 2;
/** `npm test` takes one in so many kinds. */
const share = long ? 1 : 8;
const chosen = Object.entries(attacks).filter((_, at) => at % share === 0);

let server: AttackedServer;
beforeAll(async () => {
  server = await startAttackedServer({ rate: 1_000 });
}, 60_000);
afterAll(() => server.kill());

async function attack({ method, path, body, headers = {} }: Attack): Promise<number> {
  const own = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const init = {
    method: method ?? "POST",
    headers: { ...own, ...headers },
    ...(body !== undefined && { body }),
  };
  const answer = await fetch(`http://127.0.0.1:${server.port}${path}`, init);
  await answer.arrayBuffer();
  return answer.status;
}

test(`no request of ${chosen.length} kinds stalls the event loop in ${tries} tries each`, async () => {
  for (const [, one] of chosen) for (let n = 0; n < 2; n += 1) await attack(one);
  const { rssBytes: before } = await server.measure();
  const stalled: string[] = [];
  for (const [name, one] of chosen) {
    for (let n = 0; n < tries; n += 1) expect([200, 400, 404, 422], name).toContain(await attack(one));
    const { stalls, worstMs } = await server.measure();
    if (stalls > 0) stalled.push(`${name}: ${stalls} of ${tries}, at worst ${Math.round(worstMs)} ms`);
  }
  expect(stalled).toEqual([]);
  const { rssBytes } = await server.measure();
  // Some tries more or less show in so little memory.
  if (long) expect(rssBytes / before).toBeLessThan(1.1);
}, 600_000);
