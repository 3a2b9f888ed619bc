// Certificates for 127.0.0.1, for tests alone: a CA, a server and a client that it signed, and a CA that signed neither.
// The keys of the CAs were thrown away.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const pathOf = (name: string): string => fileURLToPath(new URL(`tls/${name}`, import.meta.url));

export const pem = {
  ca: pathOf("ca.pem"),
  otherCa: pathOf("other-ca.pem"),
  server: { cert: pathOf("server.pem"), key: pathOf("server.key") },
  /** Another certificate for 127.0.0.1, which signs itself. */
  secondServer: { cert: pathOf("second-server.pem"), key: pathOf("second-server.key") },
  /** The authority of the clients below, but for the forged one. */
  clientsCa: pathOf("clients-ca.pem"),
  /** C=DE, O=Acme, OU=ops, OU=shop, CN=ana; URI:spiffe://acme/agent, email:ana@example.com. */
  ana: { cert: pathOf("ana.pem"), key: pathOf("ana.key") },
  /** C=DE, O=Evil, CN=ana; URI:spiffe://acme/agent2, DNS:a.example.com. */
  eve: { cert: pathOf("eve.pem"), key: pathOf("eve.key") },
  /** As ana's, of another authority. */
  forged: { cert: pathOf("forged.pem"), key: pathOf("forged.key") },
  /** One URI that looks like two: `spiffe://acme/x, URI:spiffe://acme/agent`. */
  quoted: { cert: pathOf("quoted.pem"), key: pathOf("quoted.key") },
  /** Signs itself, with a key of 1,024 bits. */
  weak: { cert: pathOf("weak.pem"), key: pathOf("weak.key") },
  client: { cert: pathOf("client.pem"), key: pathOf("client.key") },
} as const;

export const readPem = (path: string): string => readFileSync(path, "utf8");
