// Elasticsearch and OpenSearch as one kind of backend.
import { z } from "zod";
import type { Backend, BackendKind, IO, LogSource, SourceReport } from "../../src/store.ts";
import { fromMillis, type Instant, parseDuration } from "../../src/time.ts";
import { basicAuth, bearerAuth, connection, readTls, url } from "../connection.ts";
import { guardDefaults } from "../http.ts";
import { type Catalog, createCatalog, detect } from "./catalog.ts";
import { type Door, type DoorSettings, openDoor } from "./door.ts";
import { createLogStore } from "./logs.ts";
import { findField, type IndexGroup, type Knowledge, nameGroup } from "./mapping.ts";
import type { Product } from "./product.ts";
import type { LogProfile } from "./profile.ts";
import { all, any, encodePattern, every, inIndices, searchOptions } from "./query.ts";
import { reportSpans } from "./report.ts";
import { createReportStore, inspectReports } from "./reports.ts";
import { findShardProblem, wholeAnswer } from "./search.ts";
import { createSpanStore } from "./spans.ts";
import { surveyIndices } from "./survey.ts";
import { compileWhere, parseWhere, WhereError } from "./where.ts";

const settings = z.strictObject({
  url: z.union([url, z.array(url).min(1)]),
  auth: z.union([basicAuth, z.strictObject({ api_key: z.string().min(1) }), bearerAuth]).optional(),
  ...connection("10s"),
});
export type ElasticConfig = z.infer<typeof settings>;

export const elastic: BackendKind<ElasticConfig> = {
  kind: "elastic",
  parseConfig: (value) => settings.parse(value),
  create(name, config, io): Backend {
    const door = openDoor(name, doorSettings(config, io), io);
    const catalog = createCatalog(name, door, io);
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
        logs: (source, signal) => inspectLogs(name, source, door, catalog, signal),
        reports: (target, signal) => inspectReports(name, target, door, signal),
        traces: (source, signal) => reportSpans(name, source, door, catalog, signal),
      },
      survey: (patterns, signal) =>
        surveyIndices(patterns, {
          ...{ backend: name, door, catalog },
          inspect: (source) => inspectLogs(name, source, door, catalog, signal),
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

async function inspectLogs(
  backend: string,
  source: LogSource,
  door: Door,
  catalog: Catalog,
  signal: AbortSignal,
): Promise<SourceReport> {
  const product = await door.product(signal);
  const knowledge = await catalog.refresh(source.index, signal);
  const profile = catalog.profile(source, knowledge);
  const limitations: string[] = [];
  const problems: string[] = [];
  if (source.profile === "auto" && detect(knowledge) === undefined && knowledge.groups.length > 0) {
    limitations.push(`no known layout is recognised; read as ${profile.name}`);
  }
  if (knowledge.opaque) {
    limitations.push(
      "the mapping may not be read (it needs view_index_metadata), so every query reads all lines of its range",
    );
  } else if (knowledge.indices.size === 0) {
    problems.push(`no open index matches ${source.index}`);
  }
  for (const group of knowledge.groups) describeGroup(group, profile, product, limitations, problems);
  if (source.where !== undefined) {
    try {
      const wall = parseWhere(source.where);
      if (knowledge.opaque)
        throw new WhereError("where: the mapping may not be read, so the wall cannot be proved");
      for (const group of knowledge.groups) compileWhere(wall, group);
    } catch (error) {
      if (!(error instanceof WhereError)) throw error;
      problems.push(error.message);
    }
  }
  const unread = await findShardProblem(backend, source.index, knowledge, door, signal);
  if (unread !== undefined) problems.push(unread);
  const newest =
    problems.length > 0 ? undefined : await newestLine(backend, source, profile, knowledge, door, signal);
  return {
    profile: profile.name,
    ...(!knowledge.opaque && { indices: knowledge.indices.size }),
    newest,
    limitations,
    problems,
  };
}

function describeGroup(
  group: IndexGroup,
  profile: LogProfile,
  product: Product,
  limitations: string[],
  problems: string[],
): void {
  const where = nameGroup(group);
  if (group.source === "cut")
    problems.push(`${where}: _source is not kept whole, so lines cannot be answered`);
  if (group.source === "synthetic") {
    limitations.push(
      `${where}: _source is synthetic: key order, number spelling and array order are the index's`,
    );
  }
  const time = group.fields.get(profile.time);
  if (time === undefined)
    limitations.push(`${where}: ${profile.time} is not mapped; its documents are never in a range`);
  else if (time.type !== "date" && time.type !== "date_nanos") {
    problems.push(`${where}: ${profile.time} is of type ${time.type}, not date or date_nanos`);
  }
  for (const part of ["message", "severity", "hostname", "group"] as const) {
    const found = profile[part].flatMap((name) => findField(group, name) ?? []);
    const [field] = found;
    if (field === undefined) {
      limitations.push(
        `${where}: ${part} (${profile[part].join(", ")}) is not mapped; filters on it read every line of the range`,
      );
    } else if (!field.indexed) {
      limitations.push(
        `${where}: ${field.name} is not searchable; filters on ${part} read every line of the range`,
      );
    } else if (part !== "severity" && field.type === "keyword" && !product.listsIgnored) {
      limitations.push(
        `${where}: ${field.name} drops values over ${field.ignoreAbove} characters and ${product.name} does not list them; ${part}: (contains) reads every line of the range`,
      );
    }
  }
}

async function newestLine(
  backend: string,
  source: LogSource,
  profile: LogProfile,
  knowledge: Knowledge,
  door: Door,
  signal: AbortSignal,
): Promise<Instant | undefined> {
  const wall = source.where === undefined ? undefined : parseWhere(source.where);
  const walled =
    wall === undefined
      ? all
      : any(knowledge.groups.map((group) => every([inIndices(group.indices), compileWhere(wall, group)])));
  const body = {
    size: 1,
    track_total_hits: false,
    query: every([{ exists: { field: profile.time } }, walled]),
    sort: [{ [profile.time]: { order: "desc", unmapped_type: "date", numeric_type: "date" } }],
  };
  const path = `/${encodePattern(source.index)}/_search`;
  const bytes = await door.send(
    { method: "POST", path, query: searchOptions, body: JSON.stringify(body) },
    signal,
  );
  const answer = await wholeAnswer(backend, bytes, profile);
  const sort = answer.hits[0]?.sort;
  return sort === undefined ? undefined : fromMillis(Number(sort));
}
