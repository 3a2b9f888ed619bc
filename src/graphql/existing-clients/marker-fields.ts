// Markers of deploys for existing clients: a revision, from its first to its last request within a range.
import DataLoader from "dataloader";
import { printInstantToMilli, toMillis } from "../../core/time.ts";
import {
  type DeployMarker,
  prepareDeployMarkers,
  prepareErrorCounts,
  type RequestedRange,
} from "../../operations/incident-operations.ts";
import type { Resolvers, Session } from "../../operations/runtime/session.ts";
import { createBatchSchedule } from "../lists/list-turns.ts";
import { type AppRow, readCount } from "./incident-fields.ts";

export interface MarkerArguments extends RequestedRange {
  readonly limit?: number | null;
  readonly offset?: number | null;
  readonly revisions?: readonly (string | null)[] | null;
  readonly namespaces?: readonly (string | null)[] | null;
}

interface MarkerRow {
  readonly __typename: "DeployMarker";
  readonly marker: DeployMarker;
  /** The only one that was asked for. */
  readonly namespace: string | null;
  readonly newer: DeployMarker | undefined;
  readonly previous: MarkerRow | null;
  readonly countErrors: () => Promise<number>;
}

/** By field; existing clients know these numbers, but for the first, which nobody has told them. */
const defaultMarkers = { deployMarkers: 25, markers: 50, ofNamespace: 5 } as const;
const maxMarkers = 1_000;
/** A query of traces has a bound on its terms. */
const maxRevisionsPerQuery = 200;

/** The newest deploys first. */
export async function readMarkers(
  session: Session,
  app: AppRow,
  args: MarkerArguments,
  field: keyof typeof defaultMarkers = "deployMarkers",
): Promise<readonly MarkerRow[]> {
  const namespaces = (args.namespaces ?? []).filter((name) => name !== null);
  const { all, from, to } = await session.runLink("App.deployMarkers", () => {
    const from = readCount("offset", args.offset, 0, maxMarkers);
    const to = from + readCount("limit", args.limit, defaultMarkers[field], maxMarkers);
    const { run, ...prepared } = prepareDeployMarkers(app.id, args, namespaces);
    return { ...prepared, run: async (context) => ({ all: await run(context), from, to }) };
  });
  const counts = new DataLoader<string, number>(
    (revisions) =>
      session.runLink("DeployMarker.exceptionCount", () =>
        prepareErrorCounts(app.id, args, namespaces, revisions),
      ),
    { maxBatchSize: maxRevisionsPerQuery, batchScheduleFn: createBatchSchedule(session) },
  );
  const [only = null, ...others] = namespaces;
  const namespace = others.length === 0 ? only : null;
  const rows: MarkerRow[] = [];
  let previous: MarkerRow | null = null;
  for (let at = all.length - 1; at >= 0; at -= 1) {
    const marker = all[at];
    if (marker === undefined) continue;
    const countErrors = () => counts.load(marker.revision);
    previous = { __typename: "DeployMarker", marker, namespace, newer: all[at - 1], previous, countErrors };
    rows.unshift(previous);
  }
  const { revisions } = args;
  const named = (revisions ?? []).filter((one) => one !== null);
  const chosen = named.length === 0 ? rows : rows.filter(({ marker }) => named.includes(marker.revision));
  return chosen.slice(from, to);
}

/** Until the next deploy was first seen, or the last request of the newest. */
function measureLife({ marker, newer }: MarkerRow): number {
  return Math.max(0, Math.round((toMillis(newer?.first ?? marker.last) - toMillis(marker.first)) / 1_000));
}

const units = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
] as const;

function printSeconds(seconds: number): string {
  const [unit, length] = units.find(([, least]) => seconds >= least) ?? (["second", 1] as const);
  const count = Math.floor(seconds / length);
  return `${count} ${unit}${count === 1 ? "" : "s"}`;
}

export const markerResolvers: Resolvers = {
  DeployMarker: {
    id: ({ marker }: MarkerRow) => marker.revision,
    revision: ({ marker }: MarkerRow) => marker.revision,
    shortRevision: ({ marker }: MarkerRow) => marker.revision.slice(0, 7),
    createdAt: ({ marker }: MarkerRow) => printInstantToMilli(marker.first),
    lastOccurredAt: ({ marker }: MarkerRow) => printInstantToMilli(marker.last),
    liveFor: (row: MarkerRow) => measureLife(row),
    liveForInWords: (row: MarkerRow) => printSeconds(measureLife(row)),
    previousDeploy: ({ previous }: MarkerRow) => previous,
    exceptionCount: ({ countErrors }: MarkerRow) => countErrors(),
    exceptionRate: async ({ marker, countErrors }: MarkerRow) =>
      (100 * (await countErrors())) / Math.max(1, marker.requests),
  },
};
