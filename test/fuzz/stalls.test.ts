// Requests that are as unfavourable as their kind can be: none holds the event loop up for more than 50 ms of processor time,
// and the memory that they took is free again afterwards. The server runs in a process of its own and measures itself.
import { afterAll, beforeAll, expect, test } from "vitest";
import { type AttackedServer, startAttackedServer, token } from "../support/attacked-server.ts";
import { largeQueries } from "./large-queries.ts";
import { long } from "./seeded-generator.ts";
import { type Attack, attacks, reports } from "./stall-attacks.ts";

/** Each is tried so often one after the other; the first tries compile what they run. */
const tries = long ? 20 : 2;
/** `npm run test:program` takes one in so many kinds. */
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

async function sendReport(body: string): Promise<number> {
  const answer = await fetch(`http://127.0.0.1:${server.intakePort}/errors?api_key=key`, {
    method: "POST",
    body,
  });
  await answer.arrayBuffer();
  return answer.status;
}

/** The cost of a burst, or of each of some tries. A pause of the machine is no stall of ours: what stalls is tried again. */
async function countStalls(name: string, run: () => Promise<void>): Promise<string[]> {
  for (let round = 1; ; round += 1) {
    await run();
    const { stalls, worstMs } = await server.measure();
    if (stalls === 0) return [];
    if (round === 3) return [`${name}: ${stalls} stalls, at worst ${Math.round(worstMs)} ms`];
  }
}

const statuses = [200, 400, 404, 422];

test(`no request of ${chosen.length} kinds stalls the event loop in ${tries} tries each`, async () => {
  // A whole round before memory is measured: until then each kind still takes room that the process goes on using.
  for (const [, one] of chosen) for (let n = 0; n < tries; n += 1) await attack(one);
  await server.measure();
  const { rssBytes: before } = await server.measure();
  const stalled: string[] = [];
  for (const [name, one] of chosen) {
    const found = await countStalls(name, async () => {
      for (let n = 0; n < tries; n += 1) expect(statuses, name).toContain(await attack(one));
    });
    stalled.push(...found);
  }
  const { rssBytes: after } = await server.measure();
  console.info(
    `${chosen.length} kinds, ${tries} tries of each: ${stalled.length} kinds stalled;`,
    rss(before, after),
  );
  expect(stalled).toEqual([]);
  // Some tries more or less show in so little memory.
  if (long) expect(after / before).toBeLessThan(1.1);
}, 1_200_000);

test("no front-end error report stalls the event loop", async () => {
  // The first ones compile what they run.
  for (const body of Object.values(reports)) await sendReport(body);
  await server.measure();
  const stalled: string[] = [];
  for (const [name, body] of Object.entries(reports)) {
    const found = await countStalls(name, async () => {
      for (let n = 0; n < tries; n += 1) expect(await sendReport(body), name).toBe(200);
    });
    stalled.push(...found);
  }
  expect(stalled).toEqual([]);
}, 300_000);

test("no burst of large queries stalls the event loop, and their trees are not kept", async () => {
  const burst = long ? 30 : 5;
  let sent = 0;
  // Each is another one, so that none is remembered.
  const ask = (query: string) => {
    sent += 1;
    return attack({ path: "/graphql", body: JSON.stringify({ query: `${query}#${sent}` }) });
  };
  const send = (query: string, times: number) => Promise.all(Array.from({ length: times }, () => ask(query)));
  const kinds = Object.entries(largeQueries).filter((_, at) => at % share === 0);
  for (const [, query] of kinds) await send(query, burst);
  const { rssBytes: before } = await server.measure();
  const stalled: string[] = [];
  for (const [name, query] of kinds) {
    stalled.push(...(await countStalls(name, async () => void (await send(query, burst)))));
  }
  const { rssBytes: after } = await server.measure();
  console.info(
    `${sent} queries of ${kinds.length} kinds, ${burst} at once: ${stalled.length} kinds stalled;`,
    rss(before, after),
  );
  expect(stalled).toEqual([]);
  if (long) expect(after / before).toBeLessThan(1.1);
}, 600_000);

function rss(before: number, after: number): string {
  return `RSS ${Math.round(before / 1e6)} MB before, ${Math.round(after / 1e6)} MB after`;
}
