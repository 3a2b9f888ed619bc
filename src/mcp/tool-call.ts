// Runs a tool: its operation, through the executor as every request, and the page of its rows that is asked for.
import * as z from "zod";
import type { Site } from "../access/sites.ts";
import type { Limits } from "../config/limits.ts";
import { BackendError, NotFound, Unauthorized, Unprocessable } from "../core/errors.ts";
import { type Instant, printInstant, printInstantToMilli } from "../core/time.ts";
import {
  type Incident,
  type IncidentPage,
  prepareIncidentLookup,
  prepareIncidents,
  requireSingleIncident,
} from "../operations/incident-operations.ts";
import { prepareRemainingLines } from "../operations/remaining-lines.ts";
import { describeFailure } from "../operations/runtime/error-response.ts";
import { prepareExplanation } from "../operations/runtime/explain.ts";
import type { Endpoint, PreparedOperation } from "../operations/runtime/operation.ts";
import { createInvalidRequest } from "../operations/runtime/request-body.ts";
import {
  type Args,
  completeRange,
  defaultCellChars,
  defaultPageSize,
  maxReadRows,
  type OwnArguments,
  omitOwnArguments,
  parseOwnArguments,
  selectSite,
} from "./tool-arguments.ts";
import {
  decodeCursor,
  encodeCursor,
  type FittedRows,
  fitRows,
  hashArguments,
  type Position,
} from "./tool-pages.ts";
import { findTool, isExplainTool, type PageOrder, type Tool, type ToolPlan } from "./tools.ts";
import { createPlanCheck, createToolCheck, describeUnused, isUsedByExplain } from "./unused-arguments.ts";

/** What one request of an agent is answered through. */
export interface ToolSession {
  readonly sites: readonly Site[];
  readonly endpoints: readonly Endpoint[];
  readonly limits: Limits;
  readonly now: () => Instant;
  /** Of the request: aborted when nobody waits for its answer any more. */
  readonly signal: AbortSignal;
  /** The whole answer of an operation, as REST would give it. Throws what REST would refuse it with. */
  readonly complete: (prepare: () => PreparedOperation) => Promise<unknown>;
  /** Logs what is no client's fault. */
  readonly reportFailure: (tool: string, error: unknown) => void;
}

/** What is answered as `structuredContent`. */
export interface ToolPage {
  readonly rows: readonly unknown[];
  /** Beside the rows, as REST names it. */
  readonly fields?: Args;
  /** Of the rows behind this page; null where there are some and the source has not counted them. */
  readonly left: number | null;
  /** Null on the last page. */
  readonly cursor: string | null;
  readonly note?: string;
}

export interface ToolRefusal {
  /** As REST would answer it. */
  readonly error: string;
  readonly message: string;
  readonly advice: string;
  readonly details?: unknown;
}

type ToolOutcome = { readonly page: ToolPage } | { readonly refusal: ToolRefusal };

/** Undefined where there is no such tool. Never throws what the client may not see. */
export async function callTool(
  name: string,
  given: unknown,
  session: ToolSession,
): Promise<ToolOutcome | undefined> {
  const tool = findTool(name);
  if (tool === undefined && !isExplainTool(name)) return undefined;
  try {
    const args = readArguments(given);
    if (tool !== undefined) return { page: await runTool(tool, args, session) };
    return { page: await explainCall(args, session) };
  } catch (error) {
    session.reportFailure(name, error);
    return { refusal: describeRefusal(error) };
  }
}

/** The page of a tool; rejects with what the call is refused with. */
export async function readPage(name: string, args: Args, session: ToolSession): Promise<ToolPage> {
  const tool = findTool(name);
  if (tool === undefined) throw new Error(`no tool ${name}`);
  return await runTool(tool, args, session);
}

async function runTool(tool: Tool, given: Args, session: ToolSession): Promise<ToolPage> {
  const args = omitNulls(given);
  const { cursor, ...asked } = args;
  const own = parseOwnArguments(args);
  const position = findPosition(hashArguments(tool.name, omitPaging(asked)), own, session);
  if (tool.plan === undefined && tool.operations.length === 0)
    return addNote(
      await listConfigured(tool, own, position, session),
      describeUnused(args, createToolCheck(tool, args)),
    );
  const site = selectSite(own, session.sites);
  if (tool.plan === undefined) {
    const range = completeRange(own, args, false, position.now, site.retention);
    const page = await readIncidentPage(args, own, range, position, site, session);
    return addNote(page, describeUnused(args, createToolCheck(tool, args, range)));
  }
  const meant = tool.name === "get_incident" ? await findIncident(args, own, site, session) : own;
  const planned = tool.plan(omitOwnArguments(args), meant, site);
  const endpoint = findEndpoint(planned.operation, session);
  const { retention } = site;
  const plan = completePlan(planned, endpoint, { args, own, now: position.now, retention });
  const page =
    plan.pages === undefined
      ? readComputedPage(tool, plan, own, position, session)
      : readOwnPage(plan, plan.pages, own, position, session);
  const check = createPlanCheck(tool, plan, endpoint, args);
  return addNote(await page, describeUnused(args, check));
}

