// Every failure that a caller can meet, as a closed table. A slug fixes the shape of its `details`. Stores never
// mention a status. Exactly one function (`describeFailure` of
// `src/operations/runtime/error-response.ts`) turns an error into a status and a body.

/** Each 422 slug a client can branch on, with the shape of its `details`. */
export interface DetailsBySlug {
  readonly invalid_json: { readonly position?: number };
  readonly invalid_request: { readonly issues: readonly Issue[] };
  readonly legacy_log_query_syntax: { readonly field: string };
  /** 0-based, half-open, in UTF-16 code units of the query text. */
  readonly invalid_log_query: { readonly start: number; readonly end: number; readonly expected: string };
  readonly log_query_too_complex: { readonly limit: number };
  readonly ungrouped_wildcard: { readonly tag: string };
  readonly invalid_field: {
    readonly field: string;
    readonly metric: string;
    readonly allowed: readonly string[];
  };
  readonly result_too_large: { readonly limit: number; readonly wanted?: number };
  readonly invalid_cron_expression: { readonly expression: string; readonly reason: string };
  /** `backend` is null where the site has no such part. */
  readonly not_supported_by_backend: { readonly backend: string | null; readonly feature: string };
}
export type Slug = keyof DetailsBySlug;

/** One mistake in a body or a configuration. `path` is dotted: `select.0.field`; `""` is all of it. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

/** The limit that refused or ended a request, as `/metrics` counts it. */
export type LimitName =
  | "rate"
  | "token_requests"
  | "token_streams"
  | "requests"
  | "streams"
  | "backend_share"
  | "tails"
  | "token_tails"
  | "tail_comparisons"
  | "token_tail_comparisons"
  | "deadline"
  | "audit"
  | "result"
  | "query"
  | "graphql"
  | "url"
  | "head"
  | "body"
  | "bodies"
  | "token_bodies"
  | "held"
  | "token_held"
  | "reading_time"
  | "unread"
  | "connections"
  | "address_connections";

/** How much of each limit is used, from 0 to 1; of a limit of tokens or addresses, by the one that is nearest to it. */
export type LimitUse = Partial<Readonly<Record<LimitName, number>>>;

/** The token is missing, wrong or expired: 401. */
export class Unauthorized extends Error {
  override readonly name = "Unauthorized";
}

/** No such route or resource, or a site that the token may not access: 404, the same for all three. */
export class NotFound extends Error {
  override readonly name = "NotFound";
}

/** The client takes an answer in no form that there is: 406. */
export class NotAcceptable extends Error {
  override readonly name = "NotAcceptable";
}

/** The request was understood, and repeating it will not help: 422. `message` is for people. */
export class Unprocessable<S extends Slug = Slug> extends Error {
  override readonly name = "Unprocessable";
  readonly slug: S;
  readonly details: DetailsBySlug[S];
  /** Set where the reason is a limit of ours that the slug alone does not show. */
  readonly limit: LimitName | undefined;
  constructor(slug: S, message: string, details: DetailsBySlug[S], limit?: LimitName) {
    super(message);
    this.slug = slug;
    this.details = details;
    this.limit = limit;
  }
}

/** A store throws it when it cannot be exact within its bounds. Final for the client, so a 422 as well. */
export class Refused<
  S extends "result_too_large" | "not_supported_by_backend" | "invalid_field" = "result_too_large",
> extends Unprocessable<S> {}

/** The refusal of a feature that a source cannot answer exactly. */
export function createUnsupportedError(
  backend: string,
  feature: string,
): Refused<"not_supported_by_backend"> {
  const message = `The source cannot answer this exactly: ${feature}`;
  return new Refused("not_supported_by_backend", message, { backend, feature });
}

/** `wanted` is how many there are, as far as they were counted. */
export function createTooManyPointsError(limit: number, wanted?: number): Refused {
  const message = `There are more than ${limit} points; ask for fewer series, a shorter range or a coarser resolution`;
  return new Refused("result_too_large", message, { limit, ...(wanted !== undefined && { wanted }) });
}

/** A resolution would not help: samples are read as they are. */
export function createTooManySamplesError(limit: number, wanted: number): Refused {
  const message = `There are more than ${limit} samples; ask for fewer series or a shorter range`;
  return new Refused("result_too_large", message, { limit, wanted });
}

/** The refusal of a feature for which the site has no part. */
export function createMissingPartError(
  feature: string,
  message: string,
): Refused<"not_supported_by_backend"> {
  return new Refused("not_supported_by_backend", message, { backend: null, feature });
}

/** How many requests a token may make within some seconds; without these, how many it may have under way at once. */
export interface Quota {
  readonly requests: number;
  readonly seconds?: number;
  /** What is counted at once instead of requests. */
  readonly unit?: "comparisons";
}

