// An operation asked for by REST, from its body to its answer: completed before the status is sent, streamed where that
// cannot be, or a tail. What is streamed keeps its place among the streamed answers until its client has all of it.

import { type Authenticate, type Principal, readToken } from "../access/auth.ts";
import type { Limits } from "../config/config.ts";
import { LimitReached, TooMany, Unprocessable } from "../core/errors.ts";
import { type Exchange, readJson } from "../http/request.ts";
import { type Answer, chunksOf, jsonType, type Whole } from "../http/response.ts";
import { chooseRepresentation } from "../operations/runtime/content-negotiation.ts";
import { anybody, type Conductor, overloaded } from "../operations/runtime/executor.ts";
import { explained, explanationType, wantsExplanation } from "../operations/runtime/explain.ts";
import { abandon, readHead, type Work } from "../operations/runtime/lifetime.ts";
import type { Followed, Prepared, Printed, Rows } from "../operations/runtime/operation.ts";
import type { Route } from "../operations/runtime/router.ts";
import { eventsHeaders, type Tails } from "../tail/tail-registry.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { within } from "../telemetry/tracer.ts";

/** One configuration, and the requests that began in its time. */
export interface Epoch {
  readonly authenticate: Authenticate;
  readonly limits: Limits;
  readonly conductor: Conductor;
  readonly tails: Tails;
}

/** What the log and the metrics tell of a request; filled in as far as it gets. */
export interface Trail {
  operation: string;
  route: string | undefined;
  user: string | undefined;
}

/** Tells of a request's end; `cut` where its client has not got all of the answer. */
export type Finish = (status: number, cut: boolean, error?: unknown) => void;

/**
 * The answer of a route, which calls `finish` as soon as it is complete or broken off.
 * @throws what the operation, the limits and the reading of the body fail with; then `finish` has not been called
 */
type Operate = (
  exchange: Exchange,
  route: Route,
  epoch: Epoch,
  trail: Trail,
  finish: Finish,
) => Promise<Answer>;

/** What an operation, or a representation of it, may answer. */
type Answered = Promise<unknown> | AsyncIterable<Rows> | Printed | Followed;

/** What stands around and between the batches of an answer. */
interface Form {
  readonly opening: string;
  readonly separator: string;
  readonly closing: string;
}
const array: Form = { opening: "[", separator: ",", closing: "]" };
const printed: Form = { opening: "", separator: "", closing: "" };

const explanationHeaders = { "Content-Type": `${explanationType}; charset=utf-8` };