function addNote(page: ToolPage, note: string | undefined): ToolPage {
  if (note === undefined) return page;
  return { ...page, note: page.note === undefined ? note : `${page.note} ${note}` };
}

/**
 * The arguments with the digest of the incident that has the number, where neither a digest nor a trace is named.
 * @throws {NotFound} @throws {Unprocessable} where two digests share the number
 */
async function findIncident(
  { trace_id }: Args,
  own: OwnArguments,
  { id }: Site,
  session: ToolSession,
): Promise<OwnArguments> {
  const { number, digest } = own;
  if (number === undefined || digest !== undefined || trace_id !== undefined) return own;
  const found = await session.complete(() => prepareIncidentLookup(id, { number }));
  const incident = requireSingleIncident(found as readonly Incident[]);
  if (incident === undefined) throw new NotFound();
  return { ...own, digest: incident.digest };
}

/** Incidents of errors, newest first. How many there are is known where all were seen. */
async function readIncidentPage(
  args: Args,
  own: OwnArguments,
  { from, to }: Args,
  position: Position,
  { id }: Site,
  session: ToolSession,
): Promise<ToolPage> {
  const { per_page: limit = defaultPageSize, namespaces = [] } = own;
  const range = { start: from === undefined ? undefined : String(from), end: String(to) };
  const { skip: offset } = position;
  const selection = {
    kinds: ["error"],
    order: "last",
    namespaces,
    offset,
    limit,
    ...readNames(args),
  } as const;
  const answer = await session.complete(() => prepareIncidents(id, range, selection));
  const { incidents, total } = answer as IncidentPage;
  const { shown, ...fitted } = await fitPage(incidents.map(toIncidentRow), own);
  const skip = offset + shown;
  const isLast = total === undefined ? incidents.length < limit && shown === incidents.length : skip >= total;
  const left = isLast ? 0 : total === undefined ? null : total - skip;
  return { ...fitted, left, cursor: isLast ? null : encodeCursor({ ...position, skip }) };
}

/** @throws {Unprocessable} `invalid_request` */
function readNames(args: Args) {
  const read = (key: string): string | undefined => {
    const value = args[key];
    if (value === undefined || typeof value === "string") return value;
    throw createInvalidRequest([{ path: key, message: "expected a string" }]);
  };
  return { action: read("action_name"), revision: read("revision"), text: read("query") };
}

function toIncidentRow({ number, digest, namespace, action, exception, last }: Incident) {
  return {
    number,
    digest,
    namespace,
    action_name: action,
    exception_name: exception?.name ?? null,
    exception_message: exception?.message ?? null,
    last_seen: printInstant(last),
  };
}

/** As in the API, an argument that is null is absent. */
function omitNulls(args: Args): Args {
  return Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null));
}

/** How much of each row is shown may change from page to page. */
function omitPaging({ page, max_characters, offset, ...asked }: Args): Args {
  return asked;
}

function findPosition(of: string, own: OwnArguments, session: ToolSession): Position {
  return own.cursor === undefined ? createFirstPosition(of, own, session) : decodeCursor(own.cursor, of);
}

function createFirstPosition(of: string, own: OwnArguments, { now }: ToolSession): Position {
  const { page = 1, per_page = defaultPageSize } = own;
  return { of, now: printInstantToMilli(now()), skip: (page - 1) * per_page, after: null };
}

/** What a range is completed from. */
interface AskedRange {
  readonly args: Args;
  readonly own: OwnArguments;
  readonly now: Position["now"];
  readonly retention: Site["retention"];
}

/** The plan with the range of all pages, where its operation has one. */
function completePlan(
  plan: ToolPlan,
  { request }: Endpoint,
  { args, own, now, retention }: AskedRange,
): ToolPlan {
  const from = request instanceof z.ZodObject ? request.shape.from : undefined;
  if (!(from instanceof z.ZodType)) return plan;
  const isRequired = !from.safeParse(undefined).success;
  // A trace that is named is looked for in all times.
  const kept = plan.request.trace_id === undefined ? retention : undefined;
  const range = completeRange(own, args, isRequired, now, kept);
  return { ...plan, request: { ...plan.request, ...range } };
}

