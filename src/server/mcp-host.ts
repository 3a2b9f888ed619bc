// Agents beside REST: `/mcp` and `/api/mcp`, and the routes of a container that forwards to them. The library of the protocol is
// loaded with the first request. The token comes in the header only, so that it stands in no address.

import { narrowLimits } from "../access/account-slots.ts";
import { type Principal, readToken } from "../access/auth.ts";
import { NotFound, Unprocessable } from "../core/errors.ts";
import type { BodyReader, Exchange } from "../http/request.ts";
import { type Answer, jsonType } from "../http/response.ts";
import type { AgentServer, ProtocolAnswer } from "../mcp/agent-server.ts";
import { isClientFault } from "../operations/runtime/error-response.ts";
import type { RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { answerPreflight, isOriginAllowed } from "./cross-origin.ts";
import { auditOperations } from "./operation-audit.ts";
import {
  admitToken,
  type ConfigGeneration,
  type FinishRequest,
  noteUser,
  type RequestLog,
  receiveBody,
} from "./rest.ts";

/** What a request of an agent is answered by. */
export interface AgentHost {
  readonly operations: readonly Endpoint[];
  readonly bodies: BodyReader;
  readonly telemetry: Telemetry;
  readonly generation: ConfigGeneration;
}

/** Loaded once for the operations of a host: it depends on them alone. */
const servers = new WeakMap<AgentHost["operations"], Promise<AgentServer>>();

function loadServer({ operations }: AgentHost): Promise<AgentServer> {
  const loading =
    servers.get(operations) ??
    import("../mcp/agent-server.ts").then(({ createAgentServer }) => createAgentServer(operations));
  servers.set(operations, loading);
  return loading;
}

/** @throws {Unauthorized} {TooMany} {NotFound} {Unprocessable} */
export async function answerAgent(host: AgentHost, exchange: Exchange, log: RequestLog): Promise<Answer> {
  const { fields, finish } = log;
  const { method, path, headers, gone } = exchange;
  const { generation } = host;
  const part = path.replace(/^(?:\/api)?\/mcp\/?/, "");
  fields.operation = "mcp";
  fields.route = "/api/mcp";
  if (!isOriginAllowed(exchange, generation.origins)) {
    return finishWith(finish, 403, { error: "The Origin is not allowed" });
  }
  const isListing = path.startsWith("/api/mcp/") && listings.includes(part);
  const isCall = path === "/api/mcp/tool";
  if (part !== "" && !isListing && !isCall) throw new NotFound();
  const allowed = isListing ? "GET" : "POST";
  // Neither counted nor logged: a browser asks it for itself, and without a token. What it asks for is a request of its own.
  if (method === "OPTIONS" && headers.get("origin") !== null) return answerPreflight(exchange, allowed);
  if (method !== allowed) {
    return finishWith(finish, 405, { error: "Method not allowed" }, { Allow: allowed });
  }
  const { principal, work } = await admitToken(generation, exchange, readToken(headers, ""), (principal) => {
    noteUser(fields, principal);
    if (!principal.hasScope("mcp")) throw new NotFound();
    return { principal, work: generation.executor.join(principal, gone) };
  });
  try {
    const server = await loadServer(host);
    const session = createToolSession(host, exchange, principal, log, work);
    if (isListing) return await finishWith(finish, 200, await listPart(part, server, session));
    const returnSlot = await generation.executor.takeSlot(principal, work.signal);
    const reading = host.bodies.readJson(exchange, principal.account, work.signal);
    const body = await receiveBody(reading, work).finally(returnSlot);
    checkSize(body);
    fields.operation = nameOperation(isCall, body);
    const answer = isCall
      ? answerContainer(body, server, session)
      : answerProtocol(exchange, body, server, session);
    const { status, text, type } = await work.wait(answer);
    fields.bytes = Buffer.byteLength(text);
    await finish(status, false);
    return { status, headers: { "Content-Type": type }, body: text };
  } finally {
    work.end();
  }
}

const listings: readonly string[] = ["tools", "resources", "prompts"];

async function finishWith(
  finish: FinishRequest,
  status: number,
  body: object,
  headers: Answer["headers"] = {},
): Promise<Answer> {
  await finish(status, false);
  return { status, headers: { ...jsonType, ...headers }, body: JSON.stringify(body) };
}

function createToolSession(
  { operations, telemetry, generation }: AgentHost,
  { id }: Exchange,
  principal: Principal,
  log: RequestLog,
  { signal, held }: RequestLifetime,
) {
  const executor = auditOperations(generation, id, log);
  const limits = narrowLimits(generation.limits, principal.limits);
  return {
    sites: [...executor.selectVisibleSites(principal).values()],
    endpoints: operations,
    limits,
    now: generation.now,
    signal,
    complete: (prepare: Parameters<typeof executor.complete>[0]) =>
      executor.complete(
        prepare,
        principal,
        { limit: limits.rows, left: limits.rows, held },
        { waits: "briefly" },
        signal,
      ),
    reportFailure: (tool: string, err: unknown) => {
      if (!isClientFault(err))
        telemetry.log({ level: "error", message: "request failed", request: id, operation: tool, err });
    },
  };
}
type OpenSession = ReturnType<typeof createToolSession>;

/** `mcp.call` for a call of a tool, else `mcp`: never a text of the client. */
function nameOperation(isCall: boolean, body: unknown): string {
  const { method } = (body ?? {}) as { readonly method?: unknown };
  return isCall || method === "tools/call" ? "mcp.call" : "mcp";
}

async function listPart(part: string, server: AgentServer, session: OpenSession): Promise<object> {
  if (part === "tools") return { tools: server.listTools() };
  if (part === "prompts") return { prompts: [] };
  const { listResources } = await import("../mcp/resources.ts");
  return { resources: listResources(session.sites) };
}

/** Whoever forwards for a container sends the name and the arguments alone. @throws {NotFound} no such tool */
async function answerContainer(
  body: unknown,
  server: AgentServer,
  session: OpenSession,
): Promise<ProtocolAnswer> {
  const { name, arguments: args } = (body ?? {}) as { readonly name?: unknown; readonly arguments?: unknown };
  const answer = await server.callTool(String(name), args, session);
  if (answer === undefined) throw new NotFound();
  return { status: 200, type: jsonType["Content-Type"], text: JSON.stringify(answer) };
}

async function answerProtocol(
  { headers, path }: Exchange,
  body: unknown,
  server: AgentServer,
  session: OpenSession,
): Promise<ProtocolAnswer> {
  if (Array.isArray(body)) throw createProtocolError("A batch is not taken; send one message");
  const { method } = (body ?? {}) as { readonly method?: unknown };
  // A stream of changes would never have any.
  if (method === "subscriptions/listen") throw createProtocolError("There are no subscriptions");
  const request = new Request(`http://readout${path}`, {
    method: "POST",
    headers: copyHeaders(headers),
  });
  return await server.answer(request, body, session);
}

/** More than any request of a tool needs; what reads and prints a message recurses, and visits each value several times. */
const maxDepth = 64;
const maxValues = 5_000;

/** @throws {Unprocessable} */
function checkSize(body: unknown): void {
  let level: readonly unknown[] = [body];
  let values = 0;
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) throw createProtocolError(`The body is nested deeper than ${maxDepth} levels`);
    level = level.flatMap((value) =>
      typeof value === "object" && value !== null ? Object.values(value) : [],
    );
    values += level.length;
    if (values > maxValues) throw createProtocolError(`The body has more than ${maxValues} values`);
  }
}

const protocolHeaders: readonly string[] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

/** Those that the protocol reads; both forms of an answer are taken from the library, whatever a client can read. */
function copyHeaders(headers: Exchange["headers"]): Headers {
  const copied = new Headers({
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
  });
  for (const name of protocolHeaders) {
    const value = headers.get(name);
    if (value !== null) copied.set(name, value);
  }
  return copied;
}

function createProtocolError(message: string): Unprocessable {
  return new Unprocessable("invalid_request", message, { issues: [{ path: "", message }] });
}
