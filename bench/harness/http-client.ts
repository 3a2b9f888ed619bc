// The client's side of a measurement: keep-alive connections, whole bodies read and dropped, time taken from the
// first byte written to the last byte read.
import { Agent, request } from "node:http";

export interface Call {
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly body?: string;
  readonly token?: string;
  readonly accept?: string;
}
interface Sent {
  readonly millis: number;
  readonly bytes: number;
  /** Only where the call was made with `keep`. */
  readonly body: string;
}

export function createAgent(): Agent {
  return new Agent({ keepAlive: true, maxSockets: 256 });
}

/** @throws when the answer is not 200 or is cut: a failed request has no time. */
export function send(agent: Agent, call: Call, keep = false): Promise<Sent> {
  return new Promise((resolve, reject) => {
    const start = performance.now();
    const headers: Record<string, string | number> = {};
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      headers["content-length"] = Buffer.byteLength(call.body);
    }
    if (call.token !== undefined) headers.authorization = `Bearer ${call.token}`;
    if (call.accept !== undefined) headers.accept = call.accept;
    const outgoing = request(call.url, { method: call.method, agent, headers }, (response) => {
      const kept: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (keep || response.statusCode !== 200) kept.push(chunk);
      });
      response.on("error", reject);
      response.on("end", () => {
        const millis = performance.now() - start;
        const body = Buffer.concat(kept).toString();
        if (!response.complete) reject(new Error(`${call.url}: the answer was cut`));
        else if (response.statusCode === 200) resolve({ millis, bytes, body });
        else reject(new Error(`${call.method} ${call.url}: ${response.statusCode} ${body.slice(0, 500)}`));
      });
    });
    outgoing.on("error", reject);
    outgoing.end(call.body);
  });
}
