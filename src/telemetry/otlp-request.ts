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
  /** What the collector says although it took everything. */
  readonly warning?: string;
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
    const text = await readStart(answer);
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

/** Of an answer no more is read: a longer one is none of a collector. */
const maxAnswerChars = 65_536;
const maxMessageChars = 200;

async function readStart({ body }: Response): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    // Leaving the loop cancels what is left.
    if (text.length > maxAnswerChars) break;
  }
  return text;
}

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
  if (answer === undefined) return { problem: undefined };
  const rejected = answer.rejectedSpans + answer.rejectedLogRecords;
  const message = answer.errorMessage.slice(0, maxMessageChars);
  if (rejected <= 0) return { problem: undefined, ...(message !== "" && { warning: message }) };
  const reason = message === "" ? "" : `: ${message}`;
  return { problem: `the collector rejected ${rejected}${reason}`, rejected };
}
