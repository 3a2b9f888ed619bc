// The exactness law: what the store finds for a query is what `matches` keeps of all its lines. The suite checks it on
// fixed seeds, `npm run test:exact` on new ones until it is stopped.
import type fc from "fast-check";
import { parseLossless } from "#src/core/json/lossless-json.ts";
import type { LogLine, Severity } from "#src/core/rows.ts";
import { listSeverityWords } from "#src/core/severity-words.ts";
import { fromMillis } from "#src/core/time.ts";
import { matches } from "#src/log-query/matches.ts";
import { parse } from "#src/log-query/parse.ts";
import { readScript, toLogLine } from "../log-query/script.ts";
import { buildTemplate, printDocument } from "../support/elastic/filebeat.ts";
import * as shippers from "../support/elastic/log-shippers.ts";
import * as platforms from "../support/elastic/platform-log-shippers.ts";
import type { Cluster } from "../support/elastic/test-index.ts";
import { never } from "../support/signals.ts";
import {
  type Corpus,
  corpus,
  drawnLines,
  dynamicDefinition,
  mappedDefinition,
  query,
  shrinkingCorpus,
} from "./corpus.ts";

export interface Target {
  readonly name: string;
  readonly product: "elasticsearch" | "opensearch";
  readonly version: string;
}

/** Replaces the indices with the prefix and returns the number of documents. */
type Load = (cluster: Cluster, prefix: string) => Promise<number>;
/** One layout and its random documents. */
export interface Subject {
  /** Unique, for titles and index names. */
  readonly name: string;
  readonly layout: string;
  /** Writes the lines of scripts in this layout. */
  readonly shipper: shippers.LogShipper;
  /** Enough documents for a round; `shrinking` draws any number of them. */
  readonly documents: fc.Arbitrary<Load>;
  readonly shrinking: fc.Arbitrary<Load>;
}

export interface Difference {
  readonly text: string;
  readonly missing: readonly LogLine[];
  readonly extra: readonly LogLine[];
  /** False if only the order is wrong. */
  readonly isOrdered: boolean;
}

const start = Date.UTC(2024, 0, 15, 10);
const range = { from: fromMillis(start), to: fromMillis(start + 3_600_000) };

/** The layouts that shippers write to this server. */
export function listSubjects(target: Target): readonly Subject[] {
  const { name, product } = target;
  const own =
    product === "opensearch"
      ? [
          ...(name === "os2" ? [shippers.ss4oLogsDynamic] : [shippers.ss4oLogsFlat]),
          shippers.dataPrepperLogs,
          shippers.fluentBitLogs,
        ]
      : name === "es7"
        ? [shippers.fluentBitLogs, shippers.otelNoneLogs]
        : [shippers.otelLogs, shippers.fluentBitLogs];
  return [
    createEcsSubject(target),
    ...[...own, shippers.logstashLogs, shippers.vectorLogs, ...listPlatforms(product)].map((shipper) =>
      createShippedSubject(shipper === platforms.podPinoLogs ? "fluent-bit-pino" : shipper.layout, shipper),
    ),
    ...(product === "elasticsearch" ? [createShippedSubject("logstash-ecs", shippers.logstashEcsLogs)] : []),
  ];
}

function listPlatforms(product: Target["product"]): readonly shippers.LogShipper[] {
  const anywhere = [
    platforms.gelfLogs,
    platforms.openshiftStructuredLogs,
    platforms.cloudFoundryLogs,
    platforms.podPinoLogs,
  ];
  // Wazuh comes with OpenSearch.
  return product === "opensearch" ? [...anywhere, platforms.wazuhLogs] : anywhere;
}

