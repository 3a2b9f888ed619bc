// Searches that reach other clusters by their names (`eu:logs-*`). A cluster that is down may be left out of an answer that is
// complete otherwise, with status 200 (`skip_unavailable`), so each response has to name all of them. A mapping of another
// cluster cannot be read this way: its documents are read like those whose mapping may not be seen.
import { z } from "zod";
import { BackendError, createUnsupportedError } from "../../../src/core/errors.ts";
import { tryParseJson } from "../../../src/core/json/parse-json.ts";
import { hasSelector, isRemote, listPatternParts } from "../client/query-dsl.ts";

const clusterSchema = z.object({
  status: z.string().default(""),
  failures: z
    .array(z.object({ reason: z.object({ type: z.string(), reason: z.string().nullish() }) }))
    .default([]),
});
const headSchema = z.object({
  _clusters: z.object({
    total: z.number(),
    successful: z.number(),
    details: z.record(z.string(), clusterSchema).default({}),
  }),
});

interface RemotePattern {
  /** The other clusters, each once. */
  readonly clusters: readonly string[];
  /** Whether a part of the pattern names indices of the cluster that is asked. */
  readonly hasLocal: boolean;
}

function readPattern(pattern: string): RemotePattern {
  const parts = listPatternParts(pattern).filter((part) => !part.startsWith("-"));
  const remote = parts.filter((part) => isRemote(part));
  return {
    clusters: [...new Set(remote.map((part) => part.slice(0, part.indexOf(":"))))],
    hasLocal: remote.length < parts.length,
  };
}

/**
 * Why a pattern with names of other clusters is not searched; undefined where it is. A server searches all of its own
 * indices where a cluster name with a star matches no cluster.
 */
export function describeUnsearchable(pattern: string): string | undefined {
  if (hasSelector(pattern)) return "a part of a data stream";
  if (!isRemote(pattern)) return undefined;
  const isVague = listPatternParts(pattern).some(
    (part) => isRemote(part) && /[*?]|^-/.test(part.slice(0, part.indexOf(":"))),
  );
  return isVague ? "a name of remote clusters with a star or a minus" : undefined;
}

/** @throws {Refused} for what a search may silently leave out */
export function refuseUnsearchable(backend: string, pattern: string): void {
  const feature = describeUnsearchable(pattern);
  if (feature !== undefined) throw createUnsupportedError(backend, feature);
}

/** For reads that need mappings. @throws {Refused} for indices of remote clusters too */
export function refuseRemote(backend: string, pattern: string): void {
  refuseUnsearchable(backend, pattern);
  if (isRemote(pattern))
    throw createUnsupportedError(backend, "spans or a where in indices of a remote cluster");
}

const hitsKey = Buffer.from('"hits":{');

/**
 * Checks that a response of `_search` has all clusters that a pattern names.
 * @throws {BackendError} `partial`, with the missing clusters and why; status 404 where an index is missing
 */
export function requireAllClusters(backend: string, pattern: string, bytes: Buffer): void {
  if (!isRemote(pattern)) return;
  const { clusters, hasLocal } = readPattern(pattern);
  const found = readClusters(bytes);
  const prefix = `a search of ${pattern}: not all clusters answered`;
  if (found === undefined) throw new BackendError(backend, "partial", `${prefix}, the response names none`);
  const { total, successful, details } = found;
  const isExpected = total === clusters.length || (hasLocal && total === clusters.length + 1);
  const failed = Object.entries(details).filter(([, { status }]) => status !== "successful");
  if (isExpected && successful === total && failed.length === 0) return;
  const reasons = failed.map(([name, { status, failures }]) => {
    const told = failures.map(({ reason: { type, reason } }) => `"${type}" ${reason ?? ""}`);
    return `${name} is ${status}: ${told.join(", ")}`;
  });
  const isAbsent = failed.some(([, { failures }]) =>
    failures.some(({ reason }) => reason.type === "index_not_found_exception"),
  );
  const message = [`${prefix}: ${successful} of ${total}`, ...reasons].join("; ");
  throw new BackendError(backend, "partial", message, isAbsent ? { status: 404 } : {});
}

/** Reads `_clusters` before the hits, where both products print it; else anywhere. Undefined where it is absent. */
function readClusters(bytes: Buffer): z.infer<typeof headSchema>["_clusters"] | undefined {
  const head = bytes.toString("utf8", 0, Math.max(0, bytes.indexOf(hitsKey))).replace(/,\s*$/, "}");
  const found = headSchema.safeParse(tryParseJson(head));
  return (found.success ? found : headSchema.safeParse(tryParseJson(bytes.toString("utf8")))).data?._clusters;
}
