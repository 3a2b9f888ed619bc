// Certificates for 127.0.0.1, for tests alone: a CA, a server and a client that it signed, and a CA that signed neither.
// The CA's key was thrown away.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const pathOf = (name: string): string => fileURLToPath(new URL(`tls/${name}`, import.meta.url));

export const pem = {
  ca: pathOf("ca.pem"),
  otherCa: pathOf("other-ca.pem"),
  server: { cert: pathOf("server.pem"), key: pathOf("server.key") },
  client: { cert: pathOf("client.pem"), key: pathOf("client.key") },
} as const;

export const readPem = (path: string): string => readFileSync(path, "utf8");
