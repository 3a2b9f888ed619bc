// Log lines and their counts for existing clients, by the operations `logs.lines` and `logs.counts`.
import type { Site } from "../../access/sites.ts";
import { formatScalar, isJsonObject, parseLossless } from "../../core/json/lossless-json.ts";
import { parse } from "../../log-query/parse.ts";
import { narrowQuery, printAnyOf } from "../../log-query/print.ts";
import type { Context, Resolvers, Session } from "../../operations/runtime/session.ts";
import { type BackReference, refuseBelowRows } from "./batches.ts";
import type { PlainFields } from "./type-completion.ts";

/** The logs of a site. */
interface LogsRow {
  readonly site: Site;
}

interface SourceRow extends LogsRow, BackReference {
  readonly id: string;
  readonly name: string;
  readonly type: string;
  readonly fmt: string;
}

function toSource(site: Site, id: string, isBackReference = false): SourceRow {
  return { site, id, name: id, type: "custom", fmt: "JSON", isBackReference };
}

interface LineArguments {
  readonly start?: string | null;
  readonly end?: string | null;
  readonly sourceIds?: readonly string[] | null;
  readonly severities?: readonly string[] | null;
  readonly query?: string | null;
  readonly limit?: number | null;
  readonly order?: "ASC" | "DESC" | null;
  readonly resolution?: string | null;
}

const defaultLines = 100;

function listSources(site: Site): readonly SourceRow[] {
  return [...(site.logs?.sources.keys() ?? [])].map((id) => toSource(site, id));
}

/** Which lines are meant, as the operations take it; undefined where there can be none. */
function buildSelection({ site }: LogsRow, args: LineArguments) {
  const { start: from, end: to, sourceIds, severities, query } = args;
  const ids = sourceIds ?? [...(site.logs?.sources.keys() ?? [])];
  if (site.logs === undefined || ids.length === 0) return undefined;
  const any = printAnyOf(
    "severity",
    (severities ?? []).map((word) => word.toLowerCase()),
  );
  return {
    site_id: site.id,
    source_ids: ids,
    from,
    to,
    query: narrowQuery(query ?? "", any, (text) => parse(text, { legacy: true })),
  };
}

/** To a token without the scope a site has no logs either, and no lines are no answer to it. @throws {GraphQLError} */
function answerWithoutLogs<Answer>({ site }: LogsRow, session: Session, answer: Answer): Promise<Answer> {
  return session.runLink("App.logs", () => ({
    name: "logs",
    scopes: ["logs"],
    sites: () => [site.id],
    run: async () => answer,
  }));
}

/** A line as its fields show it, without a resolver for each of them. */
class LineRow {
  readonly id: unknown;
  readonly timestamp: unknown;
  readonly message: unknown;
  readonly hostname: unknown;
  readonly group: unknown;
  readonly severity: string;
  readonly source: SourceRow;
  readonly #json: unknown;
  #attributes: readonly KeyValue[] | undefined;

  constructor(line: Readonly<Record<string, unknown>>, source: SourceRow) {
    this.id = line.id;
    this.timestamp = line.timestamp;
    this.message = line.message ?? "";
    this.hostname = line.hostname ?? "";
    this.group = line.group;
    this.severity = String(line.severity).toUpperCase();
    this.source = source;
    this.#json = line.json;
  }

  /** Parsed once, and only where they are asked for. */
  get attributes(): readonly KeyValue[] {
    this.#attributes ??= listAttributes(this.#json);
    return this.#attributes;
  }
}

interface KeyValue {
  readonly key: string;
  readonly value: string;
}

async function readLines(logs: LogsRow, args: LineArguments, session: Session): Promise<readonly LineRow[]> {
  const selection = buildSelection(logs, args);
  if (selection === undefined) return await answerWithoutLogs(logs, session, []);
  const per_page = args.limit ?? defaultLines;
  const pagination = { per_page, order: args.order ?? "DESC" };
  const lines = await session.runOperation("logs.lines", { ...selection, pagination });
  if (!Array.isArray(lines)) return [];
  // A page is longer to end between two milliseconds; these clients have no cursor that needs it.
  const sources = new Map<unknown, SourceRow>();
  return lines.slice(0, per_page).map((line) => {
    const source = sources.get(line.source_id) ?? toSource(logs.site, String(line.source_id), true);
    sources.set(line.source_id, source);
    return new LineRow(line, source);
  });
}

async function countLines(logs: LogsRow, args: LineArguments, session: Session) {
  const selection = buildSelection(logs, args);
  if (selection === undefined) return await answerWithoutLogs(logs, session, null);
  const { resolution } = args;
  const answer = await session.runOperation("logs.counts", { ...selection, resolution });
  const { buckets = [] } = answer as { readonly buckets?: readonly { timestamp: string; count: number }[] };
  return {
    series: [{ digest: "lines", name: "lines", tags: [], type: "COUNTER" }],
    values: [{ values: buckets.map(({ timestamp, count }) => ({ key: timestamp, value: count })) }],
  };
}

/** The body's members, those of objects within it under names with dots. */
function listAttributes(json: unknown): readonly KeyValue[] {
  const found: KeyValue[] = [];
  const waiting: { readonly key: string; readonly value: unknown }[] = [{ key: "", value: parseBody(json) }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { key, value } = next;
    if (isJsonObject(value)) {
      for (const [name, inner] of Object.entries(value).toReversed())
        waiting.push({ key: key === "" ? name : `${key}.${name}`, value: inner });
    } else if (key !== "") {
      found.push({ key, value: formatScalar(value) ?? JSON.stringify(value) });
    }
  }
  return found;
}

function parseBody(json: unknown): unknown {
  try {
    // Numbers keep their spelling, as the query language compares them.
    return parseLossless(String(json));
  } catch {
    return {};
  }
}

const secondsPerMilli = 1_000;
const maxInt = 2 ** 31 - 1;

export const logResolvers: Resolvers = {
  Logs: {
    sources: ({ site }: LogsRow) => listSources(site),
    source: ({ site }: LogsRow, { id }: { readonly id?: string | null }) =>
      listSources(site).find((source) => source.id === id) ?? null,
    lines: (logs: LogsRow, args: LineArguments, { readout }: Context) => readLines(logs, args, readout),
    metrics: (logs: LogsRow, args: LineArguments, { readout }: Context) => countLines(logs, args, readout),
    queryWindow: ({ site }: LogsRow) => Math.min(maxInt, Math.round(site.retention / secondsPerMilli)),
  },
  Source: {
    metrics: async (source: SourceRow, args: LineArguments, { readout }: Context) => {
      await refuseBelowRows(source, "metrics", readout);
      return await countLines(source, { ...args, sourceIds: [source.id] }, readout);
    },
  },
};

/** Fields that the rows themselves have. */
export const plainLogFields: PlainFields = {
  AppLogLine: ["id", "timestamp", "message", "hostname", "group", "severity", "source", "attributes"],
  Source: ["id", "name", "type", "fmt"],
};
