// The backend for Elasticsearch and OpenSearch: its configuration, its stores, and what the command line inspects of it.
import { z } from "zod";
import { explainIssue, httpUrl, parseSettings } from "../../src/config/validation.ts";
import type { Backend, BackendKind, CustomLayouts, IO } from "../../src/store/backend.ts";
import { openKeptFigures } from "../../src/tracing/rollup-store/kept-figures.ts";
import { chooseLogin, createConnectionSchema, logins, openLogin, readTls } from "../http/connection.ts";
import { guardDefaults } from "../http/guard.ts";
import { type ClientSettings, createElasticClient } from "./client/client.ts";
import { readClock } from "./clock.ts";
import { surveyIndices } from "./discovery.ts";
import { createReportStore, inspectReports } from "./error-reports.ts";
import { type LogLayout, logLayouts, parseLogLayout } from "./layout/log-layout.ts";
import { parseSpanLayout, type SpanLayout, spanLayouts } from "./layout/span-layout.ts";
import { findNewestLine, inspectLogSource } from "./logs/inspection.ts";
import { createLogStore } from "./logs/log-store.ts";
import { findTenantFilterFault } from "./query/tenant-filter.ts";
import { createRollupStore } from "./rollups/rollup-store.ts";
import { createMappingCache } from "./search/mapping-cache.ts";
import { findNewestSpan, inspectSpanSource } from "./spans/inspection.ts";
import { createSpanStore } from "./spans/span-store.ts";
import { describeView } from "./view.ts";

const login = chooseLogin(
  [logins.basic, logins.api_key, logins.bearer, logins.oauth2, logins.aws("es", "aoss")],
  "expected { username, password }, { bearer }, { api_key }, { oauth2: { token_url, client_id, client_secret } } or { aws: { region, service: es or aoss } }",
);

const settingsSchema = z.strictObject({
  url: z.union([httpUrl, z.array(httpUrl).min(1, "names no address")], {
    error: ({ input }) => (input == null ? undefined : "expected an address or a list of them"),
  }),
  auth: login.optional(),
  ...createConnectionSchema("10s"),
});
type ElasticConfig = z.infer<typeof settingsSchema>;

export const elastic: BackendKind<ElasticConfig, LogLayout, SpanLayout> = {
  kind: "elastic",
  parseConfig: (value) => parseSettings(settingsSchema, value),
  layouts: {
    logs: { names: new Set(logLayouts.keys()), parse: (text) => parseLogLayout(text, explainIssue) },
    traces: { names: new Set(spanLayouts.keys()), parse: (text) => parseSpanLayout(text, explainIssue) },
  },
  findTenantFilterFault,
  create(name, config, io, own): Backend {
    const client = createElasticClient(name, toClientSettings(name, config, io, own), io);
    const mappingCache = createMappingCache(name, client, io, own);
    const rollups = openKeptFigures(name, io);
    return {
      name,
      kind: "elastic",
      stores: {
        logs: createLogStore(name, client, mappingCache),
        traces: createSpanStore(name, client, mappingCache, rollups),
        reports: createReportStore(name, client),
      },
      async probe(signal) {
        const { name: product, version } = await client.probe(signal);
        return { product, version };
      },
      readClock: (signal) => readClock(client, signal),
      inspections: {
        logs: (source, signal) => inspectLogSource(name, source, client, mappingCache, signal),
        reports: (target, signal) => inspectReports(name, target, client, signal),
        traces: (source, signal) => inspectSpanSource(name, source, client, mappingCache, signal),
      },
      findNewest: {
        logs: (source, signal) => findNewestLine(name, source, client, mappingCache, signal),
        traces: (source, signal) => findNewestSpan(name, source, client, mappingCache, signal),
      },
      survey: (patterns, signal) =>
        surveyIndices(patterns, {
          backend: name,
          client,
          mappingCache,
          inspect: (source) => inspectLogSource(name, source, client, mappingCache, signal),
          signal,
        }),
      openRollups: (index) => createRollupStore(name, client, index),
      close: () => client.close(),
    };
  },
};

function toClientSettings(
  name: string,
  config: ElasticConfig,
  io: IO,
  own: CustomLayouts<LogLayout, SpanLayout> | undefined,
): ClientSettings {
  const { auth, headers } = config;
  const tls = readTls(config.tls, io);
  return {
    ...guardDefaults,
    nodes: typeof config.url === "string" ? [config.url] : config.url,
    auth: openLogin(name, auth, io),
    tls,
    headers,
    timeout: config.timeout,
    maxResponseBytes: config.answer_bytes,
    view: describeView({ auth, headers, certificate: tls?.cert }, own),
  };
}
