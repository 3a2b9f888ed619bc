// Scrolls: pages of more documents than one search returns. Together the pages must have as many documents as the first page
// counted.
import { BackendError } from "../../../src/core/errors.ts";
import { deleteUnawaited, type ElasticClient } from "./client.ts";

/** The option of the search that returns the first page. */
export const scrollOptions = { scroll: "1m" } as const;

/** The bytes of the page that follows a response. @throws {BackendError} */
export async function fetchNextPage(
  backend: string,
  client: ElasticClient,
  { scrollId }: { readonly scrollId: string | undefined },
  signal: AbortSignal,
): Promise<Buffer> {
  if (scrollId === undefined) throw new BackendError(backend, "malformed", "scroll response without an id");
  const body = JSON.stringify({ ...scrollOptions, scroll_id: scrollId });
  return client.send({ method: "POST", path: "/_search/scroll", body }, signal);
}

/** Checks that all pages together had as many documents as the first page counted. @throws {BackendError} */
export function requireCompleteScroll(backend: string, read: number, expected: number): void {
  if (read === expected) return;
  throw new BackendError(backend, "partial", `scroll returned ${read} of ${expected} documents`);
}

/** Frees the scroll at the server without waiting. The server frees it by itself a minute after the last page. */
export function releaseScroll(client: ElasticClient, scrollId: string | undefined): void {
  if (scrollId !== undefined) deleteUnawaited(client, "/_search/scroll", { scroll_id: [scrollId] });
}

/** What `read` makes of the first page of a search. Where it throws, a scroll that the search opened is freed. */
export async function readFirstPage<T>(
  client: ElasticClient,
  bytes: Buffer,
  read: () => Promise<T>,
): Promise<T> {
  try {
    return await read();
  } catch (error) {
    releaseScroll(client, findScrollId(bytes));
    throw error;
  }
}

/** Frees the scroll that a search opens whose page nobody will read. */
export function releaseUnread(client: ElasticClient, search: Promise<Buffer>): void {
  search.then((bytes) => releaseScroll(client, findScrollId(bytes))).catch(() => undefined);
}

/** The id that both products write first, before anything of a document. */
function findScrollId(bytes: Buffer): string | undefined {
  const before = /^\s*\{\s*"_scroll_id"\s*:\s*"/.exec(bytes.toString("latin1", 0, 256))?.[0].length;
  if (before === undefined) return undefined;
  // Looked for in the bytes, since a scroll over thousands of shards has an id of any length.
  const end = bytes.indexOf('"', before);
  return end > before ? bytes.toString("latin1", before, end) : undefined;
}
