// Elasticsearch and OpenSearch as one kind of backend.
import { z } from "zod";
import { httpUrl } from "../../src/config/http-url.ts";
import { readSettings, strict } from "../../src/config/validation.ts";
import { parseDuration } from "../../src/core/time.ts";
import type { Backend, BackendKind, IO } from "../../src/store/store.ts";
import { anyLogin, connection, readTls } from "../http/connection.ts";
import { guardDefaults } from "../http/guard.ts";
import { type DoorSettings, openDoor } from "./client/client.ts";
import { surveyIndices } from "./discovery.ts";
import { createReportStore, inspectReports } from "./error-reports.ts";
import { type LogProfile, profiles, readProfile } from "./layout/log-layout.ts";
import { readSpanProfile, type SpanProfile, spanProfiles } from "./layout/span-layout.ts";
import { reportLogs } from "./logs/inspection.ts";
import { createLogStore } from "./logs/log-store.ts";
import { createCatalog } from "./search/mapping-cache.ts";
import { reportSpans } from "./spans/inspection.ts";
import { createSpanStore } from "./spans/span-store.ts";

const settings = strict({
  url: z.union([httpUrl, z.array(httpUrl).min(1, "names no address")], {
    error: ({ input }) => (input == null ? undefined : "expected an address or a list of them"),
  }),
  auth: anyLogin.optional(),
  ...connection("10s"),
});
type ElasticConfig = z.infer<typeof settings>;

export const elastic: BackendKind<ElasticConfig, LogProfile, SpanProfile> = {
  kind: "elastic",
  parseConfig: (value) => readSettings(settings, value),
  profiles: {
    logs: { has: (name) => profiles.has(name), parse: readProfile },
    traces: { has: (name) => spanProfiles.has(name), parse: readSpanProfile },
  },
  create(name, config, io, own): Backend {
    const door = openDoor(name, doorSettings(config, io), io);
    const catalog = createCatalog(name, door, io, own);
    return {
      name,
      kind: "elastic",
      stores: {
        logs: createLogStore(name, door, catalog),
        traces: createSpanStore(name, door, catalog),
        reports: createReportStore(name, door),
      },
      async probe(signal) {
        const { name: product, version } = await door.probe(signal);
        return { product, version };
      },
      inspections: {
        logs: (source, signal) => reportLogs(name, source, door, catalog, signal),
        reports: (target, signal) => inspectReports(name, target, door, signal),
        traces: (source, signal) => reportSpans(name, source, door, catalog, signal),
      },
      survey: (patterns, signal) =>
        surveyIndices(patterns, {
          ...{ backend: name, door, catalog },
          inspect: (source) => reportLogs(name, source, door, catalog, signal),
          signal,
        }),
      close: () => door.close(),
    };
  },
};

function doorSettings(config: ElasticConfig, io: IO): DoorSettings {
  const { auth, tls } = config;
  return {
    ...guardDefaults,
    nodes: typeof config.url === "string" ? [config.url] : config.url,
    auth: auth === undefined ? undefined : "api_key" in auth ? { apiKey: auth.api_key } : auth,
    tls: readTls(tls, io),
    headers: config.headers,
    timeout: parseDuration(config.timeout) ?? guardDefaults.timeout,
    answerBytes: config.answer_bytes,
  };
}
