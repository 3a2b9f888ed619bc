// What a server tells of one action of a bulk request.
import { z } from "zod";
import { BackendError } from "../../../src/core/errors.ts";

export const bulkResultSchema = z.object({
  status: z.int(),
  error: z.object({ type: z.string(), reason: z.string().nullish() }).optional(),
});
export type BulkResult = z.infer<typeof bulkResultSchema>;

export function formatBulkResult({ status, error }: BulkResult): string {
  const parts = [`status ${status}`, error?.type, error?.reason];
  return parts.filter((part) => typeof part === "string").join(": ");
}

/** `what` says what did not happen. */
export function createBulkError(backend: string, what: string, result: BulkResult): BackendError {
  const { status } = result;
  const failure = status === 429 || status === 503 ? "overloaded" : status === 403 ? "denied" : "rejected";
  return new BackendError(backend, failure, `${what}: ${formatBulkResult(result)}`, { status });
}
