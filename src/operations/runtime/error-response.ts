// The one place where a failure becomes a status and a body. REST sends them as they are, GraphQL as `extensions` of
// an error, the OpenAPI document describes them: so a client reads the same words whichever way it came.
import * as z from "zod";
import {
  BackendError,
  type DetailsBySlug,
  FiguresUnfinished,
  failures,
  type LimitName,
  LimitReached,
  NotAcceptable,
  NotFound,
  type Slug,
  TooMany,
  Unauthorized,
  Unprocessable,
} from "../../core/errors.ts";
import { ClientGone } from "./lifetime.ts";

export interface FailureResponse {
  readonly status: 401 | 404 | 406 | 422 | 429 | 500;
  readonly headers: Readonly<Record<string, string>>;
  readonly body:
    | { readonly error: string }
    | { readonly error: Slug; readonly message: string; readonly details: DetailsBySlug[Slug] };
}

/** Says nothing of what is not in the table of errors. */
export function describeFailure(error: unknown): FailureResponse {
  const failed = (
    status: FailureResponse["status"],
    body: FailureResponse["body"],
    headers: FailureResponse["headers"] = {},
  ): FailureResponse => ({ status, headers, body });
  if (error instanceof Unauthorized) {
    return failed(401, { error: "Unauthorized" }, { "WWW-Authenticate": "Bearer" });
  }
  if (error instanceof NotFound) return failed(404, { error: "Not found" });
  if (error instanceof NotAcceptable) return failed(406, { error: "Not acceptable" });
  if (error instanceof Unprocessable) {
    return failed(422, { error: error.slug, message: error.message, details: error.details });
  }
  if (error instanceof TooMany) {
    return failed(429, { error: "Too many requests" }, formatQuota(error));
  }
  if (error instanceof BackendError) {
    const headers: FailureResponse["headers"] =
      error.failure === "overloaded" ? { "Retry-After": String(error.retryAfterSeconds ?? 1) } : {};
    const isOwn = error instanceof LimitReached || error instanceof FiguresUnfinished;
    const sentence = isOwn ? error.sentence : undefined;
    return failed(500, { error: sentence ?? failures[error.failure] }, headers);
  }
  return failed(500, { error: "Internal server error" });
}

/**
 * When to try again, and which limit it is: the three names that clients read, and the policy of the IETF's draft "RateLimit
 * header fields for HTTP", which also says what is counted.
 */
function formatQuota({ retryAfterSeconds, limit, quota }: TooMany): FailureResponse["headers"] {
  const retryAfter = String(retryAfterSeconds);
  if (quota === undefined) return { "Retry-After": retryAfter };
  const counted =
    quota.seconds === undefined ? `qu="${quota.unit ?? "concurrent-requests"}"` : `w=${quota.seconds}`;
  return {
    "Retry-After": retryAfter,
    "RateLimit-Limit": String(quota.requests),
    "RateLimit-Remaining": "0",
    "RateLimit-Reset": retryAfter,
    "RateLimit-Policy": `"${limit}";q=${quota.requests};${counted}`,
  };
}

/** The same for GraphQL: a message, and in `extensions` what REST says with a status, a slug and headers. */
export function toGraphqlError({ status, headers, body }: FailureResponse): {
  readonly message: string;
  readonly extensions: Readonly<Record<string, unknown>>;
} {
  const retryAfter = headers["Retry-After"];
  const policy = headers["RateLimit-Policy"];
  return {
    message: "message" in body ? body.message : body.error,
    extensions: {
      status,
      ...("message" in body ? { slug: body.error, details: body.details } : {}),
      ...(retryAfter === undefined ? {} : { retry_after: Number(retryAfter) }),
      ...(policy === undefined ? {} : { rate_limit: policy }),
    },
  };
}

/** The limit that a failure comes from, if it is one of ours. */
export function findLimit(error: unknown): LimitName | undefined {
  if (error instanceof TooMany || error instanceof LimitReached) return error.limit;
  if (!(error instanceof Unprocessable)) return undefined;
  if (error.slug === "result_too_large") return "result";
  return error.slug === "log_query_too_complex" ? "query" : error.limit;
}

