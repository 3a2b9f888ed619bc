// Routes of existing clients beside `/api/v2`: markers of deploys and samples of a site, and whose token it is. Their answers
// have the shape that those clients know; they are no part of the OpenAPI document and no fields of GraphQL.
import * as z from "zod";
import { NotFound, Refused } from "../core/errors.ts";
import { printAttribute } from "../core/json/lossless-json.ts";
import { type Attributes, compare, type TraceSummary } from "../core/rows.ts";
import { fromMillis, parseInstant, printInstant, printInstantToMilli, toMillis } from "../core/time.ts";
import { prepareDeployMarkers, prepareSamples, printSampleId, readSampleId } from "./incident-operations.ts";
import type { Context, Operation } from "./runtime/operation.ts";
import { checkRange, createRangeCheck, type RequestTime } from "./runtime/request-body.ts";

const app = z.string();

/** ISO 8601, or seconds since 1970. */
const moment = z
  .string()
  .transform((written, context): RequestTime => {
    const text = /^\d{1,11}$/.test(written) ? printInstant(fromMillis(Number(written) * 1_000)) : written;
    const instant = parseInstant(text);
    if (instant !== undefined) return { instant, text };
    context.addIssue({
      code: "custom",
      message: "expected an ISO 8601 time with a zone, or seconds since 1970",
    });
    return z.NEVER;
  })
  .optional();

const limit = z
  .string()
  .regex(/^\d{1,4}$/, "expected a whole number from 0 to 1000")
  .transform(Number)
  .refine((count) => count <= 1_000, "expected a whole number from 0 to 1000")
  .optional();
/** Of samples and of markers. */
const defaultRows = 10;
const countOnly = z.enum(["true", "false"], "expected true or false").optional();

/** Clients write an action's name so in an address. */
function unescapeAction(text: string): string {
  return text.replaceAll("-hash-", "#").replaceAll("-slash-", "/").replaceAll("-dot-", ".");
}

// ---- Samples ------------------------------------------------------------------------------------------------

const samplesQuery = z
  .object({
    app,
    since: moment,
    before: moment,
    limit,
    count_only: countOnly,
    action_id: z.string().transform(unescapeAction).optional(),
    exception: z.string().optional(),
  })
  .check(createRangeCheck("since", "before"));
type SamplesRequest = z.output<typeof samplesQuery>;

const anyJson = z.unknown();

type SampleKind = "errors" | "requests";

function toSample(row: TraceSummary) {
  return {
    id: printSampleId(row),
    action: row.action_name,
    path: null,
    duration: Number(row.duration) / 1e6,
    status: null,
    time: Math.floor(toMillis(row.time) / 1_000),
    is_exception: row.exception !== undefined,
    exception: { name: row.exception?.name ?? null },
  };
}

async function readSamples(
  { app: site, since, before, limit: most = defaultRows, count_only, action_id, exception }: SamplesRequest,
  kinds: readonly SampleKind[],
  context: Context,
) {
  const { rows: rowLimit } = context.limits;
  const isCount = count_only === "true";
  const wanted = isCount ? rowLimit + 1 : most;
  const found = await Promise.all(
    // A request has no exception of its own.
    kinds
      .filter((kind) => kind === "errors" || exception === undefined)
      .map((candidates) =>
        prepareSamples(
          site,
          { start: since?.text, end: before?.text },
          { candidates, action: action_id, exception, limit: wanted },
        ).run(context),
      ),
  );
  const rows = found.flat().toSorted((a, b) => compare(b.time, a.time) || compare(a.trace_id, b.trace_id));
  if (!isCount) {
    const entries = rows.slice(0, most).map(toSample);
    return { count: entries.length, log_entries: entries };
  }
  if (rows.length <= rowLimit) return { count: rows.length };
  const message = `There are more than ${rowLimit} samples in the range; narrow it`;
  throw new Refused("result_too_large", message, { limit: rowLimit });
}

