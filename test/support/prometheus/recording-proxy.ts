// A proxy before a Prometheus that records every selector of every query and of every `match[]`, parsed with the grammar
// of Prometheus' own editor.
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { type ParsedMatcher, parseSelectors } from "./promql-selectors.ts";

interface Recorder {
  readonly url: string;
  readonly selectors: ParsedMatcher[][];
  /** The metrics of metadata requests, the only ones without forced labels. */
  readonly metadata: Set<string>;
  /** Descriptions of requests that could not be parsed. */
  readonly strange: string[];
  requests: number;
  close(): Promise<void>;
}

export async function openRecorder(target: string): Promise<Recorder> {
  const server = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = [];
    incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
    incoming.on("end", () => {
      const body = Buffer.concat(chunks);
      recorder.requests++;
      recordExchange(recorder, incoming.url ?? "", body.toString());
      const { method, headers } = incoming;
      const passed = request(target + incoming.url, { method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(outgoing);
      });
      passed.on("error", () => outgoing.destroy());
      outgoing.on("close", () => passed.destroy());
      passed.end(body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const recorder: Recorder = {
    url: `http://127.0.0.1:${port}`,
    selectors: [],
    metadata: new Set(),
    strange: [],
    requests: 0,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return recorder;
}

const harmless: readonly string[] = [
  "time",
  "start",
  "end",
  "step",
  "timeout",
  "lookback_delta",
  "partial_response",
  "max_source_resolution",
  "nocache",
  "latency_offset",
  "dedup",
];

export function recordExchange(
  recorder: Pick<Recorder, "selectors" | "metadata" | "strange">,
  url: string,
  body: string,
): void {
  const { pathname, searchParams } = new URL(url, "http://source");
  for (const part of [searchParams, new URLSearchParams(body)]) {
    for (const [key, value] of part) {
      try {
        if (key === "query" || key === "match[]") recorder.selectors.push(...parseSelectors(value));
        else if (key === "metric" && pathname.endsWith("/metadata")) recorder.metadata.add(value);
        else if (!harmless.includes(key)) {
          recorder.strange.push(`the parameter ${key} of ${pathname}`);
        }
      } catch (error) {
        recorder.strange.push(String(error));
      }
    }
  }
}
