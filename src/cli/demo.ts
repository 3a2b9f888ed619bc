// `readout demo`: the complete server on generated data. Nothing is configured and nothing is stored.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { generateToken, hashToken } from "../access/auth.ts";
import type { Config, SiteConfig } from "../config/config.ts";
import { defaults } from "../config/schema.ts";
import { toErrorMessage } from "../core/errors.ts";
import { type Instant, toMillis } from "../core/time.ts";
import { serve } from "./serve/serve.ts";
import { printUsageError, quoteForShell, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout demo [--port 8080] [--token T]

Serves generated data of two sites. Nothing is configured and nothing is kept.

  --port P   where to listen on 127.0.0.1; 0 is any free port
  --token T  the token to accept; without it a new one is made
`;

const sources = ["app", "nginx", "worker"] as const;

/** Exit codes as `serve`. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  let port: number;
  let token: string;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { port: { type: "string", default: String(defaults.listen.port) }, token: { type: "string" } },
    });
    port = /^\d{1,5}$/.test(values.port) ? Number(values.port) : Number.NaN;
    if (!(port <= 65_535)) throw new Error("--port is no port number");
    if (values.token !== undefined && !/^[\x21-\x7e]+$/.test(values.token)) {
      throw new Error("--token: expected printable characters without spaces");
    }
    token = values.token ?? generateToken();
  } catch (error) {
    return printUsageError(`demo: ${toErrorMessage(error)}`, usage, shell);
  }
  return serve(buildDemoConfig(port, token), shell, {
    file: "demo",
    level: "warn",
    listening: (address) => shell.out(printGreeting(address, token, shell.now())),
    inUse: (address) => `${address} is in use; choose another port with --port`,
  });
}

/** The configuration of the demo: two sites of generated data and one token. */
export function buildDemoConfig(port: number, token: string): Config {
  return {
    listen: { ...defaults.listen, port },
    tokens: [{ user: "demo", sha256: hashToken(token), sites: "*" }],
    backends: { memory: { kind: "memory", settings: { seed: 1 } } },
    intake: {
      spool: ":memory:",
      spoolBytes: defaults.spoolBytes,
      keyRate: defaults.keyRate,
      addressRate: defaults.addressRate,
      proxies: defaults.proxies,
    },
    sites: {
      "demo-shop": buildDemoSite("demo-shop", "demo-key"),
      "demo-blog": buildDemoSite("demo-blog", "demo-blog-key"),
    },
    visuals: fileURLToPath(new URL("demo", import.meta.url)),
    limits: defaults.limits,
  };
}

function buildDemoSite(name: string, key: string): SiteConfig {
  const indices = sources.map((source) => [source, { index: `${name}-${source}`, layout: "auto" }] as const);
  return {
    retention: defaults.retention,
    logs: { backend: "memory", sources: Object.fromEntries(indices) },
    traces: { backend: "memory", index: `${name}-traces`, layout: "auto" },
    frontend: { keys: [key], backend: "memory", index: `${name}-frontend`, layout: "auto" },
    metrics: { backend: "memory", match: { site: name } },
    kubernetes: { backend: "memory", match: { cluster: "demo" } },
  };
}

function printGreeting(address: string, token: string, now: Instant): string {
  const body = JSON.stringify({
    site_id: "demo-shop",
    source_ids: sources,
    query: "severity=error OR severity=warn",
    use_expressions: true,
    pagination: { per_page: 5, order: "DESC", cursor: { time: null } },
  });
  const report = JSON.stringify({
    timestamp: Math.floor(toMillis(now) / 1_000),
    namespace: "frontend",
    action: "CartPage",
    error: { name: "TypeError", message: "cart is undefined", backtrace: ["at app.js:12:3"] },
    tags: { page: "cart" },
  });
  return `Readout listens on ${address}

Sites    demo-shop, demo-blog, each with the log sources ${sources.join(", ")} (generated)
Token    ${token}
Console  ${address}/

Try:
curl -s ${address}/api/v2/logs/lines -H ${quoteForShell(`Authorization: Bearer ${token}`)} -H 'Content-Type: application/json' -d ${quoteForShell(body)}

Without a token: an error report like a browser's, and two published visuals
curl -s '${address}/errors?api_key=demo-key' -d ${quoteForShell(report)}
curl -s ${address}/api/v2/saved_visuals/9Ubquyg0qqEEfpH6Xefmrg
curl -s ${address}/api/v2/saved_visuals/73h_ogaRMCuYHGmgjkhUbg/csv

Ctrl-C ends it.
`;
}
