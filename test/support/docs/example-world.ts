// What the configurations of the reference refer to: variables, and files by their names.
import { kinds } from "#resolvers/index.ts";
import { pem, readPem } from "../tls.ts";
import { readUserPages } from "./pages.ts";

const pemFiles: Readonly<Record<string, string>> = {
  "cert.pem": readPem(pem.server.cert),
  "key.pem": readPem(pem.server.key),
  "clients.pem": readPem(pem.clientsCa),
};

const readLayout = (kind: string): string =>
  readUserPages()
    .flatMap(({ blocks }) => blocks)
    .find((block) => block.kind === kind)?.text ?? "";

export const exampleWorld = {
  kinds,
  env: {
    ES_API_KEY: "k",
    ES_PASSWORD: "p",
    MIMIR_TOKEN: "t",
    FRONTEND_KEY: "f",
    AUDIT_KEY: "a key that nobody knows",
    COLLECTOR_TOKEN: "t",
  },
  readText: (path: string): string =>
    pemFiles[path.split("/").at(-1) ?? ""] ??
    (/layouts\/.*\.yaml$/.test(path)
      ? readLayout(path.includes("traces") ? "yaml span-layout" : "yaml log-layout")
      : "a secret"),
};
