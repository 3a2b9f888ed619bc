// Every failure a caller can meet, as a closed table. A slug fixes the shape of its `details`; stores never
// mention a status; exactly one function (`describeFailure` of
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

/** One thing wrong with a body or a configuration. `path` is dotted: `select.0.field`; `""` is the whole. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

/** What bit, as `/metrics` counts it. */
export type LimitName =
  | "rate"
  | "token_requests"
  | "token_streams"
  | "requests"
  | "streams"
  | "backend_share"
  | "tails"
  | "token_tails"
  | "deadline"
  | "result"
  | "query"
  | "graphql"
  | "url"
  | "head"
  | "body"
  | "reading_time"
  | "unread"
  | "connections";

/** The token is missing, wrong or expired: 401. */
export class Unauthorized extends Error {
  override readonly name = "Unauthorized";
}

/** No such route or resource, or a site that the token may not see: 404, the same for all three. */
export class NotFound extends Error {
  override readonly name = "NotFound";
}

/** The request was understood and is refused for good: 422. `message` is shown to people. */
export class Unprocessable<S extends Slug = Slug> extends Error {
  override readonly name = "Unprocessable";
  readonly slug: S;
  readonly details: DetailsBySlug[S];
  /** Set where it is a limit of ours that the slug alone does not tell. */
  readonly limit: LimitName | undefined;
  constructor(slug: S, message: string, details: DetailsBySlug[S], limit?: LimitName) {
    super(message);
    this.slug = slug;
    this.details = details;
    this.limit = limit;
  }
}

/** What a store answers when it cannot be exact within its bounds: final for the client, so a 422 as well. */
export class Refused<
  S extends "result_too_large" | "not_supported_by_backend" | "invalid_field" = "result_too_large",
> extends Unprocessable<S> {}

/** The refusal of what a source cannot answer exactly. */
export function createUnsupportedError(
  backend: string,
  feature: string,
): Refused<"not_supported_by_backend"> {
  const message = `The source cannot answer this exactly: ${feature}`;
  return new Refused("not_supported_by_backend", message, { backend, feature });
}

/** The refusal of what a site has no part for. */
export function createMissingPartError(
  feature: string,
  message: string,
): Refused<"not_supported_by_backend"> {
  return new Refused("not_supported_by_backend", message, { backend: null, feature });
}

/** A token is over its rate or has too much under way: 429. Clients retry it after `retryAfterSeconds`. */
export class TooMany extends Error {
  override readonly name = "TooMany";
  readonly retryAfterSeconds: number;
  readonly limit: LimitName;
  constructor(retryAfterSeconds: number, limit: LimitName = "rate") {
    super("Too many requests");
    this.retryAfterSeconds = retryAfterSeconds;
    this.limit = limit;
  }
}

/** The ways a source fails, each with the one sentence a client may read. */
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
 * A source could not answer in full. `message` may quote the source and is for operators: it goes to the log,
 * never to a client. Worth a retry, so the client sees a 500.
 */
export class BackendError extends Error {
  override readonly name = "BackendError";
  readonly backend: string;
  readonly failure: Failure;
  /** Of the source's answer, where it was an error by its status. */
  readonly status: number | undefined;
  /** When an overloaded source wants to be asked again, where it says so. */
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

interface BackendErrorOptions {
  readonly cause?: unknown;
  readonly status?: number | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/** A bound of the program's own, which a client cannot tell from a source's. */
export class LimitReached extends BackendError {
  readonly limit: LimitName;
  constructor(limit: LimitName, failure: "overloaded" | "timeout", message: string) {
    super("readout", failure, message);
    this.limit = limit;
  }
}

/** A file, flag or argument that the program cannot work with. All issues at once. */
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

/** What was thrown, in its own words: for operators. */
export function toErrorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** ` (ENOENT)` for an error that has such a code. */
export function formatErrorCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? ` (${error.code})`
    : "";
}
