// A client over TLS, which trusts the certificates of the tests and may have one itself.
import { type RequestOptions, request } from "node:https";
import { TLSSocket } from "node:tls";
import { pem, readPem } from "../support/tls.ts";
import { linesBody, linesPath } from "./harness.ts";

export const trusted = [readPem(pem.ca), readPem(pem.secondServer.cert)];
export const publicUrl = "https://readout.example.com:8443";
const host = "readout.example.com:8443";

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly fingerprint: string;
}

/** Asks for lines over a connection of the agent, or a new one. */
export function ask(port: number, over: RequestOptions = {}): Promise<Answer> {
  const { headers, ...options } = over;
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: "127.0.0.1",
        port,
        path: linesPath,
        method: "POST",
        ca: trusted,
        agent: false,
        // The name that is asked for is one of the test.
        checkServerIdentity: () => undefined,
        headers: { host, ...headers },
        ...options,
      },
      (response) => {
        let body = "";
        const { socket } = response;
        const fingerprint =
          socket instanceof TLSSocket ? String(socket.getPeerCertificate().fingerprint256) : "";
        response.setEncoding("utf8").on("data", (text) => {
          body += text;
        });
        response.on("end", () => resolve({ status: response.statusCode ?? 0, body, fingerprint }));
        response.on("error", reject);
      },
    );
    sent.on("error", reject).end(JSON.stringify(linesBody()));
  });
}

/** The options of a client with this certificate. */
export const present = (name: "ana" | "eve" | "forged" | "quoted") => ({
  cert: readPem(pem[name].cert),
  key: readPem(pem[name].key),
});
