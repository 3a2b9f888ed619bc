// What agents may look up before they ask: the sites, their log sources, the names of metrics, and the fields of log lines.
import type { Site } from "../access/sites.ts";
import { listBodyPaths } from "./body-paths.ts";
import type { Args } from "./tool-arguments.ts";
import { cutComputedRows, readAnswer, readPage, type ToolPage, type ToolSession } from "./tool-call.ts";

interface ResourceListing {
  readonly uri: string;
  readonly name: string;
  readonly description: string;
  readonly mimeType: string;
}

/** A resource with what answers a page of it. */
interface ReadableResource {
  readonly listing: ResourceListing;
  readonly read: (paging: Args, session: ToolSession) => Promise<string>;
}

export function listResources(sites: readonly Site[]): ResourceListing[] {
  return listReadable(sites).map(({ listing }) => listing);
}

/**
 * A page of a resource as JSON: its `rows`, how many are `left`, the address of the `next` page or null, and a `note` of what was
 * left out. Undefined where the token may see no such resource. Rejects with what the operation behind it is refused with.
 */
export async function readResource(uri: string, session: ToolSession): Promise<string | undefined> {
  const [base = "", query = ""] = uri.split("?", 2);
  const resource = listReadable(session.sites).find(({ listing }) => listing.uri === base);
  const cursor = new URLSearchParams(query).get("cursor");
  return await resource?.read({ per_page: 1_000, ...(cursor !== null && { cursor }) }, session);
}

const sitesUri = "readout://sites";

function listReadable(sites: readonly Site[]): ReadableResource[] {
  const all: ReadableResource = {
    listing: createListing(sitesUri, "Sites", "The sites that the token may see."),
    read: async (paging, session) => printPage(sitesUri, await readPage("get_applications", paging, session)),
  };
  const own = sites.flatMap(({ id, logs, metrics }) => {
    const base = `${sitesUri}/${encodeURIComponent(id)}`;
    return [
      ...(logs === undefined ? [] : listLogResources(base, id, [...logs.sources.keys()])),
      ...(metrics === undefined ? [] : [createMetricsResource(base, id)]),
    ];
  });
  return [all, ...own];
}

function createListing(uri: string, name: string, description: string): ResourceListing {
  return { uri, name, description, mimeType: "application/json" };
}

function listLogResources(base: string, site_id: string, source_ids: readonly string[]): ReadableResource[] {
  const sources = createListing(`${base}/sources`, `Log sources of ${site_id}`, "Their ids.");
  const description = "The paths of json in its newest lines.";
  const fields = createListing(`${base}/log-fields`, `Log fields of ${site_id}`, description);
  return [
    { listing: sources, read: async () => printPage(sources.uri, { rows: source_ids }) },
    {
      listing: fields,
      read: (paging, session) => readLogFields(fields.uri, { site_id, source_ids }, paging, session),
    },
  ];
}

function createMetricsResource(base: string, site_id: string): ReadableResource {
  const listing = createListing(`${base}/metrics`, `Metrics of ${site_id}`, "The names of its metrics.");
  const read: ReadableResource["read"] = async (paging, session) =>
    printPage(listing.uri, await readPage("get_metric_names", { site_id, ...paging }, session));
  return { listing, read };
}

function printPage(uri: string, page: Partial<ToolPage>, note?: string): string {
  const { rows, left = 0, cursor = null } = page;
  const next = cursor === null ? null : `${uri}?cursor=${encodeURIComponent(cursor)}`;
  return JSON.stringify({ rows, left, next, ...(note !== undefined && { note }) });
}

const newestLines = 100;

/** The paths of the body in the newest lines, those of the first page for all pages. */
async function readLogFields(
  uri: string,
  logs: { readonly site_id: string; readonly source_ids: readonly string[] },
  paging: Args,
  session: ToolSession,
): Promise<string> {
  const pagination = { per_page: newestLines, order: "DESC" };
  const selection = { ...logs, query: "", use_expressions: true, pagination };
  let note: string | undefined;
  const page = await cutComputedRows(uri, paging, session, async (to) => {
    const lines = (await readAnswer("logs.lines", { ...selection, to }, session)) as readonly LineRow[];
    // A page of lines is longer to end between two milliseconds.
    const bodies = lines.slice(0, newestLines).map(({ json }) => String(json));
    const found = await listBodyPaths(bodies, session.signal);
    note = found.note;
    return found.paths;
  });
  return printPage(uri, page, note);
}

interface LineRow {
  readonly json?: unknown;
}
