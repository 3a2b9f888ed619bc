// The credentials that the two official clients send.
import { expect, test } from "vitest";
import {
  createElasticsearchTransport,
  createOpenSearchTransport,
} from "#resolvers/elastic/client/transports.ts";
import { openScriptedSource, sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

const settings = { headers: {}, timeout: 10_000, maxResponseBytes: 2 ** 20 };

test.each([
  ["Elasticsearch's client", createElasticsearchTransport],
  ["OpenSearch's client", createOpenSearchTransport],
] as const)("%s sends user names and passwords as they are, empty ones too", async (_, create) => {
  const seen: (string | undefined)[] = [];
  const source = await openScriptedSource((response, { headers }) => {
    seen.push(headers.authorization);
    response.setHeader("x-elastic-product", "Elasticsearch");
    sendJson(response, {});
  });
  const logins = [
    { username: "üser", password: "pä%41:s@/ß+ " },
    { username: "user", password: "" },
    { username: "", password: "secret" },
    { username: "", password: "" },
  ];
  for (const auth of logins) {
    const transport = await create(source.url, { ...settings, auth });
    await transport.send({ method: "GET", path: "/" }, never);
    await transport.close();
  }
  await source.close();
  const encode = (text: string): string => `Basic ${Buffer.from(text).toString("base64")}`;
  expect(seen).toEqual(logins.map(({ username, password }) => encode(`${username}:${password}`)));
});

test.each([
  ["Elasticsearch's client", createElasticsearchTransport],
  ["OpenSearch's client", createOpenSearchTransport],
] as const)("%s sends the login of auth, also beside a header of that name", async (_, create) => {
  const seen: (string | undefined)[] = [];
  const source = await openScriptedSource((response, { headers }) => {
    seen.push(headers.authorization);
    sendJson(response, {});
  });
  for (const auth of [{ api_key: "a2V5" }, { bearer: "token" }, { username: "user", password: "secret" }]) {
    const transport = await create(source.url, { ...settings, headers: { Authorization: "other" }, auth });
    await transport.send({ method: "GET", path: "/" }, never);
    await transport.close();
  }
  await source.close();
  expect(seen).toEqual(["ApiKey a2V5", "Bearer token", "Basic dXNlcjpzZWNyZXQ="]);
});
