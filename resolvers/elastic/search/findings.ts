// What an inspection finds, gathered so that what holds for many indices is one sentence about all of them.
import { requireFirst } from "../../../src/core/collections.ts";
import type { SourceInspection } from "../../../src/store/inspection.ts";
import type { IndexMetadata } from "../mapping/mapping.ts";
import { TenantFilterError } from "../query/tenant-filter.ts";

/** A sentence, or what holds for some indices. */
export type Finding = string | { readonly indices: readonly string[]; readonly text: string };

/** What an inspection has found so far. Problems keep a source from being read, limitations do not. */
export interface Findings {
  readonly limitations: Finding[];
  readonly problems: Finding[];
  /** Why the tenant filter does not hold, which is a problem as well. */
  tenantFilterFault?: string;
}

/** What one search of an export, or one page of a scroll, asks for. */
const neededWindow = 1_024;

/** Adds to the limitations the indices that let a search return fewer hits than reading needs. */
export function addNarrowWindows({ limitations }: Findings, { resultWindows }: IndexMetadata): void {
  for (const [index, window] of resultWindows) {
    if (window >= neededWindow) continue;
    const text = `index.max_result_window is ${window}, so all indices of the pattern are read ${window} at a time; ${neededWindow} is enough`;
    limitations.push({ indices: [index], text });
  }
}

/** Adds to the problems why a tenant filter does not hold; throws any other error. */
export function addTenantFilterFault(findings: Findings, error: unknown): void {
  if (!(error instanceof TenantFilterError)) throw error;
  findings.problems.push(error.message);
  findings.tenantFilterFault = error.message;
}

export function printFindings({
  limitations,
  problems,
  tenantFilterFault,
}: Findings): Pick<SourceInspection, "limitations" | "problems" | "faultyIndices" | "tenantFilterFault"> {
  const faulty = problems.flatMap((problem) => (typeof problem === "string" ? [] : [problem.indices]));
  const areOfIndices = faulty.length > 0 && faulty.length === problems.length;
  return {
    limitations: formatFindings(limitations),
    problems: formatFindings(problems),
    ...(areOfIndices && { faultyIndices: [...new Set(faulty.flat())] }),
    ...(tenantFilterFault !== undefined && { tenantFilterFault }),
  };
}

/** Each finding as one sentence, in the order in which its text was found first. */
export function formatFindings(findings: readonly Finding[]): readonly string[] {
  const byText = new Map<string, Set<string>>();
  for (const finding of findings) {
    const { indices, text } = typeof finding === "string" ? { indices: [], text: finding } : finding;
    const known = byText.get(text) ?? new Set();
    for (const index of indices) known.add(index);
    byText.set(text, known);
  }
  return [...byText].map(([text, indices]) =>
    indices.size === 0 ? text : `${formatIndices([...indices].sort())}: ${text}`,
  );
}

/** Up to two names, or how many there are with the first two. */
function formatIndices(indices: readonly string[]): string {
  const [first, second] = [requireFirst(indices), indices[1]];
  if (indices.length <= 2) return indices.join(", ");
  return `${indices.length} indices (${first}, ${second} and ${indices.length - 2} more)`;
}