function findEndpoint(name: string, { endpoints }: ToolSession): Endpoint {
  const endpoint = endpoints.find((one) => one.name === name);
  if (endpoint === undefined) throw new Error(`no operation ${name}`);
  return endpoint;
}

/** The whole answer of an operation. */
export function readAnswer(operation: string, request: Args, session: ToolSession): Promise<unknown> {
  const endpoint = findEndpoint(operation, session);
  return session.complete(() => endpoint.prepare(request));
}

async function listConfigured(
  tool: Tool,
  own: OwnArguments,
  position: Position,
  { sites }: ToolSession,
): Promise<ToolPage> {
  const meant = tool.isAboutSite === true ? [selectSite(own, sites)] : sites;
  const rows = tool.list?.(meant) ?? [];
  const page = await cutPage(rows, own, position);
  return tool.note === undefined ? page : { ...page, note: tool.note };
}

/** All rows are there: what is left is known. */
async function readComputedPage(
  tool: Tool,
  { operation, request }: ToolPlan,
  own: OwnArguments,
  position: Position,
  session: ToolSession,
): Promise<ToolPage> {
  const answer = await readAnswer(operation, request, session);
  const { rows, fields } = tool.readAnswer?.(answer, own) ?? {
    rows: Array.isArray(answer) ? answer : [answer],
  };
  const page = await cutPage(rows, own, position);
  return fields === undefined ? page : { ...page, fields };
}

/** A page of what `compute` makes of a name, as it was on the first page. */
export async function cutComputedRows(
  name: string,
  paging: Args,
  session: ToolSession,
  compute: (now: string) => Promise<readonly unknown[]>,
): Promise<ToolPage> {
  const own = parseOwnArguments(paging);
  const position = findPosition(hashArguments(name, {}), own, session);
  return cutPage(await compute(position.now), own, position);
}

async function cutPage(rows: readonly unknown[], own: OwnArguments, position: Position): Promise<ToolPage> {
  const { shown, ...fitted } = await fitPage(rows.slice(position.skip), own);
  const skip = position.skip + shown;
  const left = Math.max(0, rows.length - skip);
  return { ...fitted, left, cursor: left === 0 ? null : encodeCursor({ ...position, skip }) };
}

/** As many of the rows as a page holds. Of a page by its number it notes which of its rows the next number would pass over. */
async function fitPage(
  rows: readonly unknown[],
  own: OwnArguments,
): Promise<FittedRows & Pick<ToolPage, "note">> {
  const { per_page = defaultPageSize, max_characters: maxChars = defaultCellChars, offset = 0 } = own;
  const fitted = await fitRows(rows, per_page, { maxChars, offset });
  const wanted = Math.min(per_page, rows.length);
  if (own.cursor !== undefined || fitted.shown >= wanted) return fitted;
  const note = `This page has no room for its rows ${fitted.shown + 1} to ${wanted}: only the cursor leads to them, the next page number does not. With a smaller per_page pages are whole.`;
  return { ...fitted, note };
}

/** The operation answers pages by time: so many rows behind `after`, of which some were shown already. */
async function readOwnPage(
  { operation, request }: ToolPlan,
  pages: PageOrder,
  own: OwnArguments,
  position: Position,
  session: ToolSession,
): Promise<ToolPage> {
  const { skip, after } = position;
  const per_page = countWantedRows(own, skip);
  const pagination = { ...pages, per_page, ...(after !== null && { cursor: after }) };
  const answer = await readAnswer(operation, { ...request, pagination }, session);
  const rows = Array.isArray(answer) ? answer : [];
  const { shown, ...fitted } = await fitPage(rows.slice(skip), own);
  const done = skip + shown;
  const last: unknown = rows.at(-1);
  const isLast = rows.length < per_page;
  const behind = isLast ? 0 : await countBehind(operation, request, pages, last, session);
  const left = behind === undefined ? null : Math.max(0, rows.length - done) + behind;
  return { ...fitted, left, cursor: left === 0 ? null : encodeCursor(advance(position, rows, done, pages)) };
}

/** One more than are shown: so it is known whether any follow. */
function countWantedRows({ per_page = defaultPageSize }: OwnArguments, skip: number): number {
  return Math.min(skip + per_page + 1, maxReadRows);
}

/**
 * Where the page behind the first `done` rows begins: behind a whole millisecond or duration, and so many rows of the next one.
 * To count rows from the first page on would lead astray where one comes late, or the oldest are no longer kept.
 */
