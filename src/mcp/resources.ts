// What agents may look up before they ask: the sites, their log sources, the names of metrics, and the fields of log lines.
import type { Site } from "../access/sites.ts";
import { formatScalar } from "../core/json/lossless-json.ts";
import { parseJson } from "../core/json/parse-json.ts";
import { readAnswer, readPage, type ToolPage, type ToolSession } from "./tool-call.ts";

interface AgentResource {
  readonly uri: string;
  readonly name: string;
  readonly description: string;
  readonly mimeType: string;
}

const mimeType = "application/json";

export function listResources(sites: readonly Site[]): AgentResource[] {
  const own = sites.flatMap(({ id, logs, metrics }) => {
    const base = `readout://sites/${encodeURIComponent(id)}`;
    return [
      ...(logs === undefined
        ? []
        : [
            { uri: `${base}/sources`, name: `Log sources of ${id}`, description: "Their ids.", mimeType },
            {
              uri: `${base}/log-fields`,
              name: `Log fields of ${id}`,
              description: "The paths of json in its newest lines.",
              mimeType,
            },
          ]),
      ...(metrics === undefined
        ? []
        : [
            {
              uri: `${base}/metrics`,
              name: `Metrics of ${id}`,
              description: "The names of its metrics.",
              mimeType,
            },
          ]),
    ];
  });
  const all = {
    uri: "readout://sites",
    name: "Sites",
    description: "The sites that the token may see.",
    mimeType,
  };
  return [all, ...own];
}

/**
 * A page of a resource as JSON: its `rows`, how many are `left`, and the address of the `next` page or null. Undefined where
 * the token may see no such resource. Rejects with what the operation behind it is refused with.
 */
export async function readResource(uri: string, session: ToolSession): Promise<string | undefined> {
  const [base = "", query = ""] = uri.split("?", 2);
  if (!listResources(session.sites).some((resource) => resource.uri === base)) return undefined;
  const [site_id = "", kind = ""] = base
    .replace(/^readout:\/\/sites\/?/, "")
    .split("/")
    .map(decodeURIComponent);
  const cursor = new URLSearchParams(query).get("cursor");
  const paging = { per_page: 1_000, ...(cursor !== null && { cursor }) };
  if (kind === "log-fields") return printPage(base, { rows: await listLogFields(site_id, session) });
  if (site_id === "") return printPage(base, await readPage("get_applications", paging, session));
  if (kind === "metrics")
    return printPage(base, await readPage("get_metric_names", { site_id, ...paging }, session));
  const { logs } = session.sites.find(({ id }) => id === site_id) ?? {};
  return printPage(base, { rows: [...(logs?.sources.keys() ?? [])] });
}

function printPage(base: string, { rows, left = 0, cursor = null }: Partial<ToolPage>): string {
  const next = cursor === null ? null : `${base}?cursor=${encodeURIComponent(cursor)}`;
  return JSON.stringify({ rows, left, next });
}

/** The paths of the body in the newest lines, sorted. */
async function listLogFields(site_id: string, session: ToolSession): Promise<readonly string[]> {
  const source_ids = [...(session.sites.find(({ id }) => id === site_id)?.logs?.sources.keys() ?? [])];
  const pagination = { per_page: newestLines, order: "DESC" };
  const request = { site_id, source_ids, query: "", use_expressions: true, pagination };
  const rows = await readAnswer("logs.lines", request, session);
  return [...new Set((rows as readonly unknown[]).flatMap(listFields))].sort();
}

const newestLines = 100;

function listFields(row: unknown): readonly string[] {
  const { json } = row as { readonly json?: unknown };
  try {
    return listPaths(parseJson(String(json)), "", 0);
  } catch {
    return []; // a body that is no JSON has no fields
  }
}

const maxDepth = 8;

function listPaths(value: unknown, path: string, depth: number): readonly string[] {
  if (formatScalar(value) !== undefined) return path === "" ? [] : [path];
  if (typeof value !== "object" || value === null || depth === maxDepth) return [];
  if (Array.isArray(value)) return value.flatMap((one) => listPaths(one, path, depth + 1));
  return Object.entries(value).flatMap(([key, one]) => {
    const own = key.replace(/[\\.]/g, "\\$&");
    return listPaths(one, path === "" ? own : `${path}.${own}`, depth + 1);
  });
}
