// Limits of one token beside those of the server: the smaller one of each holds, and other tokens keep theirs.
import { describe, expect, test } from "vitest";
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, printMillis } from "#src/core/time.ts";
import { createFakeRateLimiter } from "../support/fake-rate-limiter.ts";
import { base, createSubject, linesBody, linesPath, openWaitingStore, otherToken, token } from "./harness.ts";

const as = (bearer: string, accept = "application/json") => ({
  headers: { authorization: `Bearer ${bearer}`, accept },
});

describe("the smaller limit holds", () => {
  test.each([
    ["the token's", { requests: 1 }, 5],
    ["the server's", { requests: 5 }, 1],
  ])("of requests at once: %s", async (_, ownLimits, tokenRequests) => {
    const { store, seen, end } = openWaitingStore();
    const { post, used } = createSubject({ store, ownLimits, limits: { tokenRequests } });
    const first = post(linesBody());
    await expect.poll(() => seen.begun).toBe(1);
    const refused = await post(linesBody());
    expect(refused.status).toBe(429);
    expect(refused.headers.get("ratelimit-policy")).toBe('"token_requests";q=1;qu="concurrent-requests"');
    expect((await used()).token_requests).toBe(1);
    const other = post(linesBody(), as(otherToken));
    if (tokenRequests > 1) await expect.poll(() => seen.begun).toBe(2);
    end();
    expect((await first).status).toBe(200);
    expect((await other).status).toBe(200);
  });

  test("of streamed answers and of tails", async () => {
    const { post } = createSubject({ lines: 3_000, ownLimits: { streams: 1 } });
    const big = linesBody({}, { per_page: 3_000 });
    const streamed = await post(big);
    const refused = await post(big);
    expect(refused.headers.get("ratelimit-policy")).toBe('"token_streams";q=1;qu="concurrent-requests"');
    const other = await post(big, as(otherToken));
    expect([streamed.status, refused.status, other.status]).toEqual([200, 429, 200]);
    await Promise.all([streamed.json(), other.json()]);
    const tailed = await post(linesBody(), as(token, "text/event-stream"));
    const second = await post(linesBody(), as(token, "text/event-stream"));
    expect(second.headers.get("ratelimit-policy")).toBe('"token_tails";q=1;qu="concurrent-requests"');
    expect([tailed.status, second.status]).toEqual([200, 429]);
    await tailed.body?.cancel();
  });

  test("of documents that a page and an export read", async () => {
    const { post } = createSubject({ lines: 50, ownLimits: { documents: 20, export: 30 } });
    const page = linesBody({}, { per_page: 40 });
    const read = async (answer: Response) => [answer.status, JSON.parse(await answer.text()).details?.limit];
    expect(await read(await post(page))).toEqual([422, 20]);
    expect(await read(await post(linesBody(), as(token, "application/x-ndjson")))).toEqual([422, 30]);
    expect((await post(page, as(otherToken))).status).toBe(200);
    expect((await post(linesBody(), as(otherToken, "application/x-ndjson"))).status).toBe(200);
  });

  test("of documents and places of a tail that begins far behind", async () => {
    // The clock stands still at a minute after the lines.
    const tail = { ...defaults.limits.tail, lateness: 5_000 };
    const { post, limited } = createSubject({
      lines: 50,
      ownLimits: { export: 30, streams: 2 },
      limits: { tail, tokenStreams: 1 },
    });
    const from = printMillis(base);
    const asTail = (bearer: string) => as(bearer, "text/event-stream");
    const refused = await post(linesBody({ from }), asTail(token));
    expect([refused.status, JSON.parse(await refused.text()).details]).toEqual([422, { limit: 30 }]);
    const past = linesBody({ from, to: printMillis(base + 9) });
    const first = await post(past, asTail(token));
    const second = await post(past, asTail(token));
    expect([first.status, second.status]).toEqual([200, 429]);
    expect(second.headers.get("ratelimit-policy")).toBe('"token_streams";q=1;qu="concurrent-requests"');
    expect((await limited()).token_streams).toBe(1);
    const other = await post(linesBody({ from }), asTail(otherToken));
    expect(other.status).toBe(200);
    expect((await first.text()).match(/^event: line$/gm)).toHaveLength(10);
    expect((await post(past, asTail(token))).status).toBe(200);
    await other.body?.cancel();
  });

  test("of documents in GraphQL", async () => {
    const { server } = createSubject({ lines: 50, ownLimits: { documents: 20 } });
    const page = "pagination: { per_page: 40, order: ASC, cursor: { time: null } }";
    const query = `{ logs_lines(site_id: "shop", source_ids: ["app"], query: "", ${page}) { id } }`;
    const ask = async (bearer: string) => {
      const answer = await server.fetch("http://readout/graphql", {
        method: "POST",
        headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
        body: JSON.stringify({ query }),
      });
      const { errors = [] } = JSON.parse(await answer.text());
      return errors.map(({ extensions }: { extensions?: { slug?: string } }) => extensions?.slug);
    };
    expect(await ask(token)).toEqual(["result_too_large"]);
    expect(await ask(otherToken)).toEqual([]);
  });
});

test("the metrics tell when each user last made a request with a valid token", async () => {
  const { server, post } = createSubject({ limits: { ...defaults.limits } });
  await post(linesBody());
  await post(linesBody(), as("no-token"));
  await server.fetch(`http://readout${linesPath}`, { method: "POST", ...as(otherToken), body: "no JSON" });
  const text = await (await server.fetch("http://readout/metrics")).text();
  const found = text.matchAll(/^readout_user_last_request_timestamp_seconds\{user="(\w+)"\} (\S+)$/gm);
  const at = Date.UTC(2026, 0, 15, 10, 1) / 1_000;
  expect([...found].map(([, user, seconds]) => [user, Number(seconds)])).toEqual([
    ["ana", at],
    ["eve", at],
  ]);
});

test("a streamed answer after a reload takes from the rate of its token once", async () => {
  const { post, server, served } = createSubject({ lines: 3_000 });
  const taken: string[] = [];
  const rate = createFakeRateLimiter((account) => taken.push(account) > 0);
  const ana = { user: "ana", sha256: hashToken(token), sites: ["shop"] };
  const authenticate = createAuthenticator([ana], () => fromMillis(base), { rate });
  await server.reload({ ...served, authenticate });
  const streamed = await post(linesBody(), as(token, "application/x-ndjson"));
  expect((await streamed.text()).trimEnd().split("\n")).toHaveLength(3_000);
  expect(taken).toHaveLength(1);
});
