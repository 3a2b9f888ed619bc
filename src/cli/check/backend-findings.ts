// What `readout check` finds of the backends and of each part that they serve, of figures, documents and the user's own Mesh.
import type { Config } from "../../config/config.ts";
import { mapConcurrent } from "../../core/async/concurrency.ts";
import { BackendError } from "../../core/errors.ts";
import { type Instant, type Millis, printDuration, toMillis } from "../../core/time.ts";
import { openDocumentDirectory } from "../../graphql/document-directory.ts";
import { startRequest } from "../../operations/runtime/lifetime.ts";
import type { Backend, BackendInfo, LogEvent } from "../../store/backend.ts";
import { surveyRollups } from "../../tracing/rollup-store/survey.ts";
import { findMeshProblems } from "../support/graphql-loader.ts";
import { describeError, openBackend } from "../support/open-backend.ts";
import type { Shell } from "../support/shell.ts";
import {
  type InspectionResult,
  listInspections,
  type NamedSite,
  type SiteInspection,
} from "../support/site-inspections.ts";

/** More inspections at once would fill the queue of the backend, which is bounded. */
const maxConcurrentInspections = 16;

export type Outcome<T> = { readonly value: T } | { readonly failure: string };

export interface BackendFinding {
  readonly name: string;
  readonly info: Outcome<BackendInfo>;
  readonly roundTrip: Millis;
  /** How far the clock of the backend is ahead of this machine's, at least; negative where it is behind. */
  readonly clockAhead: Millis;
  /** The parts for which the backend has a store. */
  readonly serves: ReadonlySet<string>;
  /** The inspections in the order of the file; empty when the backend did not answer. */
  readonly parts: readonly PartFinding[];
}
export interface PartFinding extends Pick<SiteInspection, "site" | "part" | "title"> {
  readonly outcome: Outcome<InspectionResult>;
}

/** A file may have several, a line each. */
export function listFaults({ message, reason }: LogEvent): readonly string[] {
  return String(reason ?? message).split("\n");
}

export interface DocumentFindings {
  readonly count: number;
  readonly problems: readonly string[];
}

/** The documents that clients name by a hash. Whether they fit a schema of the user's own Mesh is not known here. */
export async function inspectDocuments({ graphql, mesh }: Config): Promise<DocumentFindings | undefined> {
  const folder = graphql?.documents;
  if (folder === undefined) return undefined;
  const problems: string[] = [];
  const directory = await openDocumentDirectory({
    folder: () => folder,
    log: (event) => problems.push(...listFaults(event)),
  });
  directory.close();
  const documents = directory.list();
  if (mesh === undefined) {
    const { schema } = await import("../../graphql/schema.ts");
    const { findDocumentFaults } = await import("../../graphql/document-faults.ts");
    problems.push(...findDocumentFaults(schema, documents));
  }
  return { count: [...documents.values()].flat().length, problems };
}

/** Returns the faults of the user's own Mesh configuration and of its sources. */
export async function inspectMesh(
  { mesh }: Config,
  shell: Shell,
  deadline: Millis,
): Promise<readonly string[]> {
  if (mesh === undefined) return [];
  const outcome = await tryInTime(() => findMeshProblems(mesh, shell), shell, deadline);
  return "value" in outcome ? outcome.value : [outcome.failure];
}

export type Kept = Awaited<ReturnType<typeof surveyRollups>>;

/** What is kept of the figures of spans; undefined where the configuration keeps none. */
export async function inspectRollups(
  config: Config,
  file: string,
  shell: Shell,
  deadline: Millis,
): Promise<Outcome<Kept> | undefined> {
  const { rollups } = config;
  if (rollups === undefined) return undefined;
  const created = tryOpenBackend(rollups.backend, config, file, shell);
  if ("failure" in created) return created;
  const { value: backend } = created;
  try {
    const store = backend.openRollups?.(rollups.index);
    if (store === undefined) return { failure: `${rollups.backend} cannot keep figures` };
    return await tryInTime((own) => surveyRollups(store, toMillis(shell.now()), own), shell, deadline);
  } finally {
    await backend.close().catch(() => undefined);
  }
}

/** Probes a backend, then inspects every part that it serves. Rejects only when `shell.signal` is aborted. */
export async function inspectBackend(
  name: string,
  sites: readonly NamedSite[],
  config: Config,
  file: string,
  shell: Shell,
  deadline: Millis,
): Promise<BackendFinding> {
  let backend: Backend | undefined;
  try {
    const created = tryOpenBackend(name, config, file, shell);
    if ("failure" in created)
      return { name, info: created, roundTrip: 0, clockAhead: 0, serves: new Set(), parts: [] };
    const { value: connected } = created;
    backend = connected;
    const start = performance.now();
    const info = await tryInTime((signal) => connected.probe(signal), shell, deadline);
    const roundTrip = performance.now() - start;
    const clockAhead = "value" in info ? await compareClocks(connected, shell, deadline) : 0;
    const questions = "value" in info ? listInspections(connected, sites) : [];
    const parts = await mapConcurrent(
      questions,
      maxConcurrentInspections,
      async ({ inspect, ...question }) => ({
        ...question,
        outcome: await tryInTime(inspect, shell, deadline),
      }),
      shell.signal,
    );
    return { name, info, roundTrip, clockAhead, serves: new Set(Object.keys(connected.inspections)), parts };
  } finally {
    // The findings are valid even where the connections cannot be closed.
    await backend?.close().catch(() => undefined);
  }
}

/** 0 also where the backend does not tell its time. */
async function compareClocks(backend: Backend, shell: Shell, deadline: Millis): Promise<Millis> {
  const before = shell.now();
  const read = await tryInTime(async (signal) => backend.readClock?.(signal), shell, deadline);
  const after = shell.now();
  if ("failure" in read || read.value === undefined) return 0;
  // What the request took may lie before the clock was read, or after it.
  if (read.value > after) return toMillis((read.value - after) as Instant);
  return read.value < before ? -toMillis((before - read.value) as Instant) : 0;
}

export function tryOpenBackend(name: string, config: Config, file: string, shell: Shell): Outcome<Backend> {
  try {
    const backend = openBackend(name, config, file, shell);
    return backend === undefined ? { failure: "has no kind" } : { value: backend };
  } catch (error) {
    return { failure: describeFailure(error) };
  }
}

/** Returns the value of the call, or its failure; in time, even if the call never ends. */
export async function tryInTime<T>(
  call: (signal: AbortSignal) => Promise<T>,
  shell: Shell,
  deadline: Millis,
): Promise<Outcome<T>> {
  const { signal, wait, end } = startRequest(shell.signal, deadline);
  try {
    return { value: await wait(call(signal)) };
  } catch (error) {
    return {
      failure: signal.aborted ? `no answer within ${printDuration(deadline)}` : describeFailure(error),
    };
  } finally {
    end();
  }
}

function describeFailure(error: unknown): string {
  const safe = describeError(error);
  return error instanceof BackendError ? `${error.failure}: ${safe}` : safe;
}
