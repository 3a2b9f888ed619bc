// One request to a collector: OTLP over HTTP, as JSON.
import { z } from "zod";
import { formatErrorCode } from "../core/errors.ts";
import { tryParseJson } from "../core/json/parse-json.ts";
import type { Millis } from "../core/time.ts";

const answerTimeout: Millis = 5_000;

/** A connection that was kept open may be closed by the collector just when it is used again. */
const closedConnectionCodes: ReadonlySet<unknown> = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

export interface OtlpOutcome {
  /** Undefined where the collector took the request, and all that it holds. */
  readonly problem: string | undefined;
  /** How many spans or records of a request that it took it has rejected: none of them may be sent again. */
  readonly rejected?: number;
  readonly isConnectionClosed?: boolean;
}

/** The address of one kind of data at a collector. */
export function buildOtlpUrl(collector: string, data: "traces" | "logs"): string {
  return `${collector.replace(/\/+$/, "")}/v1/${data}`;
}

/** Never rejects. Ends with the signal, or after 5 seconds. */
export async function postOtlp(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: object,
  signal: AbortSignal,
): Promise<OtlpOutcome> {
  try {
    const answer = await fetch(url, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(body),
      redirect: "error",
      signal: AbortSignal.any([signal, AbortSignal.timeout(answerTimeout)]),
    });
    const text = await answer.text();
    return answer.ok ? readPartialSuccess(text) : { problem: `status ${answer.status}` };
  } catch (error) {
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
    return {
      problem: `no answer${formatErrorCode(cause)}`,
      isConnectionClosed: closedConnectionCodes.has(code),
    };
  }
}

const maxMessageChars = 200;

/** Numbers of 64 bits are text in OTLP's JSON. An answer of another form rejects nothing. */
const answerSchema = z.object({
  partialSuccess: z.object({
    rejectedSpans: z.coerce.number().default(0),
    rejectedLogRecords: z.coerce.number().default(0),
    errorMessage: z.string().default(""),
  }),
});

function readPartialSuccess(text: string): OtlpOutcome {
  const answer = answerSchema.safeParse(tryParseJson(text)).data?.partialSuccess;
  const rejected = answer === undefined ? 0 : answer.rejectedSpans + answer.rejectedLogRecords;
  if (answer === undefined || rejected <= 0) return { problem: undefined };
  const { errorMessage } = answer;
  const reason = errorMessage === "" ? "" : `: ${errorMessage.slice(0, maxMessageChars)}`;
  return { problem: `the collector rejected ${rejected}${reason}`, rejected };
}
