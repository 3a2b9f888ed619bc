// The demo's server without a process: its sites and data, behind a clock that stands still, so that two answers to one
// request are equal.
import { memory } from "#resolvers/memory/memory.ts";
import { createAuthenticator } from "#src/access/auth.ts";
import { connectSites, type Site } from "#src/access/sites.ts";
import { buildDemoConfig } from "#src/cli/demo.ts";
import type { TokenEntry } from "#src/config/config.ts";
import type { CompressionConfig } from "#src/config/edge-settings.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { fromMillis, type Instant } from "#src/core/time.ts";
import type { UnifiedSchema } from "#src/graphql/mesh.ts";
import { clientOperations, operations } from "#src/operations/index.ts";
import { checkVisual } from "#src/operations/metrics/visuals.ts";
import type { Endpoint } from "#src/operations/runtime/operation.ts";
import { createServer, type Server } from "#src/server/server.ts";
import type { Backend } from "#src/store/backend.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { openVisualDirectory } from "#src/visuals/visual-directory.ts";
import { testIO } from "./io.ts";

export const token = "demo-token";
export const clock = Date.UTC(2026, 0, 15, 12);
const origin = "http://readout";

export interface Demo {
  readonly server: Server;
  readonly logged: () => string;
  readonly close: () => Promise<void>;
  /** Status and body of a request of REST. */
  readonly rest: (method: string, path: string, body?: unknown) => Promise<{ status: number; body: unknown }>;
  readonly graphql: (query: string, variables?: object, init?: RequestInit) => Promise<GraphqlAnswer>;
}
interface GraphqlAnswer {
  readonly status: number;
  readonly data?: Readonly<Record<string, unknown>> | null;
  readonly errors?: readonly {
    readonly message: string;
    readonly path?: readonly unknown[];
    readonly extensions?: Readonly<Record<string, unknown>>;
  }[];
}

/** The schema without Mesh, which takes a second to load. */
export async function loadPlainSchema(): Promise<UnifiedSchema> {
  const { schema } = await import("#src/graphql/schema.ts");
  return { schema, plugins: [], stitched: false };
}

const now = (): Instant => fromMillis(clock);

/** What all demos of a process read, and nobody writes: to make it takes longer than most questions. It is never closed. */
const generated = memory.create("memory", memory.parseConfig({ seed: 1 }), { ...testIO, now });

export async function createDemo(
  over: {
    readonly graphql?: () => Promise<UnifiedSchema>;
    readonly limits?: Partial<Limits>;
    readonly compression?: CompressionConfig;
    readonly origins?: readonly string[];
    /** Stands between the server and the backend. */
    readonly watch?: (backend: Backend) => Backend;
    readonly site?: (site: Site) => Site;
    /** Accepted beside the usual one, which may see every site. */
    readonly tokens?: readonly TokenEntry[];
    /** What is served in the place of an operation. */
    readonly endpoint?: (endpoint: Endpoint) => Endpoint;
    /** Of the server alone, where its clock moves. */
    readonly now?: () => Instant;
  } = {},
): Promise<Demo> {
  const config = buildDemoConfig(0, token);
  const backend = over.watch?.(generated) ?? generated;
  const sites = connectSites(config, new Map([["memory", backend]]));
  const gallery = await openVisualDirectory({
    folder: () => config.visuals,
    check: checkVisual,
    log: () => {},
    deadline: () => config.limits.deadline,
  });
  let log = "";
  const server = createServer({
    operations: [...operations, ...clientOperations].map(over.endpoint ?? ((endpoint) => endpoint)),
    loadGraphql: over.graphql ?? loadPlainSchema,
    authenticate: createAuthenticator([...config.tokens, ...(over.tokens ?? [])], now),
    sites: new Map([...sites].map(([id, site]) => [id, over.site?.(site) ?? site])),
    limits: { ...defaults.limits, ...over.limits },
    compression: over.compression,
    origins: over.origins,
    telemetry: createTelemetry({
      level: "debug",
      write: (line) => {
        log += line;
      },
    }),
    now: over.now ?? now,
    visuals: gallery,
  });
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  return {
    server,
    logged: () => log,
    close: async () => gallery.close(),
    rest: async (method, path, body) => {
      const init = body === undefined ? {} : { body: JSON.stringify(body) };
      const response = await server.fetch(`${origin}${path}`, { method, headers, ...init });
      const isJson = /^application\/(?:[\w.]+\+)?json/.test(response.headers.get("content-type") ?? "");
      return { status: response.status, body: isJson ? await response.json() : await response.text() };
    },
    graphql: async (query, variables = {}, init = {}) => {
      const response = await server.fetch(`${origin}/graphql`, {
        method: "POST",
        headers,
        body: JSON.stringify({ query, variables }),
        ...init,
      });
      return { status: response.status, ...((await response.json()) as object) };
    },
  };
}
