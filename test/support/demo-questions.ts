// Puts a question that has an answer to every route of a running `readout demo`, and to its pages.

const pages = [
  "/",
  "/docs",
  "/docs/swagger-ui-bundle.js",
  "/graphql/graphiql.js",
  "/console/app.js",
  "/metrics",
];

/** Returns what was not answered with 200 and with more than an empty list, as `route: status body`. */
export async function askEveryRoute(address: string, token: string): Promise<readonly string[]> {
  const authorization = `Bearer ${token}`;
  const post = async (path: string, body: object) =>
    fetch(address + path, { method: "POST", headers: { authorization }, body: JSON.stringify(body) });
  const from = new Date(Date.now() - 3_600_000).toISOString();
  const span = { site_ids: ["demo-shop"], site_id: "demo-shop", from, to: new Date().toISOString() };
  const pagination = { per_page: 5, order: "DESC" };
  const [trace] = await (await post("/api/v2/tracing/traces/performance", { ...span, pagination })).json();
  const [event] = await (await post("/api/v2/tracing/slow_events", span)).json();
  const { trace_id, namespace, action_name: action, revision } = trace;
  const select = [{ id: "cpu", name: "cpu", field: "gauge", tags: { hostname: "*" }, aggregation: "avg" }];
  // Each route ignores keys that are not its own.
  const body = {
    ...span,
    pagination,
    namespace,
    action,
    revision,
    digest: event.digest,
    source_ids: ["app"],
    query: "",
    select,
    group_by: [{ Tag: "hostname" }],
    expression: "*/5 * * * *",
    timestamp: Date.now() / 1_000,
    error: { name: "TypeError" },
  };
  const bodies: Readonly<Record<string, object>> = {
    "/api/v2/logs/counts": { ...body, group_by: "severity" },
    "/api/v2/tracing/locator": { ...body, trace_id },
    "/api/v2/tracing/trace": { ...body, trace_id },
    "/api/v2/tracing/action_edges": { ...body, namespace: `${event.service}/${namespace}` },
  };
  const { paths } = await (await fetch(`${address}/openapi.json`)).json();
  const failed: string[] = [];
  const judge = async (route: string, answer: Response) => {
    const text = await answer.text();
    const isEmpty = text === "" || text === "[]";
    if (answer.status !== 200 || isEmpty) failed.push(`${route}: ${answer.status} ${text.slice(0, 200)}`);
  };
  for (const [path, methods] of Object.entries<Record<string, unknown>>(paths)) {
    for (const method of Object.keys(methods)) {
      const place = fillPath(path);
      const answer =
        method === "get"
          ? await fetch(address + place, { headers: { authorization } })
          : await post(place, bodies[path] ?? body);
      await judge(`${method} ${path}`, answer);
    }
  }
  for (const path of pages) await judge(path, await fetch(address + path));
  const headers = { authorization, "content-type": "application/json" };
  const graphql = { method: "POST", headers, body: JSON.stringify({ query: "{ sites { id sources } }" }) };
  await judge("/graphql", await fetch(`${address}/graphql`, graphql));
  return failed;
}

const fillPath = (path: string): string =>
  path
    .replace("{site_id}", "demo-shop")
    .replace("{metric_name}", "cpu")
    .replace("{id}/csv", "73h_ogaRMCuYHGmgjkhUbg/csv")
    .replace("{id}", "9Ubquyg0qqEEfpH6Xefmrg")
    .replace(/^\/errors$/, "/errors?api_key=demo-key");