function createSamplesRoute(
  path: "samples" | "samples/errors" | "samples/performance",
  kinds: readonly SampleKind[],
): Operation<SamplesRequest, unknown> {
  return {
    name: `tracing.client_${path.replace("/", "_")}`,
    method: "GET",
    path: `/api/{app}/${path}.json`,
    access: "token",
    scope: "tracing",
    summary: "Samples of a site, newest first",
    readsQuery: true,
    request: samplesQuery,
    answer: anyJson,
    sites: (request) => [request.app],
    run: (request, context) => readSamples(request, kinds, context),
  };
}

export const samples = createSamplesRoute("samples", ["errors", "requests"]);
export const errorSamples = createSamplesRoute("samples/errors", ["errors"]);
export const performanceSamples = createSamplesRoute("samples/performance", ["requests"]);

const sampleQuery = z.object({ app, id: z.string() });
const suffix = ".json";

/** One sample by the id that lists give it. */
export const sample: Operation<z.output<typeof sampleQuery>, unknown> = {
  name: "tracing.client_sample",
  method: "GET",
  path: "/api/{app}/samples/{id}",
  access: "token",
  scope: "tracing",
  summary: "One sample",
  request: sampleQuery,
  answer: anyJson,
  sites: (request) => [request.app],
  run: async ({ app: site, id }, context) => {
    const { traceId, spanId } = readSampleId(id.endsWith(suffix) ? id.slice(0, -suffix.length) : "");
    if (traceId === "" || spanId === "") throw new NotFound();
    const found = await Promise.all(
      (["errors", "requests"] as const).map((candidates) =>
        prepareSamples(site, {}, { candidates, traceId, limit: 1_000 }).run(context),
      ),
    );
    const row = found.flat().find((one) => one.span_id === spanId);
    if (row === undefined) throw new NotFound();
    const { exception, namespace, revision = null, tags } = row;
    const backtrace = (exception?.stacktrace ?? "").split("\n").filter((line) => line.trim() !== "");
    return {
      ...toSample(row),
      namespace,
      revision,
      tags: toTexts(tags),
      exception: { name: exception?.name ?? null, message: exception?.message ?? null, backtrace },
    };
  },
};

/** Values as texts: a number may have more digits than JSON's readers keep. */
function toTexts(tags: Attributes): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(tags).map(([key, value]) => [key, printAttribute(value)]));
}

// ---- Markers ------------------------------------------------------------------------------------------------

const markersQuery = z
  .object({ app, from: moment, to: moment, limit, count_only: countOnly })
  .check(checkRange);

/** Revisions whose first request lies in the range, newest first. */
export const markers: Operation<z.output<typeof markersQuery>, unknown> = {
  name: "deploys.client_markers",
  method: "GET",
  path: "/api/{app}/markers.json",
  access: "token",
  scope: "deploys",
  summary: "Deploys of a site, newest first",
  readsQuery: true,
  request: markersQuery,
  answer: anyJson,
  sites: (request) => [request.app],
  run: async ({ app: site, from, to, limit: most = defaultRows, count_only }, context) => {
    const range = { start: from?.text, end: to?.text };
    const found = await prepareDeployMarkers(site, range, []).run(context);
    if (count_only === "true") return { count: found.length };
    const page = found.slice(0, most);
    return {
      count: page.length,
      markers: page.map(({ revision, first }, index) => {
        const next = found[index - 1];
        return {
          id: revision,
          revision,
          short_revision: revision.slice(0, 7),
          created_at: printInstantToMilli(first),
          closed_at: next === undefined ? null : printInstantToMilli(next.first),
          live_for: next === undefined ? null : Math.round((toMillis(next.first) - toMillis(first)) / 1_000),
          user: null,
          repository: null,
          gem_version: null,
          git_compare_url: null,
        };
      }),
    };
  },
};

// ---- Token --------------------------------------------------------------------------------------------------

/** There is one organization, which an existing command line lists the apps of. */
export const tokenInfo: Operation<undefined, unknown> = {
  name: "client_token_info",
  method: "GET",
  path: "/oauth/token/info",
  access: "token",
  scope: "none",
  summary: "The organization of a token",
  answer: anyJson,
  request: z.unknown().transform(() => undefined),
  sites: () => [],
  run: async () => ({ account: { slug: "readout" } }),
};
