// `readout mcp`: for editors that start a program and speak to it over its standard input and output. Each line is a message,
// which is handed to a running server; what that answers is printed as a line.
import { addAbortSignal, type Readable } from "node:stream";
import { parseArgs } from "node:util";
import { formatErrorCode, toErrorMessage } from "../core/errors.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout mcp [--url http://127.0.0.1:8080]

Hands the messages of an editor to a running server, whose token is in the environment variable READOUT_TOKEN.

  --url URL  the server's address, or that of its /mcp
`;

interface Message {
  readonly id?: MessageId;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>> | null;
}

type MessageId = string | number;

interface Upstream {
  readonly url: string;
  readonly token: string;
  /** The revision of the protocol that the client and the server have agreed on. */
  version: string | undefined;
  /** What ends the requests that wait for their answers. */
  readonly requests: Map<MessageId, AbortController>;
}

export async function run(args: readonly string[], shell: Shell): Promise<number> {
  let url: string;
  try {
    const { values } = parseArgs({ args: [...args], options: { url: { type: "string" } } });
    url = values.url ?? "http://127.0.0.1:8080";
  } catch {
    return printUsageError("mcp: expected --url ADDRESS and nothing else", usage, shell);
  }
  // No argument is repeated: it may hold a password.
  const address = /^https?:/.test(url) ? URL.parse(url) : null;
  if (address === null) {
    return printUsageError("mcp: --url is no address such as http://127.0.0.1:8080", usage, shell);
  }
  if (address.username !== "" || address.password !== "") {
    return printUsageError(
      "mcp: --url takes no user and password: READOUT_TOKEN says who asks",
      usage,
      shell,
    );
  }
  const token = (shell.env.READOUT_TOKEN ?? "").trim();
  if (token === "") return printUsageError("mcp: READOUT_TOKEN is not set", usage, shell);
  // `fetch` would refuse it with a message that repeats it.
  if (!/^[\x20-\x7e]+$/.test(token)) {
    return printUsageError("mcp: READOUT_TOKEN is no token: expected one line of ASCII", usage, shell);
  }
  const upstream: Upstream = { url: toEndpoint(address), token, version: undefined, requests: new Map() };
  const open = new Set<Promise<void>>();
  for await (const line of readLines(shell.openInput(), shell.signal)) {
    if (line.trim() === "") continue;
    const message = readMessage(line);
    const forwarded = forwardMessage(line, message, upstream, shell).finally(() => open.delete(forwarded));
    open.add(forwarded);
    // What comes after it names the revision that its answer tells; all else may be answered in any order.
    if (typeof message === "object" && message.method === "initialize") await forwarded;
  }
  await Promise.all(open);
  return exitCodes.done;
}

/**
 * The lines of a stream until `signal` aborts. A line ends at a line feed alone: JSON may hold U+2028 and U+2029 as they are,
 * where `node:readline` would end one too.
 */
async function* readLines(input: Readable, signal: AbortSignal): AsyncGenerator<string> {
  let pieces: Buffer[] = [];
  try {
    for await (const chunk of addAbortSignal(signal, input)) {
      let rest: Buffer = chunk;
      for (let end = rest.indexOf(lineFeed); end >= 0; end = rest.indexOf(lineFeed)) {
        yield Buffer.concat([...pieces, rest.subarray(0, end)]).toString();
        pieces = [];
        rest = rest.subarray(end + 1);
      }
      pieces.push(rest);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
    return;
  }
  yield Buffer.concat(pieces).toString();
}

const lineFeed = 0x0a;

function toEndpoint(address: URL): string {
  const endpoint = new URL(address);
  if (endpoint.pathname === "/") endpoint.pathname = "/mcp";
  return endpoint.href;
}

/** Never throws: a failure is the answer to its message. */
async function forwardMessage(
  line: string,
  message: Message | number,
  upstream: Upstream,
  shell: Shell,
): Promise<void> {
  if (typeof message === "number") {
    printFailure(null, message, "expected a message of JSON-RPC: an object of JSON in one line", shell);
    return;
  }
  const { id = null, method, params } = message;
  if (method === "notifications/cancelled") {
    // The server knows a request by its connection alone: to end that is what cancels it.
    upstream.requests.get(params?.requestId as MessageId)?.abort();
    return;
  }
  const control = new AbortController();
  if (id !== null) upstream.requests.set(id, control);
  try {
    const signal = AbortSignal.any([shell.signal, control.signal]);
    for (const answer of await postMessage(line, message, upstream, signal)) shell.out(`${answer}\n`);
  } catch (error) {
    // Nobody waits for the answer to what was cancelled, and a notification has none.
    if (control.signal.aborted) return;
    // The message of `fetch` is the same for all that may be wrong.
    const cause = formatErrorCode(error instanceof Error ? error.cause : undefined);
    const failure = `${toErrorMessage(error)}${cause}`;
    if (method !== undefined && id === null) shell.err(`readout mcp: ${failure}\n`);
    else printFailure(id, errorCodes.internal, failure, shell);
  } finally {
    if (id !== null && upstream.requests.get(id) === control) upstream.requests.delete(id);
  }
}

/** Those of JSON-RPC. */
const errorCodes = { parse: -32_700, request: -32_600, internal: -32_603 } as const;

/** Returns the code of the error where the line is no message. */
function readMessage(line: string): Message | number {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? value : errorCodes.request;
  } catch {
    return errorCodes.parse;
  }
}

function printFailure(id: MessageId | null, code: number, message: string, shell: Shell): void {
  shell.err(`readout mcp: ${message}\n`);
  shell.out(`${JSON.stringify({ jsonrpc: "2.0", id, error: { code, message } })}\n`);
}

/** The messages that the server answers, a line each. @throws {Error} with what it says where that is no message */
async function postMessage(
  line: string,
  message: Message,
  upstream: Upstream,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const response = await fetch(upstream.url, {
    method: "POST",
    headers: buildHeaders(message, upstream),
    body: line,
    signal,
  });
  const text = await response.text();
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
  const answers = isStream ? readEvents(text) : [text];
  const messages = answers.filter((answer) => answer.trim() !== "");
  if (messages.some((answer) => !answer.includes('"jsonrpc"'))) {
    throw new Error(`the server answered ${response.status} ${text.slice(0, 200)}`);
  }
  if (message.method === "initialize") upstream.version = readVersion(messages[0] ?? "");
  return messages.map((answer) => answer.replace(/[\r\n]/g, " "));
}

/** The data of each server-sent event. JavaScript's `^` and `$` know more ends of lines than such a stream has. */
function readEvents(text: string): readonly string[] {
  const events = text.replace(/\r\n?/g, "\n").split("\n\n");
  return events.map((event) =>
    event
      .split("\n")
      .flatMap((line) => (line.startsWith("data:") ? [line.slice("data:".length)] : []))
      .join("\n"),
  );
}

function readVersion(answer: string): string | undefined {
  const { result } = JSON.parse(answer) as { readonly result?: { readonly protocolVersion?: string } };
  return result?.protocolVersion;
}

const versionKey = "io.modelcontextprotocol/protocolVersion";

/** What the protocol wants beside a message over HTTP; from 2026-07-28 on a message names its own revision. */
function buildHeaders({ method, params }: Message, upstream: Upstream): Record<string, string> {
  const meta = params?._meta as Readonly<Record<string, unknown>> | null | undefined;
  const own = meta?.[versionKey];
  const version = typeof own === "string" ? own : upstream.version;
  const name = params?.name ?? params?.uri;
  return {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
    Authorization: `Bearer ${upstream.token}`,
    ...(version === undefined ? {} : { "MCP-Protocol-Version": encodeHeader(version) }),
    ...(typeof own !== "string" || typeof method !== "string" ? {} : { "Mcp-Method": encodeHeader(method) }),
    ...(typeof own !== "string" || typeof name !== "string" ? {} : { "Mcp-Name": encodeHeader(name) }),
  };
}

/** As the protocol writes what is not printable ASCII, or would be read as something else: a header holds no other text. */
function encodeHeader(value: string): string {
  const isPlain = /^(?! )[\x20-\x7e]+(?<! )$/.test(value) && !/^=\?base64\?.*\?=$/.test(value);
  return isPlain ? value : `=?base64?${Buffer.from(value).toString("base64")}?=`;
}
