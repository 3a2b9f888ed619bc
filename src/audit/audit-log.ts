// The audit log: who asked what, and what became of it. One JSON object a line, written before the last byte of the answer
// that it tells of. It holds no token, no value of an answer, and a query only as a keyed hash, unless texts are asked for.
import { createHmac } from "node:crypto";
import type { AuditConfig } from "../config/edge-settings.ts";
import { LimitReached, toErrorMessage } from "../core/errors.ts";
import { type Instant, type Millis, printInstantToMilli, second } from "../core/time.ts";

/** One line. What is not known of a request is absent. */
export interface AuditEntry {
  /**
   * `request` is a request with its outcome, `operation` one of several within it. What is streamed has `begin` before its
   * first byte, and `end` in place of `request`.
   */
  readonly event: "request" | "operation" | "begin" | "end";
  /** The id of the request, as its answer has it. */
  readonly request: string;
  /** Such as `logs.lines`; `none` where no route matches. */
  readonly operation: string;
  readonly user?: string | undefined;
  /** What the token is called; never the token. */
  readonly token?: string | undefined;
  /** As asked, also those that the token may not see. */
  readonly sites?: readonly string[] | undefined;
  /** The range as it was written. */
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  /** What was looked for, as text; it is hashed before it is written. */
  readonly query?: string | undefined;
  /** Absent when an answer begins. */
  readonly status?: number | undefined;
  /** The client has not received all of the answer. */
  readonly cut?: boolean | undefined;
  /** The labels of failed backends without which it was answered. */
  readonly missing?: readonly string[] | undefined;
  readonly rows?: number | undefined;
  /** Of the body, before it is compressed. */
  readonly bytes?: number | undefined;
  /** Documents or samples that were read from sources. */
  readonly documents?: number | undefined;
  readonly ms?: Millis | undefined;
}

export interface AuditLog {
  /**
   * Resolves when the line is written, and is on the disk where the configuration says so. Where answers go on without their
   * lines, also when it takes too long.
   * @throws {LimitReached} It cannot be written, and requests are refused then.
   */
  readonly record: (entry: AuditEntry, isToken: IsToken) => Promise<void>;
  /**
   * The first line of a run: how many lines of the last one may have been lost. Also where the log is switched on again.
   * @throws {LimitReached} as `record`
   */
  readonly start: (unsynced: number) => Promise<void>;
  /** The line that says where the log is switched off. Lines of requests under way may follow. */
  readonly stop: () => Promise<void>;
  /**
   * What holds from the next line on. Another place begins with a line as that of a run; the old one has all its lines, and the
   * last line of a run, when this resolves. What the old one cannot take any more goes to the new one.
   * @throws {Error} The first line cannot be written there; then all is as it was.
   */
  readonly configure: (settings: AuditSettings, place?: AuditPlace) => Promise<void>;
  /** Counts lines that a sink has lost after it took them. */
  readonly countRejected: (lines: number, problem: string) => void;
  /** Opens the file again, which may have been renamed. */
  readonly reopen: () => void;
  /** Writes the last line, and everything that is not on the disk yet. */
  readonly close: () => Promise<void>;
}

type IsToken = (text: string) => boolean;

/** Where lines go. */
export interface AuditSink {
  /**
   * Resolves when the line is written. Rejects with the system's error, and then nothing of it is there. The signal withdraws a
   * line that waits, with its reason; one that is being written by then is not withdrawn.
   */
  readonly append: (line: string, at: Instant, signal: AbortSignal) => Promise<void>;
  readonly reopen: () => void;
  /** Resolves with the lines whose `append` has resolved and that could not be written after all. */
  readonly close: () => Promise<readonly AuditLine[]>;
}

/** The line is one of several of which some are lost, nobody knows which. `countRejected` was told how many. */
export class LineRejected extends Error {
  override readonly name = "LineRejected";
}

export interface AuditLine {
  readonly line: string;
  readonly at: Instant;
}