/** One for a server: the bound on streamed answers is on all of them, whatever the configuration was when they began. */
export function createRest(telemetry: Telemetry): Operate {
  let streams = 0;
  /** Of those, how many each token has. */
  const streamsOf = new Map<Principal, number>();

  const operate: Operate = async (exchange, { endpoint, parameters }, epoch, trail, finish) => {
    const chosen = chooseRepresentation(exchange.headers.get("accept"), endpoint.representations);
    trail.operation = chosen?.name ?? endpoint.name;
    trail.route = endpoint.path;
    const { authenticate, conductor, limits, tails } = epoch;
    const principal =
      endpoint.access === "public" ? anybody : authenticate(readToken(exchange.headers, exchange.search));
    trail.user = principal.user;
    const work = conductor.admit(exchange.gone);
    let streaming = false;
    try {
      const raw = endpoint.method === "GET" ? parameters : await receive(readJson(exchange), work);
      // An explanation is JSON, whatever form its answer would have.
      const explaining = wantsExplanation(exchange.search);
      const prepared: Prepared<Answered> = explaining
        ? explained(endpoint.prepare(raw))
        : (chosen ?? endpoint).prepare(raw);
      const result = conductor.start(prepared, principal, work);
      if ("follow" in result) {
        // Tails have places of their own.
        streaming = true;
        work.end();
        return await openTail(result.follow, exchange, principal, tails, finish);
      }
      const headers = explaining
        ? explanationHeaders
        : (("pieces" in result ? result.headers : undefined) ?? jsonType);
      const complete = (body: Whole): Answer => {
        finish(200, false);
        return { status: 200, headers, body };
      };
      if ("then" in result) return complete(JSON.stringify(await work.wait(result)));
      const [form, source] = "pieces" in result ? [printed, result.pieces] : [array, result];
      const rows = source[Symbol.asyncIterator]();
      const head = await readHead(rows, work);
      if (head.state === "done") return complete(whole(form, head.texts));
      // What waits for nothing but its client needs no place, neither here nor among the requests.
      const close = head.state === "open" ? openStream(principal, limits, rows, work) : undefined;
      streaming = close !== undefined;
      const body = chunksOf(stream(form, head.texts, rows, work, finish, close), work.signal);
      return { status: 200, headers, body };
    } catch (error) {
      throw work.signal.aborted && !(error instanceof LateBody) ? work.signal.reason : error;
    } finally {
      if (!streaming) work.end();
    }
  };

  async function openTail(
    followed: Followed["follow"],
    { headers, gone }: Exchange,
    principal: Principal,
    tails: Tails,
    finish: Finish,
  ): Promise<Answer> {
    const asked = {
      principal,
      // Empty is none, as it is to an EventSource.
      resume: headers.get("last-event-id") || undefined,
      gone,
      over: (cut: boolean) => {
        telemetry.tails.closed();
        finish(200, cut);
      },
    };
    // Tails read together: what is asked for all of them is part of no client's trace.
    const body = await within(undefined, () => tails.open(followed, asked));
    telemetry.tails.opened();
    return { status: 200, headers: eventsHeaders, body };
  }

  /** Takes a place among the streamed answers. What ends the work gives it back. @throws {LimitReached} {TooMany} */
  function openStream(
    principal: Principal,
    limits: Limits,
    rows: AsyncIterator<Rows>,
    work: Work,
  ): () => void {
    const own = streamsOf.get(principal) ?? 0;
    if (streams >= limits.streams || own >= limits.tokenStreams) {
      abandon(rows);
      if (own >= limits.tokenStreams) throw new TooMany(1, "token_streams");
      throw overloaded("streams", `${streams} streamed answers are under way`);
    }
    streams += 1;
    streamsOf.set(principal, own + 1);
    telemetry.streams.opened();
    return () => {
      streams -= 1;
      const left = (streamsOf.get(principal) ?? 1) - 1;
      if (left === 0) streamsOf.delete(principal);
      else streamsOf.set(principal, left);
      telemetry.streams.closed();
      work.end();
    };
  }

  return operate;
}

/** A body that is being read. @throws what its reading fails with, and `LateBody` where the deadline passes before it is there */
export async function receive<T>(body: Promise<T>, work: Work): Promise<T> {
  try {
    return await work.wait(body);
  } catch (error) {
    throw error instanceof LimitReached ? new LateBody() : error;
  }
}

/** No source is to blame for the time that a client takes: it is told as where node itself gives a body up. */
class LateBody extends Unprocessable<"invalid_request"> {
  constructor() {
    const message = "The body did not come in time";
    super("invalid_request", message, { issues: [{ path: "", message }] }, "reading_time");
  }
}

function whole({ opening, separator, closing }: Form, texts: readonly string[]): readonly string[] {
  const last = texts.length - 1;
  if (last < 0) return [opening + closing];
  return texts.map((text, at) => (at === 0 ? opening : separator) + text + (at === last ? closing : ""));
}

async function* stream(
  { opening, separator, closing }: Form,
  head: readonly string[],
  rows: AsyncIterator<Rows>,
  work: Work,
  finish: Finish,
  close: (() => void) | undefined,
): AsyncGenerator<string, void, void> {
  let complete = false;
  let failure: unknown;
  try {
    let before = opening;
    for (const text of head) {
      yield before + text;
      before = separator;
      work.progressed();
    }
    for (;;) {
      work.progressed();
      const next = await work.wait(rows.next());
      if (next.done === true) break;
      // By itself: put together with the text, it would make another of all of it.
      if (separator !== "") yield separator;
      yield next.value.text;
    }
    yield closing;
    complete = true;
  } catch (error) {
    failure = work.signal.aborted ? work.signal.reason : error;
    throw failure;
  } finally {
    if (!complete) abandon(rows);
    close?.();
    finish(200, !complete, failure);
  }
}