/** Two indices that map the same names differently, and documents for each. */
function createEcsSubject({ product, version }: Target): Subject {
  const load =
    ({ mapped, dynamic }: Corpus): Load =>
    async (cluster, prefix) => {
      await cluster.remove(`${prefix}-*`);
      await cluster.createIndex(`${prefix}-a`, mappedDefinition(product, version));
      await cluster.createIndex(`${prefix}-b`, dynamicDefinition);
      if (mapped.length > 0) await cluster.write(`${prefix}-a`, addTimes(mapped));
      if (dynamic.length > 0) await cluster.write(`${prefix}-b`, addTimes(dynamic));
      return mapped.length + dynamic.length;
    };
  const shipper: shippers.LogShipper = {
    layout: "ecs",
    index: (prefix) => `${prefix}-filebeat`,
    definition: buildTemplate("date", 1),
    document: printDocument,
  };
  const drawn = { documents: corpus.map(load), shrinking: shrinkingCorpus.map(load) };
  return { name: "ecs", layout: "ecs", shipper, ...drawn };
}

/** Uses the shipper's own mapping and, unless the layout is otel, a dynamic one as well. */
function createShippedSubject(name: string, shipper: shippers.LogShipper): Subject {
  const definitions = shipper.layout === "otel" ? [shipper.definition] : [shipper.definition, plain];
  const load =
    (lines: readonly shippers.ShippableLine[]): Load =>
    async (cluster, prefix) => {
      await cluster.remove(`${prefix}-*`);
      for (const [turn, definition] of definitions.entries()) {
        const index = `${prefix}-${turn}`;
        await cluster.createIndex(index, definition);
        const own = lines.flatMap((line, at): [string, string][] =>
          at % definitions.length === turn
            ? [[`d${at}`, shipper.document({ ...line, time: timeOf(at) })]]
            : [],
        );
        if (own.length > 0) await cluster.write(index, own);
      }
      return lines.length;
    };
  return {
    name,
    layout: shipper.layout,
    shipper,
    documents: drawnLines(30).map(load),
    shrinking: drawnLines(0).map(load),
  };
}

/** One shard indexes documents in order, so that the first one decides how a name is mapped. */
const plain = { settings: { number_of_shards: 1, number_of_replicas: 0 } };

/** Three documents in each millisecond. */
const timeOf = (at: number): string => new Date(start + Math.floor(at / 3)).toISOString();
function addTimes(texts: readonly string[]): [string, string][] {
  return texts.map((text, at) => [
    `d${at}`,
    text === "{}" ? `{"@timestamp":"${timeOf(at)}"}` : `{"@timestamp":"${timeOf(at)}",${text.slice(1)}`,
  ]);
}

export async function read(
  cluster: Cluster,
  layout: string,
  prefix: string,
  text: string,
): Promise<LogLine[]> {
  const lines: LogLine[] = [];
  const limits = { expectedLines: 100, documentLimit: 100_000, tieLimit: 100_000 };
  const sources = [{ id: "app", index: `${prefix}-*`, layout: layout, tenantFilter: undefined }] as const;
  const batches = cluster.store.lines(
    { sources, range, filter: parse(text), order: "asc", ...limits },
    never,
  );
  for await (const batch of batches) lines.push(...batch);
  return lines;
}

/** Compares what a query finds with what `matches` keeps of all lines; undefined where both are the same. */
export async function findDifference(
  cluster: Cluster,
  layout: string,
  prefix: string,
  everything: readonly LogLine[],
  text: string,
): Promise<Difference | undefined> {
  const filter = parse(text);
  const found = await read(cluster, layout, prefix, text).catch((error: Error) => {
    throw new Error(`${layout}: ${text}: ${error.message}`, { cause: error });
  });
  const expected = everything.filter((line) => matches(filter, line));
  const ids = found.map(({ id }) => id);
  const same = ids.length === expected.length && expected.every(({ id }, at) => id === ids[at]);
  if (same) return undefined;
  const missing = expected.filter(({ id }) => !ids.includes(id));
  const extra = found.filter(({ id }) => !expected.some((line) => line.id === id));
  return { text, missing, extra, isOrdered: missing.length + extra.length > 0 };
}