/** Where lines go from now on. */
interface AuditPlace {
  readonly sink: AuditSink;
  /** As for `start`. */
  readonly unsynced: number;
}

type AuditSettings = Pick<AuditConfig, "key" | "queries" | "onFull">;

interface AuditOptions {
  readonly config: AuditSettings;
  readonly sink: AuditSink;
  readonly now: () => Instant;
  /** This many lines could not be written. */
  readonly onDropped: (lines: number) => void;
  /** Called when lines cannot be written any more, and when they can again. */
  readonly onState: (problem: string | undefined) => void;
}

/** How long a line may wait until it is being written. */
const writeTimeout: Millis = 10 * second;

interface LogState extends Pick<AuditOptions, "now" | "onDropped" | "onState"> {
  config: AuditSettings;
  sink: AuditSink;
  /** Lines that the next one tells of. */
  dropped: number;
  isFailing: boolean;
  isStopped: boolean;
}

export function createAuditLog(options: AuditOptions): AuditLog {
  const { onDropped, onState } = options;
  const state: LogState = { ...options, dropped: 0, isFailing: false, isStopped: false };
  return {
    start: async (unsynced) => {
      await writeLine(state, { event: "start", unsynced });
      state.isStopped = false;
    },
    stop: async () => {
      await stopAt(state, state.sink);
      state.isStopped = true;
    },
    record: (entry, isToken) => writeLine(state, toFields(entry, state.config, isToken)),
    configure: async (settings, place) => {
      if (place !== undefined) {
        await appendLine(state, place.sink, { event: "start", unsynced: place.unsynced });
      }
      const old = state.sink;
      state.config = settings;
      if (place === undefined) return;
      state.sink = place.sink;
      const left = await endAt(state, old).catch((error: unknown) => {
        reportFailure(state, error);
        return [];
      });
      await moveLines(state, left);
      state.isStopped = false;
    },
    countRejected: (lines, problem) => countDropped(state, lines, new Error(problem)),
    reopen: () => state.sink.reopen(),
    close: async () => {
      const { length } = await endAt(state, state.sink);
      if (length === 0) return;
      onDropped(length);
      onState(`lines that waited are lost: ${length}`);
    },
  };
}

/** Returns the lines that the place could not take. The last line has no longer for it than all that waits. */
async function endAt(state: LogState, place: AuditSink): Promise<readonly AuditLine[]> {
  const stopped = stopAt(state, place);
  const left = await place.close();
  await stopped;
  return left;
}

async function stopAt(state: LogState, place: AuditSink): Promise<void> {
  if (state.isStopped) return;
  await appendLine(state, place, { event: "stop" }).then(
    () => reportWritten(state),
    (error: unknown) => countLost(state, [error]),
  );
}

/** Writes what an old place has left where lines go now. */
async function moveLines(state: LogState, lines: readonly AuditLine[]): Promise<void> {
  const moved = await Promise.allSettled(lines.map((line) => appendText(state.sink, line)));
  const errors = moved.flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
  if (errors.length === 0) return;
  countLost(state, errors);
  await reportWritten(state);
}

/**
 * What is being written may yet be there: its request waits to know it, or goes on where it would do so in either case.
 * @throws {LimitReached} The line is lost, and requests are refused then.
 */
function writeLine(state: LogState, fields: object): Promise<void> {
  return new Promise((resolve, reject) => {
    const onLate = (error: Error): void => {
      reportFailure(state, error);
      if (state.config.onFull === "drop") resolve();
    };
    appendLine(state, state.sink, fields, onLate)
      .then(
        () => reportWritten(state),
        (error: unknown) => dropLine(state, error),
      )
      .then(resolve, reject);
  });
}

function appendLine(
  { now }: LogState,
  place: AuditSink,
  fields: object,
  onLate?: (error: Error) => void,
): Promise<void> {
  const at = now();
  const line = `${JSON.stringify({ time: printInstantToMilli(at), ...fields })}\n`;
  return appendText(place, { line, at }, onLate);
}