/** Whether a failure is the client's affair, and therefore no error in the log. */
export function isClientFault(error: unknown): boolean {
  return (
    error instanceof Unauthorized ||
    error instanceof NotFound ||
    error instanceof NotAcceptable ||
    error instanceof Unprocessable ||
    error instanceof TooMany ||
    error instanceof ClientGone
  );
}

const limit = z.int().meta({ description: "The configured cap.", examples: [500_000] });

/** What `details` of each slug looks like, and when it comes, for documentation; the type holds it to `DetailsBySlug`. */
export const slugSchemas: {
  readonly [S in Slug]: { readonly when: string; readonly details: z.ZodType<DetailsBySlug[S]> };
} = {
  invalid_json: {
    when: "The body is not JSON.",
    details: z.object({
      position: z
        .int()
        .exactOptional()
        .meta({
          description: "Where reading stopped, 0-based, in UTF-16 code units, when it is known.",
          examples: [17],
        }),
    }),
  },
  invalid_request: {
    when: "A field is missing, of the wrong type or out of range. All issues at once, up to a hundred.",
    details: z.object({
      issues: z
        .array(
          z.object({
            path: z.string().meta({
              description: "Dotted; empty for the whole body.",
              examples: ["pagination.per_page"],
            }),
            message: z.string().meta({
              description: "What was expected.",
              examples: ["expected a whole number from 1 to 10000"],
            }),
          }),
        )
        .meta({ description: "Each thing that is wrong." }),
    }),
  },
  legacy_log_query_syntax: {
    when: "The query uses the legacy syntax although `use_expressions` is true.",
    details: z.object({
      field: z.string().meta({ description: "The field as written.", examples: ["attributes.user_string"] }),
    }),
  },
  invalid_log_query: {
    when: "Any other syntax error of a query.",
    details: z.object({
      start: z.int().meta({ description: "0-based, in UTF-16 code units of the query.", examples: [9] }),
      end: z.int().meta({ description: "Exclusive.", examples: [10] }),
      expected: z.string().meta({ description: "What would have been right there.", examples: ["a value"] }),
    }),
  },
  log_query_too_complex: {
    when: "The query is longer, has more terms, longer paths, or is nested deeper, than allowed.",
    details: z.object({ limit: limit.meta({ examples: [1_000] }) }),
  },
  ungrouped_wildcard: {
    when: "A selector has a wildcard on a tag that `group_by` lacks.",
    details: z.object({ tag: z.string().meta({ description: "That tag.", examples: ["namespace"] }) }),
  },
  invalid_field: {
    when: "The field does not exist for the metric's type.",
    details: z.object({
      field: z.string().meta({ description: "The field asked for.", examples: ["p_50"] }),
      metric: z.string().meta({ description: "The metric's name.", examples: ["http_request_duration"] }),
      allowed: z.array(z.string()).meta({
        description: "What the metric has.",
        examples: [["mean", "count", "min", "max", "p_90", "p_95"]],
      }),
    }),
  },
  result_too_large: {
    when: "The answer, or the reading that it needs, would pass a configured cap. `message` holds advice.",
    details: z.object({
      limit,
      wanted: z
        .int()
        .exactOptional()
        .meta({
          description: "How much the request asks for, when it is known.",
          examples: [1_200_000],
        }),
    }),
  },
  invalid_cron_expression: {
    when: "The expression is no cron schedule, or never runs.",
    details: z.object({
      expression: z.string().meta({ description: "As sent.", examples: ["61 * * * *"] }),
      reason: z
        .string()
        .meta({ description: "What is wrong with it.", examples: ["minute 61 is out of range"] }),
    }),
  },
  not_supported_by_backend: {
    when: "The site's source cannot answer this exactly, or the site has no such part.",
    details: z.object({
      backend: z
        .string()
        .nullable()
        .meta({
          description: "The source; null where the site has no such part.",
          examples: ["elk"],
        }),
      feature: z.string().meta({ description: "What it lacks.", examples: ["logs"] }),
    }),
  },
};