export { query };

/** Names that a layout writes beside the body. A script has separate fields for them. */
const written = [
  "@timestamp",
  "@version",
  "message",
  "log",
  "level",
  "host",
  "event",
  "kubernetes",
  "type",
  "version",
  "level_name",
  "source_host",
  "facility",
  "structured",
  "hostname",
  "rule",
  "agent",
  "full_log",
];

/** How a document may have spelled the severity, which the line no longer shows. */
export const spellings: readonly ((severity: Severity) => string)[] = [
  (severity) => severity,
  (severity) => severity.toUpperCase(),
  ...[1, 2, 3].map((at) => (severity: Severity) => [...listSeverityWords(severity)][at] ?? severity),
];

/** Prints a query script with these lines and the result of `matches`, for `test/log-query/cases`. */
export function printScript(
  layout: string,
  lines: readonly LogLine[],
  text: string,
  spell: (severity: Severity) => string = (severity) => severity,
): string {
  const rows = lines.map(({ id, severity, message, hostname, group, json }) => {
    const body = Object.entries(parseLossless(json) as object).filter(([key]) => !written.includes(key));
    const line = {
      severity: severity === "unknown" ? undefined : spell(severity),
      message,
      hostname,
      group,
      json: Object.fromEntries(body),
    };
    return `  ${scriptId(id)} ${JSON.stringify(line)}`;
  });
  const filter = parse(text);
  const ids = lines.filter((line) => matches(filter, line)).map(({ id }) => scriptId(id));
  return [
    `# Found by test:exact on the layout ${layout}.`,
    "load",
    ...rows,
    `eval ${text}`,
    `  ${ids.join(" ")}`,
  ].join("\n");
}

const scriptId = (id: string): string => id.replace(/^.*-(\w+)\//, "$1-");

/** Whether `matches` agrees with the script. It does not where the query names what a layout writes beside the body. */
export function isConsistent(script: string): boolean {
  let lines: readonly LogLine[] = [];
  for (const step of readScript("found", script).steps) {
    if (step.kind === "load") lines = step.lines.map(toLogLine);
    else if (step.kind === "eval") {
      const filter = parse(step.query);
      const ids = lines.filter((line) => matches(filter, line)).map(({ id }) => id);
      if (ids.sort().join(" ") !== step.ids.join(" ")) return false;
    }
  }
  return true;
}

/**
 * Whether a script, loaded as the conformance suite loads it, fails on the cluster. A script does not hold the mapping of a
 * layout, so a difference that depends on the mapping may not be reproduced.
 */
export async function canReproduce(
  cluster: Cluster,
  shipper: shippers.LogShipper,
  script: string,
  prefix: string,
): Promise<boolean> {
  try {
    for (const step of readScript("found", script).steps) {
      if (step.kind === "fail") continue;
      if (step.kind === "load") {
        await cluster.remove(`${prefix}-*`);
        const index = shipper.index(prefix);
        await cluster.createIndex(index, shipper.definition);
        const documents = step.lines.map(({ id, ...line }, at): [string, string] => [
          id,
          shipper.document({ ...line, time: timeOf(at) }),
        ]);
        // Documents that cannot be written together show nothing about reading.
        if (!(await isWritten(cluster, index, documents))) return false;
        continue;
      }
      const found = await read(cluster, shipper.layout, prefix, step.query).catch(() => undefined);
      const ids = found?.map(({ id }) => id.slice(id.indexOf("/") + 1)).sort();
      if (ids?.join(" ") !== step.ids.join(" ")) return true;
    }
    return false;
  } finally {
    await cluster.remove(`${prefix}-*`);
  }
}

async function isWritten(cluster: Cluster, index: string, documents: [string, string][]): Promise<boolean> {
  try {
    await cluster.write(index, documents);
    return true;
  } catch {
    return false;
  }
}
