// Random triples of a token, sites and a route. No answer contains a row of a site hidden from the token, and a hidden
// site is indistinguishable from a missing one: the same bytes for the same work.
import { Session } from "node:inspector/promises";
import { afterAll, expect, test } from "vitest";
import { Members, print } from "./hostile-values.ts";
import { createWorld, mark, type SiteId, seenBy, sites, tokens, vocabulary } from "./multi-tenant-fixture.ts";
import { drawTimeIn, drawValue, routes } from "./openapi-requests.ts";
import { createDraw, type Draw, fuzz, long } from "./seeded-generator.ts";

const world = createWorld();
/** As long as the name of a site that exists. */
const missing = "nwhre";

interface Triple {
  readonly token: string;
  readonly named: readonly string[];
  readonly method: string;
  /** The request with other sites in the same places. */
  readonly of: (named: readonly string[]) => { readonly path: string; readonly body: string | undefined };
  readonly told: string;
}

const reading = routes.filter(
  ({ path, body }) =>
    path.includes("{site_id}") ||
    ["site_id", "site_ids"].some((key) => body?.properties?.[key] !== undefined),
);

function drawTriple(draw: Draw, route = draw.pick(reading)): Triple {
  if (route === undefined) throw new Error("no routes");
  const token = draw.pick(Object.keys(tokens)) ?? "";
  const named = [0, ...draw.some(2, () => 0)].map(() =>
    draw.chance(0.5) ? (draw.pick(seenBy(token)) ?? "north") : (draw.pick([...sites, missing]) ?? ""),
  );
  const drawn = route.body === undefined ? undefined : drawValue(route.body, "", vocabulary, draw);
  const search = route.explains && draw.chance(0.2) ? "?explain=true" : "";
  const metric = encodeURIComponent(draw.pick(vocabulary.metric_name));
  const times = { from: drawTimeIn(draw, 0), to: drawTimeIn(draw, 1) };
  const of = (own: readonly string[]) => {
    const path = route.path.replace("{site_id}", own[0] ?? "").replace(/\{\w+\}/, metric);
    return {
      path: path + search,
      body: drawn === undefined ? undefined : print(withSites(drawn, own, times)),
    };
  };
  return { token, named, method: route.method, of, told: JSON.stringify(of(named)) };
}

function withSites(
  body: unknown,
  named: readonly string[],
  times: { readonly from: string; readonly to: string },
): unknown {
  if (!(body instanceof Members)) return body;
  return new Members(
    body.entries.map(([key, value]) => {
      if (key === "site_id") return [key, named[0]];
      if (key === "site_ids") return [key, named];
      return key === "from" || key === "to" ? [key, times[key]] : [key, value];
    }),
  );
}

interface Answered {
  readonly status: number;
  readonly text: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly calls: number;
}
async function ask({ token, method, of }: Triple, named: readonly string[]): Promise<Answered> {
  const { path, body } = of(named);
  const calls = world.calls();
  const response = await world.server.fetch(`http://readout${path}`, {
    method,
    headers: { authorization: `Bearer ${token}` },
    ...(body === undefined ? {} : { body }),
  });
  const text = await response.text();
  return {
    status: response.status,
    text,
    headers: [...response.headers].filter(([name]) => name !== "x-request-id" && name !== "date"),
    calls: world.calls() - calls,
  };
}

const seen = { rows: 0, hidden: 0, absent: 0 };

async function check(triple: Triple): Promise<void> {
  const { token, named } = triple;
  const own = seenBy(token);
  const answered = await ask(triple, named);
  expect([200, 404, 422]).toContain(answered.status);
  // Texts of the request are not secret: explanations and errors may repeat them.
  const sent = triple.told;
  for (const site of sites.filter((id) => !own.includes(id))) {
    if (answered.text.includes(mark(site)) && !sent.includes(mark(site))) throw new Error(answered.text);
    if (
      answered.status === 200 &&
      rowsOf(answered.text).includes(mark(site)) &&
      !triple.of(named).path.includes("explain")
    )
      throw new Error(answered.text);
  }
  if (own.some((site) => answered.text.includes(mark(site)))) seen.rows += 1;
  const isHidden = (id: string) => !own.includes(id as SiteId);
  const reached = triple.of(named).body?.includes('"site_ids"') ? named : named.slice(0, 1);
  if (!reached.some(isHidden)) return;
  seen.hidden += 1;
  expect([404, 422]).toContain(answered.status);
  const absent = await ask(
    triple,
    named.map((id) => (isHidden(id) ? missing : id)),
  );
  expect(absent).toEqual(answered);
  expect(answered.calls).toBe(0);
  if (answered.status === 404) {
    seen.absent += 1;
    expect(answered.text).toBe('{"error":"Not found"}');
  }
}

