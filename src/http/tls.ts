// TLS of a server: its certificate, which is replaced while it runs, and those of its clients.
import type { IncomingMessage, RequestListener } from "node:http";
import { createServer, type Server as HttpsServer, type ServerOptions } from "node:https";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { PeerCertificate } from "../access/auth.ts";
import type { TlsConfig } from "../config/edge-settings.ts";
import { parseDateMillis } from "../core/time.ts";

/** How long a client may take for its handshake. */
const handshakeTimeout = 10_000;

/** By which authorities the certificate of a connection was verified: a reload may have replaced them. */
const authorities = new WeakMap<Socket, string>();

export interface TlsServer {
  readonly http: HttpsServer;
  /** From the next handshake on. Connections that are open stay. */
  readonly replace: (tls: TlsConfig) => void;
}

/** A server that speaks TLS 1.2 or later, and does not listen yet. */
export function createTlsServer(
  options: ServerOptions,
  tls: TlsConfig,
  listener: RequestListener,
): TlsServer {
  let current = tls;
  const http = createServer(
    {
      ...options,
      ...toContext(tls),
      handshakeTimeout,
      // A certificate is asked for also where it is missing now: a reload may name its authorities.
      requestCert: true,
      // One that is missing or wrong is no credential; the request may have a token.
      rejectUnauthorized: false,
    },
    listener,
  );
  http.on("secureConnection", (socket) => {
    if (socket.authorized && current.clientCa !== undefined) authorities.set(socket, current.clientCa);
  });
  return {
    http,
    replace: (next) => {
      current = next;
      http.setSecureContext(toContext(next));
    },
  };
}

/** Without authorities no certificate is good: node would take those that browsers trust. */
function toContext({ cert, key, clientCa }: TlsConfig) {
  return { cert, key, ca: clientCa ?? [], minVersion: "TLSv1.2" } as const;
}

const certificates = new WeakMap<Socket, PeerCertificate>();

/** The certificate of a request's client, where these authorities have verified it. */
export function readPeerCertificate(
  { socket }: IncomingMessage,
  clientCa: string,
): PeerCertificate | undefined {
  if (authorities.get(socket) !== clientCa) return undefined;
  const known = certificates.get(socket) ?? parsePeerCertificate(socket as TLSSocket);
  certificates.set(socket, known);
  return known;
}

function parsePeerCertificate(socket: TLSSocket): PeerCertificate {
  const { subject, subjectaltname = "", valid_to } = socket.getPeerCertificate();
  const attributes = Object.entries(subject).map(([name, value]): [string, readonly string[]] => [
    name,
    typeof value === "string" ? [value] : [...(value as readonly string[])],
  ]);
  return {
    subject: Object.fromEntries(attributes),
    names: splitNames(subjectaltname),
    notAfter: parseDateMillis(valid_to),
  };
}

/** Node writes names with special characters as JSON, so that none can look like two; such a name is nobody's here. */
function splitNames(text: string): readonly string[] {
  const names = text.match(/(?:"(?:[^"\\]|\\.)*"|[^",])+/g) ?? [];
  return names.map((name) => name.trim());
}
