// A source on loopback that answers what a test tells it to, and remembers what it was asked.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createSecureServer, type ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";

export interface ScriptedSource {
  readonly url: string;
  readonly requests: { readonly method: string; readonly path: string; readonly body: string }[];
  /** Requests whose client went away before the answer was complete. */
  left: number;
  /** Closes the connections that clients keep, as a restart does. */
  drop(): void;
  close(): Promise<void>;
}
export type Responder = (response: ServerResponse, request: IncomingMessage, body: string) => void;

/** With `tls` it speaks HTTPS. */
export async function openScriptedSource(reply: Responder, tls?: ServerOptions): Promise<ScriptedSource> {
  const listen = (request: IncomingMessage, response: ServerResponse): void => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      fake.requests.push({ method: request.method ?? "", path: request.url ?? "", body });
      response.on("close", () => {
        if (!response.writableFinished) fake.left++;
      });
      reply(response, request, body);
    });
  };
  const server = tls === undefined ? createServer(listen) : createSecureServer(tls, listen);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const fake: ScriptedSource = {
    url: `${tls === undefined ? "http" : "https"}://127.0.0.1:${port}`,
    requests: [],
    left: 0,
    drop: () => server.closeAllConnections(),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return fake;
}

export function sendJson(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json", "x-elastic-product": "Elasticsearch" });
  response.end(typeof value === "string" ? value : JSON.stringify(value));
}