function advance(position: Position, rows: readonly unknown[], done: number, pages: PageOrder): Position {
  const places = rows.slice(0, done + 1).map((row) => readAfter(row, pages));
  const isEqual = (a: Position["after"] | undefined, b: Position["after"] | undefined) =>
    JSON.stringify(a) === JSON.stringify(b);
  const shown = places.slice(0, done);
  const last = shown.at(-1) ?? null;
  if (!isEqual(places[done], last)) return { ...position, after: last, skip: 0 };
  const before = shown.findLastIndex((place) => !isEqual(place, last));
  const after = shown[before] ?? position.after;
  return { ...position, after, skip: done - before - 1 };
}

/** How many rows lie behind those that were read; undefined where the source does not count them. */
async function countBehind(
  operation: string,
  request: Args,
  { order }: PageOrder,
  last: unknown,
  session: ToolSession,
): Promise<number | undefined> {
  if (operation !== "logs.lines") return undefined;
  const { site_id, source_ids, query, use_expressions, from, to } = request;
  const asked = { source_ids, query, use_expressions, from, to, site_id: String(site_id) };
  const prepared = () => prepareRemainingLines({ ...asked, order, last: readTime(last) });
  return (await session.complete(prepared)) as number | undefined;
}

function readAfter(row: unknown, { cursor }: PageOrder): Position["after"] {
  const { duration } = (row ?? {}) as Readonly<Record<string, unknown>>;
  return cursor === "Duration" ? { duration: Number(duration) } : { time: readTime(row) };
}

function readTime(row: unknown): string {
  const { timestamp, time } = (row ?? {}) as Readonly<Record<string, unknown>>;
  return String(timestamp ?? time);
}

// ---- Explanations and refusals ------------------------------------------------------------------------------

/** What another tool's call means and what it asks of the sources. */
async function explainCall(args: Args, session: ToolSession): Promise<ToolPage> {
  const own = parseOwnArguments(args);
  const tool = findTool(String(args.tool ?? ""));
  const inner = omitNulls(readArguments(args.arguments));
  if (tool?.plan === undefined)
    throw createInvalidRequest([{ path: "tool", message: "expected the name of a tool that reads data" }]);
  const asked = parseOwnArguments(inner);
  const position = createFirstPosition("", asked, session);
  const site = selectSite(asked, session.sites);
  const planned = tool.plan(omitOwnArguments(inner), asked, site);
  const endpoint = findEndpoint(planned.operation, session);
  const { retention } = site;
  const plan = completePlan(planned, endpoint, { args: inner, own: asked, now: position.now, retention });
  const request = plan.pages === undefined ? plan.request : addFirstPage(plan.request, plan.pages, asked);
  const answer = await session.complete(() => prepareExplanation(endpoint.prepare(request)));
  const check = createPlanCheck(tool, plan, endpoint, inner);
  const page = addNote(
    await cutPage([answer], own, { ...position, skip: 0 }),
    describeUnused(args, isUsedByExplain),
  );
  return addNote(page, describeUnused(inner, check, "the explained call"));
}

/** The arguments of a call. @throws {Unprocessable} `invalid_request` where they are no object */
function readArguments(given: unknown): Args {
  if (given === undefined || given === null) return {};
  if (typeof given === "object" && !Array.isArray(given)) return given as Args;
  throw createInvalidRequest([{ path: "arguments", message: "expected an object" }]);
}

function addFirstPage(request: Args, pages: PageOrder, own: OwnArguments): Args {
  return { ...request, pagination: { ...pages, per_page: countWantedRows(own, 0) } };
}

const adviceBySlug: Readonly<Record<string, string>> = {
  invalid_request: "Correct the arguments that are named.",
  invalid_log_query: "Correct the query; the description of get_log_lines has the language.",
  legacy_log_query_syntax: "Write the path of the field without attributes. and without a type suffix.",
  log_query_too_complex: "Shorten the query.",
  ungrouped_wildcard: "Add the tag to group_by, or name a value.",
  invalid_field: "Use one of the allowed fields; get_metric_tags tells the type of a metric.",
  result_too_large: "Narrow the range, the query or the sources, or ask for a coarser resolution.",
  not_supported_by_backend: "This site cannot answer that; get_applications tells what each site has.",
  invalid_json: "Send JSON.",
};

export function describeRefusal(error: unknown): ToolRefusal {
  const { body } = describeFailure(error);
  if (error instanceof Unprocessable && "message" in body) {
    const { error: slug, message, details } = body;
    return { error: slug, message, details, advice: adviceBySlug[slug] ?? "Change the arguments." };
  }
  const isGone = error instanceof NotFound || error instanceof Unauthorized;
  const advice = isGone
    ? "Use get_applications for the sites that the token may see; other names and tools that the token may not use are not found."
    : error instanceof BackendError
      ? "Try again later, or narrow the range."
      : "Try again later.";
  return { error: body.error, message: isGone ? "there is no such thing" : "it failed", advice };
}
