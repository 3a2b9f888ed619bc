// The metrics routes of a server over a metric store, for a site `shop` and one without metrics, `bare`.
import { createAuthenticator, hashToken } from "#src/access/auth.ts";
import type { Site } from "#src/access/sites.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, hour } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { createServer } from "#src/server/server.ts";
import type { ForcedLabels, MetricStore } from "#src/store/metrics.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";

export const base = Date.UTC(2026, 0, 15, 10);
export const iso = (time: number) => new Date(time).toISOString();
export const origin = "http://readout";
export const headers = { authorization: "Bearer t" };

export function serve(
  store: MetricStore,
  match: ForcedLabels,
  over: { counterDefault?: Site["counterDefault"]; limits?: Partial<Limits> } = {},
) {
  const now = () => fromMillis(base + hour);
  const site = { retention: 86_400_000, counterDefault: over.counterDefault ?? "cumulative" } as const;
  const server = createServer({
    loadGraphql: () => Promise.reject(new Error("not asked for")),
    operations,
    authenticate: createAuthenticator([{ user: "ana", sha256: hashToken("t"), sites: "*" }], now),
    sites: new Map<string, Site>([
      ["shop", { id: "shop", ...site, metrics: { backend: "memory", store, match } }],
      ["bare", { id: "bare", ...site }],
    ]),
    limits: { ...defaults.limits, ...over.limits },
    telemetry: createTelemetry({ write: () => {}, level: "error" }),
    now,
  });
  async function post(route: "timeseries" | "list", body: unknown, at = origin) {
    // A copy each time: the host writes the length of the body into what it is given.
    const init = { method: "POST", headers: { ...headers }, body: JSON.stringify(body) };
    const response =
      at === origin
        ? await server.fetch(`${at}/api/v2/metrics/${route}`, init)
        : await fetch(`${at}/api/v2/metrics/${route}`, init);
    const text = await response.text();
    return { status: response.status, text, body: JSON.parse(text) };
  }
  const explain = async (body: unknown) => {
    const init = { method: "POST", headers: { ...headers }, body: JSON.stringify(body) };
    return (await server.fetch(`${origin}/api/v2/metrics/timeseries?explain=true`, init)).json();
  };
  const get = async (path: string) => {
    const response = await server.fetch(`${origin}/api/v2/metrics/${path}`, { headers });
    return { status: response.status, text: await response.text() };
  };
  return { server, post, get, explain };
}