/** An answer's text without what it repeats of the request: the ids of series begin with the metric's name. */
function rowsOf(text: string): string {
  return text.replace(/"(?:id|name|metric_name)":"[^"]*"/g, "");
}

test("random token, route and site triples return no foreign row", async () => {
  await fuzz(10_000, drawTriple, check);
  for (const count of Object.values(seen)) expect(count).toBeGreaterThan(20);
});

// Counting calls slows all that is loaded: the short run does it for a route of each family.
test.each(reading.filter((_, n) => long || n % 6 === 0).map((route) => [route.path, route] as const))(
  "%s runs the same functions as often for a foreign site as for a missing one",
  async (_, route) => {
    const drawn = createDraw(1);
    const triple = { ...drawTriple(drawn, route), token: "token-of-north" };
    // The first time is another: what is kept for each token is made then.
    for (const id of ["south", missing]) await ask(triple, [id]);
    const [foreign, absent] = await counting(async (callsOf) => [
      await countCalls(callsOf, () => ask(triple, ["south"])),
      await countCalls(callsOf, () => ask(triple, [missing])),
    ]);
    expect(foreign.size).toBeGreaterThan(10);
    expect(foreign).toEqual(absent);
  },
);

type Calls = ReadonlyMap<string, number>;
type CallsOf = (run: () => Promise<unknown>) => Promise<Calls>;

/** Calls of each function of the program. V8 may count a call twice while it optimises, so the minimum is used. */
async function countCalls(callsOf: CallsOf, run: () => Promise<unknown>): Promise<Calls> {
  const [first = new Map(), ...others] = [await callsOf(run), await callsOf(run), await callsOf(run)];
  return new Map(
    [...first].map(([name, count]) => [name, Math.min(count, ...others.map((one) => one.get(name) ?? 0))]),
  );
}

/** Starting the profiler costs more than the counted work, so it runs once for several requests. */
async function counting<T>(work: (callsOf: CallsOf) => Promise<T>): Promise<T> {
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  try {
    return await work(async (run) => {
      await run();
      const { result } = await session.post("Profiler.takePreciseCoverage");
      const counts = result
        .filter(({ url }) => /\/(src|resolvers)\//.test(url) && !url.includes("node_modules"))
        .flatMap(({ url, functions }) =>
          functions.map(({ functionName, ranges: [range] }): [string, number] => [
            `${url} ${functionName} ${range?.startOffset}`,
            range?.count ?? 0,
          ]),
        );
      return new Map(counts.filter(([, count]) => count > 0));
    });
  } finally {
    session.disconnect();
  }
}

test("GraphQL returns no foreign row, also through links", async () => {
  const ask = async (token: string, query: string) => {
    const response = await world.server.fetch("http://readout/graphql", {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ query }),
    });
    return response.text();
  };
  const lines = (site: string) => `{
    sites { id } viewer { apps { id } }
    logs_lines(site_id: "${site}", source_ids: ["app"], query: "", pagination: { per_page: 30, order: ASC }) {
      id message trace { trace_id spans: trace_id }
    }
  }`;
  const own = await ask(
    "token-of-north",
    lines("north").replace("spans: trace_id", "log_lines { id message }"),
  );
  expect(own).toContain(mark("north"));
  for (const site of ["south", "east"] as const) {
    expect(own).not.toContain(site);
    expect(await ask("token-of-north", lines(site))).toBe(await ask("token-of-north", lines(missing)));
  }
});

afterAll(() => {
  for (const token of Object.keys(tokens)) expect(world.logged()).not.toContain(token);
});
