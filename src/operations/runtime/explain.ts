// `?explain=true` (ours): not the answer, but how it comes about. The request is run as it always is, under a recorder,
// and its rows are counted instead of sent. So what is told is what was sent, and not what would be.
import * as z from "zod";
import { BackendError, NotFound, Unprocessable } from "../../core/errors.ts";
import { type Millis, printInstant, type TimeRange } from "../../core/time.ts";
import { print } from "../../log-query/print.ts";
import type { LeafPlan, LogStore, SourcePlan } from "../../store/logs.ts";
import {
  type Choice,
  type RecordedRequest,
  type Recorder,
  runWithRecorder,
} from "../../telemetry/request-recorder.ts";
import { describeFailure, type FailureResponse } from "./error-response.ts";
import type { Context, PreparedOperation } from "./operation.ts";
import { createInvalidRequest } from "./request-body.ts";

/** What a request means, before anything is read; its keys depend on the operation. */
type Meaning = Readonly<Record<string, unknown>>;

export interface Explanation extends Meaning {
  readonly answer:
    | { readonly rows: number }
    | { readonly failed: FailureResponse["body"]; readonly status: number };
  readonly read: readonly (ReadReport | SampledReport)[];
  /** Where a store had several ways to the same answer. */
  readonly choices?: readonly Choice[];
  /** In the order in which they were begun. */
  readonly requests: readonly RequestReport[];
  /** Beyond those that are shown. */
  readonly more_requests: number;
  /** Milliseconds: what the request means, running it, and of that the time in which some source was waited for. */
  readonly time: { readonly plan_ms: number; readonly run_ms: number; readonly sources_ms: number };
}

interface ReadReport {
  readonly source_id?: string;
  readonly documents: number;
  readonly kept?: number;
}

interface SampledReport {
  readonly backend: string;
  readonly series: number;
  readonly samples: number;
}

interface RequestReport {
  readonly backend: string;
  readonly method: string;
  readonly path: string;
  readonly parameters?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  /** Milliseconds since the explanation began. */
  readonly at_ms: number;
  readonly took_ms: number;
  readonly outcome: RecordedRequest["outcome"];
}

/** Not that of the answer, so that an OpenAPI document can say what each of them is. */
export const explanationType = "application/vnd.readout.explanation+json";

const figure = (description: string) => z.number().meta({ description });
const millis = (description: string) => z.number().meta({ description, "x-unit": "ms" });

/** For documentation. What a request means has other keys for each operation. */
export const explanationSchema = z
  .looseObject({
    answer: z
      .looseObject({
        rows: figure("How many rows the answer has; one value is one row.").optional(),
        status: figure("Of the error that the answer would be, instead of rows.").optional(),
        failed: z.looseObject({}).optional().meta({ description: "The body of that error." }),
      })
      .meta({ description: "What the request is answered." }),
    read: z.array(z.looseObject({})).meta({
      description: "What was read of each source: documents, and how many were kept; or series and samples.",
    }),
    choices: z
      .array(
        z.looseObject({
          backend: z.string().meta({ description: "A name of the configuration." }),
          of: z.string().meta({ description: "The metric, or the analysis of spans." }),
          how: z.string().meta({
            description:
              "A metric: `grouped` by the source, or `read` by series. Spans: from `rollups`, or `read`.",
          }),
          why: z.string().meta({ description: "In words." }),
          ranges: z
            .array(z.looseObject({}))
            .optional()
            .meta({ description: "Of rollups: which parts of the range were kept, and which were read." }),
        }),
      )
      .optional()
      .meta({ description: "Where there are several ways to the same answer, which was taken." }),
    requests: z
      .array(
        z.looseObject({
          backend: z.string().meta({ description: "A name of the configuration." }),
          method: z.string().meta({ description: "Of HTTP." }),
          path: z.string().meta({ description: "At the source." }),
          parameters: z.looseObject({}).optional().meta({ description: "Of the query or the form." }),
          body: z.unknown().optional().meta({ description: "As it was sent." }),
          at_ms: millis("When it was begun, since the explanation was."),
          took_ms: millis("How long it took."),
          outcome: z.string().meta({ description: "`ok`, or how it failed." }),
        }),
      )
      .meta({ description: "What the sources were asked, in the order in which it was begun." }),
    more_requests: figure("Beyond those that are shown."),
    time: z
      .looseObject({
        plan_ms: millis("To find out what the request means."),
        run_ms: millis("To run it."),
        sources_ms: millis("How long a source was waited for, of both."),
      })
      .meta({ description: "How long it took." }),
  })
  .meta({
    description:
      "How a request is answered, for people. Beside these keys stands what it means, which differs between the routes.",
  });

/** A request that reads half a million documents sends hundreds of these, and they are all alike. */
const maxRequestsShown = 50;

/**
 * The same request, to be explained. Its sites are authorised as ever.
 * @throws {Unprocessable} `invalid_request` where the route has no explanation
 */
export function prepareExplanation(prepared: PreparedOperation): PreparedOperation {
  const { name, scopes, sites, run, explain } = prepared;
  if (explain === undefined) throw createExplainError("this route has no explanation");
  return { name, scopes, sites, run: (context) => runExplained(explain, run, context) };
}

/** Whether `?explain=true` asks for it. @throws {Unprocessable} `invalid_request` for any other value but `false` */
export function isExplanationRequested(search: string): boolean {
  if (!search.includes("explain=")) return false;
  const value = new URLSearchParams(search).get("explain");
  if (value === null || value === "false") return false;
  if (value !== "true") throw createExplainError("expected true or false");
  return true;
}

