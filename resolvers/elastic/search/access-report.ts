// What `readout check` says about the rights of the user: what security hides or masks, and what it does not permit.
// Elasticsearch shows a user's own document and field restrictions. OpenSearch does not.
import { z } from "zod";
import { BackendError, isRefusedBySource } from "../../../src/core/errors.ts";
import type { ElasticClient } from "../client/client.ts";
import { matchAll } from "../client/query-dsl.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { listVerbatimColumns, probeSample } from "./masked-fields.ts";
import { canMaskFields } from "./masked-filters.ts";
import { formatNames } from "./search.ts";

/** Fields probed in one request; each takes an aggregation. */
const maxFieldsPerRequest = 200;

/**
 * What security keeps from this user, as sentences for `readout check`. `consequence` says what masked fields lead to.
 * @throws {BackendError}
 */
export async function findRestrictions(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  return [
    ...(await reportScrollLimits(client, signal)),
    ...(await reportHiddenData(client, signal)),
    ...(await reportMaskedFields(client, pattern, metadata, consequence, signal)),
  ];
}

/** Reports the masked fields among those that the first documents have. */
async function reportMaskedFields(
  client: ElasticClient,
  pattern: string,
  metadata: IndexMetadata,
  consequence: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!(await canMaskFields(client, signal))) return [];
  const masked: string[] = [];
  const names = listVerbatimColumns(metadata);
  for (let at = 0; at < names.length; at += maxFieldsPerRequest) {
    const chunk = names.slice(at, at + maxFieldsPerRequest);
    const found = await probeSample(client, pattern, matchAll, chunk, signal).catch(suppressReported);
    for (const [name, isMasked] of found) if (isMasked) masked.push(name);
  }
  if (masked.length === 0) return [];
  return [`${formatNames(masked)}: masked for this user; ${consequence}`];
}

/** Failures that other searches have too are reported for those. */
function suppressReported(error: unknown): ReadonlyMap<string, boolean> {
  if (error instanceof BackendError && (error.failure === "malformed" || error.failure === "partial"))
    throw error;
  suppressUnlessTimeout(error);
  return new Map();
}

const privilegesForm = z.object({
  indices: z.array(
    z.object({ names: z.array(z.string()), field_security: z.unknown(), query: z.unknown() }).partial(),
  ),
});

/** Reports the restrictions that Elasticsearch shows to the user. */
async function reportHiddenData(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if (!client.hasCredentials || !(await client.detectProduct(signal)).showsRestrictions) return [];
  const request = { method: "GET", path: "/_security/user/_privileges" } as const;
  const response = await client.sendJson(request, signal).catch(suppressUnlessTimeout);
  if (response === undefined) return [];
  const { indices = [] } = privilegesForm.safeParse(response).data ?? {};
  return indices.flatMap(({ names = [], field_security, query }) => {
    const kept = [
      ...(query === undefined ? [] : ["documents"]),
      ...(field_security === undefined ? [] : ["fields"]),
    ];
    if (kept.length === 0) return [];
    return [`${formatNames(names)}: security hides ${kept.join(" and ")} from this user`];
  });
}

function suppressUnlessTimeout(error: unknown): undefined {
  if (error instanceof BackendError && error.failure !== "timeout") return;
  throw error;
}

/** Reports missing scroll permissions. OpenSearch has separate ones, probed with a scroll that does not exist. */
async function reportScrollLimits(client: ElasticClient, signal: AbortSignal): Promise<readonly string[]> {
  if (!(await client.detectProduct(signal)).hasScrollPermissions) return [];
  const path = "/_search/scroll";
  const next = {
    method: "POST",
    path,
    body: JSON.stringify({ scroll: "1s", scroll_id: "readout" }),
  } as const;
  const clear = { method: "DELETE", path, body: JSON.stringify({ scroll_id: ["readout"] }) } as const;
  const permission = "indices:data/read/scroll";
  const limits: string[] = [];
  if (await isDenied(client, next, signal)) {
    limits.push(
      `large traces, and many lines of one millisecond, are errors without the cluster permission ${permission}`,
    );
  }
  if (await isDenied(client, clear, signal)) {
    limits.push(`scrolls hold resources for a minute without the cluster permission ${permission}/clear`);
  }
  return limits;
}

async function isDenied(
  client: ElasticClient,
  request: Parameters<ElasticClient["send"]>[0],
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await client.send(request, signal);
  } catch (error) {
    if (!isRefusedBySource(error)) throw error;
    return error.failure === "denied";
  }
  return false;
}
