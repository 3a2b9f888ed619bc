// What a platform asks of a running program: whether it lives, whether it is ready, its metrics. At an address of its own
// it is answered also while clients hold all connections of the API.
import {
  createServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { BlockList } from "node:net";
import type { Address } from "../config/schema.ts";
import { type ConnectionGuard, guardConnections } from "../http/connections.ts";
import { installProtocolErrorResponses, notFoundBody, sendJson, stripOrigin } from "../http/node-http.ts";
import { toExchange } from "../http/request.ts";
import { type Answer, writeAnswer } from "../http/response.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";

export interface ProbeSource {
  readonly telemetry: Telemetry;
  /** One line of text for each backend. */
  readonly describeBackends: () => readonly string[];
  /** Whether all tenant filters have been inspected, as far as backends answer. */
  readonly isReady: () => boolean;
  readonly isDraining: () => boolean;
}

export interface ProbeServer {
  readonly http: HttpServer;
  readonly guard: ConnectionGuard;
}

const textType = { "Content-Type": "text/plain; charset=utf-8" };

/** Undefined for any other path. */
export async function answerProbe(
  { telemetry, describeBackends, isReady, isDraining }: ProbeSource,
  path: string,
): Promise<Answer | undefined> {
  switch (path) {
    case "/livez":
      return { status: 200, headers: textType, body: "ok\n" };
    case "/readyz": {
      const state = isDraining() ? "draining" : isReady() ? "ready" : "starting";
      const lines = [state, ...describeBackends()];
      return { status: state === "ready" ? 200 : 503, headers: textType, body: `${lines.join("\n")}\n` };
    }
    case "/metrics": {
      const { contentType, text } = await telemetry.metrics();
      return { status: 200, headers: { "Content-Type": contentType }, body: text };
    }
    default:
      return undefined;
  }
}

/** Few ask here, and each asks for little. */
const maxConnections = 200;

/** A server of the probes alone, which does not listen yet. Anything else is 404. */
export function createProbeServer(source: ProbeSource): ProbeServer {
  const options = { requireHostHeader: false, headersTimeout: 5_000, requestTimeout: 5_000 };
  const http = createServer({ ...options, connectionsCheckingInterval: 1_000 }, (request, response) => {
    respondToProbe(source, request, response).catch((err: unknown) => {
      source.telemetry.log({ level: "error", message: "request handler", err });
      response.destroy();
    });
  });
  const bounds = { connections: maxConnections, perAddress: maxConnections, proxies: new BlockList() };
  const guard = guardConnections(http, bounds, source.telemetry.recordLimit);
  installProtocolErrorResponses(http);
  return { http, guard };
}

async function respondToProbe(
  source: ProbeSource,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const isRead = request.method === "GET" || request.method === "HEAD";
  const [path = ""] = stripOrigin(request.url).split("?", 1);
  const answer = isRead ? await answerProbe(source, path) : undefined;
  if (answer === undefined) return sendJson(response, 404, notFoundBody);
  await writeAnswer(answer, toExchange({ req: request, res: response }), response, source.isDraining());
}

/** Resolves with the address when connections are taken. @throws {Error} the system's, with its `code`, such as EADDRINUSE */
export function listenAt(http: HttpServer, { host, port }: Address): Promise<Address> {
  return new Promise((resolve, reject) => {
    http.once("error", reject);
    http.listen(port, host, () => {
      http.off("error", reject);
      const bound = http.address();
      resolve({ host, port: typeof bound === "object" && bound !== null ? bound.port : port });
    });
  });
}