/** Rejects once it is known that the line is lost. */
async function appendText(
  place: AuditSink,
  { line, at }: AuditLine,
  onLate?: (error: Error) => void,
): Promise<void> {
  const late = new AbortController();
  const timer = setTimeout(() => {
    const error = new Error("writing takes too long");
    late.abort(error);
    onLate?.(error);
  }, writeTimeout);
  await place.append(line, at, late.signal).finally(() => clearTimeout(timer));
}

function reportFailure(state: LogState, error: unknown): void {
  if (!state.isFailing) state.onState(toErrorMessage(error));
  state.isFailing = true;
}

/** Counts lines that were not written, by their errors, but for those of `countRejected`. */
function countLost(state: LogState, errors: readonly unknown[]): void {
  const lost = errors.filter((error) => !(error instanceof LineRejected));
  countDropped(state, lost.length, errors[0]);
}

function countDropped(state: LogState, lines: number, error: unknown): void {
  state.dropped += lines;
  if (lines > 0) state.onDropped(lines);
  reportFailure(state, error);
}

/** @throws {LimitReached} where requests are refused then */
function dropLine(state: LogState, error: unknown): void {
  countLost(state, [error]);
  if (state.config.onFull === "drop") return;
  const sentence = "The audit log cannot be written, and nothing is answered without it";
  throw new LimitReached("audit", "overloaded", "the audit log cannot be written", sentence);
}

async function reportWritten(state: LogState): Promise<void> {
  if (!state.isFailing) return;
  state.isFailing = false;
  state.onState(undefined);
  const { dropped } = state;
  // Lines that were late may all have been written.
  if (dropped === 0) return;
  state.dropped = 0;
  // Where this fails, the next line that is written tells of both.
  await appendLine(state, state.sink, { event: "dropped", lines: dropped }).catch(() => {
    state.dropped += dropped;
    state.isFailing = true;
  });
}

/** What of a query or of a name is written. */
const maxQueryChars = 16_384;
const maxSites = 50;
const maxNameChars = 200;

function toFields(entry: AuditEntry, { key, queries }: AuditSettings, isToken: IsToken): object {
  const { event, request, operation, user, token, sites, from, to, query, status, ...measured } = entry;
  return {
    event,
    request,
    operation,
    user,
    token,
    sites: sites && listSites(sites, isToken),
    from,
    to,
    ...(query !== undefined &&
      (queries === "text"
        ? {
            query: hideTokens(query.slice(0, maxQueryChars + maxTokenChars), isToken).slice(0, maxQueryChars),
          }
        : { query_hash: createHmac("sha256", key).update(query).digest("hex") })),
    status,
    decision: decide(status),
    ...measured,
  };
}

/** A request may name one site thousands of times. */
function listSites(sites: readonly string[], isToken: IsToken): readonly string[] {
  return [...new Set(sites)]
    .slice(0, maxSites)
    .map((site) => hideTokens(site.slice(0, maxNameChars), isToken));
}

/** What became of the request, in one word. */
function decide(status: number | undefined): string {
  if (status === undefined || status < 400) return "allowed";
  if (status === 401 || status === 403 || status === 404) return "denied";
  if (status === 429) return "limited";
  return status < 500 ? "refused" : "failed";
}

/** A token that begins before the end of what is written is looked at whole: none is longer than the headers of a request. */
const maxTokenChars = 16_384;

const hidden = "[redacted]";
/** Tokens of this program and signed tokens, by their form. */
const tokenForm = /rdt_[\w-]{43}|(?<![\w-])[\w-]*\.eyJ[\w-]{8,}\.[\w-]*/g;

/** A client may have written its token where a query or a site belongs. */
function hideTokens(text: string, isToken: IsToken): string {
  return text
    .replace(tokenForm, hidden)
    .replace(/[^\s"'(),:;=<>]+/g, (word) => (isToken(word) ? hidden : word));
}
