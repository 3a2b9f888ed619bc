// The audit log: who asked what, and what became of it. One JSON object a line, written before the last byte of the answer
// that it tells of. It holds no token, no value of an answer, and a query only as a keyed hash, unless texts are asked for.
import { createHmac } from "node:crypto";
import type { AuditConfig } from "../config/edge-settings.ts";
import { LimitReached, toErrorMessage } from "../core/errors.ts";
import { type Instant, type Millis, printMillis, second, toMillis } from "../core/time.ts";

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
   * Resolves when the line is written, and is on the disk where the configuration says so.
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
   * last line of a run, when this resolves.
   * @throws {Error} The first line cannot be written there; then all is as it was.
   */
  readonly configure: (settings: AuditSettings, place?: AuditPlace) => Promise<void>;
  /** Opens the file again, which may have been renamed. */
  readonly reopen: () => void;
  /** Writes the last line, and everything that is not on the disk yet. */
  readonly close: () => Promise<void>;
}

type IsToken = (text: string) => boolean;

/** Where lines go. */
export interface AuditSink {
  /** Resolves when the line is written. Rejects with the system's error, and then nothing of it is there. */
  readonly append: (line: string, at: Instant) => Promise<void>;
  readonly reopen: () => void;
  readonly close: () => Promise<void>;
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

/** How long a request waits for its line. */
const writeTimeout: Millis = 10 * second;

export function createAuditLog({ config, sink, now, onDropped, onState }: AuditOptions): AuditLog {
  const state = { config, sink, dropped: 0, isFailing: false, isStopped: false };
  const append = async (fields: object, place = state.sink): Promise<void> => {
    const at = now();
    const line = `${JSON.stringify({ time: printMillis(toMillis(at)), ...fields })}\n`;
    await waitAtMost(place.append(line, at), writeTimeout);
  };
  const stop = async (place: AuditSink): Promise<void> => {
    if (!state.isStopped) await append({ event: "stop" }, place).catch(() => {});
  };
  const end = async (place: AuditSink): Promise<void> => {
    await stop(place);
    await place.close();
  };
  const write = async (fields: object): Promise<void> => {
    try {
      await append(fields);
    } catch (error) {
      state.dropped += 1;
      onDropped(1);
      if (!state.isFailing) onState(toErrorMessage(error));
      state.isFailing = true;
      if (state.config.onFull === "drop") return;
      const sentence = "The audit log cannot be written, and nothing is answered without it";
      throw new LimitReached("audit", "overloaded", "the audit log cannot be written", sentence);
    }
    if (!state.isFailing) return;
    state.isFailing = false;
    onState(undefined);
    const { dropped } = state;
    state.dropped = 0;
    // Where this fails, the next line that is written tells of both.
    await append({ event: "dropped", lines: dropped }).catch(() => {
      state.dropped += dropped;
      state.isFailing = true;
    });
  };
  return {
    start: async (unsynced) => {
      await write({ event: "start", unsynced });
      state.isStopped = false;
    },
    stop: async () => {
      await stop(state.sink);
      state.isStopped = true;
    },
    record: (entry, isToken) => write(toFields(entry, state.config, isToken)),
    configure: async (settings, place) => {
      if (place !== undefined) await append({ event: "start", unsynced: place.unsynced }, place.sink);
      const old = state.sink;
      state.config = settings;
      if (place === undefined) return;
      state.sink = place.sink;
      await end(old).catch(() => {});
      state.isStopped = false;
    },
    reopen: () => state.sink.reopen(),
    close: () => end(state.sink),
  };
}

/** Rejects when it takes too long; what is waited for goes on. */
function waitAtMost(promise: Promise<void>, limit: Millis): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("writing takes too long")), limit);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
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
    sites: sites?.slice(0, maxSites).map((site) => hideTokens(site.slice(0, maxNameChars), isToken)),
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
