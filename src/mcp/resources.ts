// What agents may look up before they ask: the sites, their log sources, the names of metrics, and the fields of log lines.
import type { Site } from "../access/sites.ts";
import { listBodyPaths } from "./body-paths.ts";
import type { Args } from "./tool-arguments.ts";
import { cutComputedRows, readAnswer, readPage, type ToolPage, type ToolSession } from "./tool-call.ts";

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
 * A page of a resource as JSON: its `rows`, how many are `left`, the address of the `next` page or null, and a `note` of what was
 * left out. Undefined where the token may see no such resource. Rejects with what the operation behind it is refused with.
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
  if (kind === "log-fields") return await readLogFields(base, site_id, paging, session);
  if (site_id === "") return printPage(base, await readPage("get_applications", paging, session));
  if (kind === "metrics")
    return printPage(base, await readPage("get_metric_names", { site_id, ...paging }, session));
  const { logs } = session.sites.find(({ id }) => id === site_id) ?? {};
  return printPage(base, { rows: [...(logs?.sources.keys() ?? [])] });
}

function printPage(base: string, page: Partial<ToolPage>, note?: string): string {
  const { rows, left = 0, cursor = null } = page;
  const next = cursor === null ? null : `${base}?cursor=${encodeURIComponent(cursor)}`;
  return JSON.stringify({ rows, left, next, ...(note !== undefined && { note }) });
}

const newestLines = 100;

/** The paths of the body in the newest lines, those of the first page for all pages. */
async function readLogFields(
  base: string,
  site_id: string,
  paging: Args,
  session: ToolSession,
): Promise<string> {
  const source_ids = [...(session.sites.find(({ id }) => id === site_id)?.logs?.sources.keys() ?? [])];
  const pagination = { per_page: newestLines, order: "DESC" };
  const selection = { site_id, source_ids, query: "", use_expressions: true, pagination };
  let note: string | undefined;
  const page = await cutComputedRows(base, paging, session, async (to) => {
    const lines = (await readAnswer("logs.lines", { ...selection, to }, session)) as readonly LineRow[];
    // A page of lines is longer to end between two milliseconds.
    const found = await listBodyPaths(lines.slice(0, newestLines).map(({ json }) => String(json)));
    note = found.note;
    return found.paths;
  });
  return printPage(base, page, note);
}

interface LineRow {
  readonly json?: unknown;
}