/** A token is over its rate or runs too many requests: 429. Clients retry it after `retryAfterSeconds`. */
export class TooMany extends Error {
  override readonly name = "TooMany";
  readonly retryAfterSeconds: number;
  readonly limit: LimitName;
  /** Absent where bytes are counted, not requests. */
  readonly quota: Quota | undefined;
  constructor(retryAfterSeconds: number, limit: LimitName, quota?: Quota) {
    super("Too many requests");
    this.retryAfterSeconds = retryAfterSeconds;
    this.limit = limit;
    this.quota = quota;
  }
}

/** The ways in which a source fails, each with the one sentence that a client may read. */
export const failures = {
  unreachable: "A data source cannot be reached",
  timeout: "A data source did not answer in time",
  overloaded: "A data source is overloaded",
  denied: "A data source refused the adapter's credentials",
  rejected: "A data source rejected the query",
  partial: "A data source answered only in part",
  malformed: "A data source sent an answer that cannot be read",
} as const;
export type Failure = keyof typeof failures;

/**
 * A source could not answer in full. `message` may quote the source and is for operators: it is logged and never sent to
 * a client. Worth a retry, so the client gets a 500.
 */
export class BackendError extends Error {
  override readonly name = "BackendError";
  readonly backend: string;
  readonly failure: Failure;
  /** The status of the source's response, where that was an error. */
  readonly status: number | undefined;
  /** When to retry, where an overloaded source says so. */
  readonly retryAfterSeconds: number | undefined;
  constructor(
    backend: string,
    failure: Failure,
    message: string,
    { cause, status, retryAfterSeconds }: BackendErrorOptions = {},
  ) {
    super(message, cause === undefined ? undefined : { cause });
    this.backend = backend;
    this.failure = failure;
    this.status = status;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/**
 * Whether the source does not take this request, now or later. A source that failed over it (500) says nothing of it, and may
 * answer the next time. 503 is a rejection only where the client of the source has read it as one.
 */
export function isRejection(error: unknown): boolean {
  if (!(error instanceof BackendError) || error.failure !== "rejected") return false;
  return error.status === undefined || error.status < 500 || error.status === 503;
}

/** Whether the source refuses to answer: the user may not ask, or it does not take the request. */
export function isRefusedBySource(error: unknown): error is BackendError {
  return error instanceof BackendError && (error.failure === "denied" || isRejection(error));
}

/** Whether other requests to the source would fail as well now, and may succeed later. */
export function isTrouble(error: unknown): error is BackendError {
  return error instanceof BackendError && ["unreachable", "timeout", "overloaded"].includes(error.failure);
}

interface BackendErrorOptions {
  readonly cause?: unknown;
  readonly status?: number | undefined;
  readonly retryAfterSeconds?: number | undefined;
  /** An error is no set of options, though all of these may be absent. */
  readonly message?: never;
}

/** A limit of Readout itself. Without a sentence of its own, a client cannot distinguish it from one of a source. */
export class LimitReached extends BackendError {
  readonly limit: LimitName;
  /** What a client reads instead of the sentence in `failures`. */
  readonly sentence: string | undefined;
  constructor(limit: LimitName, failure: "overloaded" | "timeout", message: string, sentence?: string) {
    super("readout", failure, message);
    this.limit = limit;
    this.sentence = sentence;
  }
}

/** Whether the deadline of a request has passed: of a client's, not of one to a source. */
export function isPassedDeadline(error: unknown): boolean {
  return error instanceof LimitReached && error.limit === "deadline";
}

/** The figures that a request needs are still being made. Worth a retry, after some time. */
export class FiguresUnfinished extends BackendError {
  /** What a client reads: how far the figures reach. */
  readonly sentence: string;
  constructor(sentence: string, retryAfterSeconds: number) {
    super("readout", "overloaded", sentence, { retryAfterSeconds });
    this.sentence = sentence;
  }
}

/** A file that Readout cannot work with. Has all issues at once. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly issues: readonly (Issue & { readonly line?: number })[];
  constructor(file: string, issues: readonly (Issue & { readonly line?: number })[]) {
    super(
      issues
        .map(
          (issue) =>
            `${file}${issue.line === undefined ? "" : `:${issue.line}`}: ${issue.path === "" ? "" : `${issue.path}: `}${issue.message}`,
        )
        .join("\n"),
    );
    this.issues = issues;
  }
}

/** The message of anything thrown, for operators. */
export function toErrorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whether the file system has no such file or folder. */
export function isFileMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

/** ` (ENOENT)` for an error with such a code, else an empty text. */
export function formatErrorCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? ` (${error.code})`
    : "";
}
