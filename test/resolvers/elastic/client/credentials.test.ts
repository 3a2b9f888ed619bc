// The credentials that the two official clients send.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import {
  createElasticsearchTransport,
  createOpenSearchTransport,
} from "#resolvers/elastic/client/transports.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.close();
    server.closeAllConnections();
  }
});

async function serve() {
  const seen: (string | undefined)[] = [];
  const server = createServer(({ headers }, response) => {
    seen.push(headers.authorization);
    response.writeHead(200, { "content-type": "application/json", "x-elastic-product": "Elasticsearch" });
    response.end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  servers.push(server);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const settings = { headers: {}, timeout: 10_000, maxResponseBytes: 2 ** 20 };

test.each([
  ["Elasticsearch's client", createElasticsearchTransport],
  ["OpenSearch's client", createOpenSearchTransport],
] as const)("%s sends user names and passwords as they are, empty ones too", async (_, create) => {
  const { url, seen } = await serve();
  const logins = [
    { username: "üser", password: "pä%41:s@/ß+ " },
    { username: "user", password: "" },
    { username: "", password: "secret" },
    { username: "", password: "" },
  ];
  for (const auth of logins) {
    const transport = await create(url, { ...settings, auth });
    await transport.send({ method: "GET", path: "/" }, AbortSignal.timeout(60_000));
    await transport.close();
  }
  const encode = (text: string): string => `Basic ${Buffer.from(text).toString("base64")}`;
  expect(seen).toEqual(logins.map(({ username, password }) => encode(`${username}:${password}`)));
});
