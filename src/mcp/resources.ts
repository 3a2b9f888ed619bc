// What agents may look up before they ask: the sites, their log sources, the names of metrics, and the fields of log lines.
import type { Site } from "../access/sites.ts";
import { formatScalar } from "../core/lossless-json.ts";
import { callTool, type ToolSession } from "./tool-call.ts";

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

/** Undefined where the token may see no such resource. */
export async function readResource(uri: string, session: ToolSession): Promise<string | undefined> {
  if (!listResources(session.sites).some((resource) => resource.uri === uri)) return undefined;
  const [site_id = "", kind = ""] = uri
    .replace(/^readout:\/\/sites\/?/, "")
    .split("/")
    .map(decodeURIComponent);
  if (site_id === "") return printRows(await readRows("get_applications", {}, session));
  if (kind === "sources")
    return JSON.stringify([...(session.sites.find(({ id }) => id === site_id)?.logs?.sources.keys() ?? [])]);
  if (kind === "metrics")
    return printRows(await readRows("get_metric_names", { site_id, per_page: 1_000 }, session));
  const rows = await readRows("get_log_lines", { site_id, per_page: 100, max_characters: 10_000 }, session);
  return JSON.stringify([...new Set(rows.flatMap(listFields))].sort());
}

function printRows(rows: readonly unknown[]): string {
  return JSON.stringify(rows);
}

async function readRows(tool: string, args: Readonly<Record<string, unknown>>, session: ToolSession) {
  const outcome = await callTool(tool, args, session);
  return outcome !== undefined && "page" in outcome ? outcome.page.rows : [];
}

/** A body that was cut is no JSON, and has no fields here. */
function listFields(row: unknown): readonly string[] {
  const { json } = row as { readonly json?: unknown };
  try {
    return listPaths(JSON.parse(String(json)), "", 0);
  } catch {
    return [];
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