function createExplainError(message: string): Unprocessable {
  return createInvalidRequest([{ path: "explain", message }]);
}

async function runExplained(
  explain: NonNullable<PreparedOperation["explain"]>,
  run: PreparedOperation["run"],
  moving: Context,
): Promise<Explanation> {
  // Meaning and run are of one moment.
  const now = moving.now();
  const context = { ...moving, now: () => now };
  const began = performance.now();
  const { recorder, requests, read, sampled, choices } = createRequestLedger();
  return runWithRecorder(recorder, async () => {
    // A query that cannot be parsed is answered as ever; what fails later is part of the explanation.
    const meaning = await explain(context);
    const planned = performance.now();
    const answer = await countAnswerRows(run, context).then(
      (rows) => ({ rows }),
      (error: unknown) => toFailedAnswer(error, context),
    );
    const ended = performance.now();
    const sent = requests.toSorted((a, b) => a.started - b.started);
    return {
      ...meaning,
      answer,
      read: [...read.values(), ...sampled.values()],
      ...(choices.length > 0 && { choices }),
      requests: sent.slice(0, maxRequestsShown).map((request) => toRequestReport(request, began)),
      more_requests: Math.max(0, sent.length - maxRequestsShown),
      time: {
        plan_ms: roundMillis(planned - began),
        run_ms: roundMillis(ended - planned),
        sources_ms: roundMillis(sumBusyTime(sent)),
      },
    };
  });
}

function createRequestLedger() {
  const requests: RecordedRequest[] = [];
  const read = new Map<string | undefined, ReadReport>();
  const sampled = new Map<string, SampledReport>();
  const choices: Choice[] = [];
  const recorder: Recorder = {
    recordRequest: (request) => void requests.push(request),
    recordDocuments({ source, documents, kept }) {
      const before = read.get(source);
      read.set(source, {
        ...(source !== undefined && { source_id: source }),
        documents: (before?.documents ?? 0) + documents,
        ...(kept !== undefined && { kept: (before?.kept ?? 0) + kept }),
      });
    },
    recordSamples({ backend, series, samples }) {
      const before = sampled.get(backend) ?? { series: 0, samples: 0 };
      sampled.set(backend, {
        backend,
        series: before.series + series,
        samples: before.samples + samples,
      });
    },
    recordChoice: (choice) => void choices.push(choice),
  };
  return { recorder, requests, read, sampled, choices };
}

/** How many rows the answer has; one value is one row. */
async function countAnswerRows(run: PreparedOperation["run"], context: Context): Promise<number> {
  const result = run(context);
  if ("then" in result) {
    await result;
    return 1;
  }
  let rows = 0;
  for await (const batch of "pieces" in result ? result.pieces : result) rows += batch.count;
  return rows;
}

/** As the client would have been told. */
function toFailedAnswer(error: unknown, { signal }: Context): Explanation["answer"] {
  const known = error instanceof BackendError || error instanceof Unprocessable || error instanceof NotFound;
  if (signal.aborted || !known) throw error;
  const { status, body } = describeFailure(error);
  return { status, failed: body };
}

function toRequestReport(
  { backend, method, path, parameters, body, ...rest }: RecordedRequest,
  began: Millis,
): RequestReport {
  const { started, took, outcome } = rest;
  return {
    backend,
    method,
    path,
    ...(parameters !== undefined && { parameters }),
    ...(body !== undefined && { body: JSON.parse(body) }),
    at_ms: roundMillis(started - began),
    took_ms: roundMillis(took),
    outcome,
  };
}

/** How long at least one of them was under way. */
function sumBusyTime(sent: readonly RecordedRequest[]): Millis {
  let total = 0;
  let until = Number.NEGATIVE_INFINITY;
  for (const { started, took } of sent) {
    const end = started + took;
    if (end > until) total += end - Math.max(started, until);
    until = Math.max(until, end);
  }
  return total;
}

function roundMillis(millis: Millis): number {
  return Math.round(millis * 10) / 10;
}

// ---- What requests mean -------------------------------------------------------------------------------------

export function printTimeRange({ from, to }: TimeRange): { readonly from: string; readonly to: string } {
  return { from: printInstant(from), to: printInstant(to) };
}

/** How a store would find the lines; a store that does not say is told as such. */
export async function explainSources(
  store: LogStore,
  query: Parameters<LogStore["lines"]>[0],
  { signal }: Context,
): Promise<readonly Meaning[]> {
  const plans = (await store.explain?.(query, signal)) ?? query.sources.map(createUnknownPlan);
  return plans.map(({ source, backend, layout, indices, leaves, notes }) => ({
    source_id: source.id,
    ...(backend !== undefined && { backend }),
    index: source.index,
    layout,
    indices: indices ?? null,
    leaves: leaves.map((leaf) => describeLeaf(leaf, indices?.length)),
    notes,
  }));
}

function createUnknownPlan(source: SourcePlan["source"]): SourcePlan {
  const notes = ["the store does not tell how it finds lines"];
  return { source, layout: source.layout, indices: undefined, leaves: [], notes };
}

/** With its indices where it is another matter in others. */
function describeLeaf({ leaf, by, why, indices }: LeafPlan, all: number | undefined): Meaning {
  const isEverywhere = indices.length === 0 || indices.length === all;
  return { leaf: print(leaf), by, why, ...(!isEverywhere && { indices }) };
}
