// A scroll: what no search holds comes in parts, which together are as many documents as the first of them promised.
import { BackendError } from "../../../src/core/errors.ts";
import type { ElasticClient } from "./client.ts";

/** The option of a search that is the first part. */
export const scrollOptions = { scroll: "1m" } as const;

/** The bytes of the part that follows an answer. @throws {BackendError} */
export async function fetchNextPage(
  backend: string,
  client: ElasticClient,
  { scrollId }: { readonly scrollId: string | undefined },
  signal: AbortSignal,
): Promise<Buffer> {
  if (scrollId === undefined) throw new BackendError(backend, "malformed", "a scroll without an id");
  const body = JSON.stringify({ ...scrollOptions, scroll_id: scrollId });
  return client.send({ method: "POST", path: "/_search/scroll", body }, signal);
}

/** @throws {BackendError} */
export function requireCompleteScroll(backend: string, read: number, promised: number): void {
  if (read === promised) return;
  throw new BackendError(backend, "partial", `a scroll gave ${read} of ${promised} documents`);
}

/** Frees the scroll at the source; nobody waits for it, and the source forgets it by itself within a minute. */
export function releaseScroll(client: ElasticClient, scrollId: string | undefined): void {
  if (scrollId === undefined) return;
  const body = JSON.stringify({ scroll_id: [scrollId] });
  client
    .send({ method: "DELETE", path: "/_search/scroll", body }, new AbortController().signal)
    .catch(() => undefined);
}
