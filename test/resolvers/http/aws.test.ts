// Signed requests: Amazon's published vectors, and each of the three clients in front of a source that verifies signatures by
// itself.
import { createHash, createHmac } from "node:crypto";
import { request as createRequest, type IncomingMessage } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import { z } from "zod";
import {
  createElasticsearchTransport,
  createOpenSearchTransport,
  type ElasticRequest,
} from "#resolvers/elastic/client/transports.ts";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { type AwsCredentials, createAwsLogin, sendSigned, signRequest } from "#resolvers/http/aws.ts";
import { createGuard } from "#resolvers/http/guard.ts";
import { createTransport, readJson } from "#resolvers/prometheus/client/transport.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { BackendError } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { testIO } from "../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../support/scripted-http-source.ts";
import vectors from "./aws-vectors.json" with { type: "json" };

const example = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY" };

describe("the vectors that Amazon has published", () => {
  /** Their paths are not encoded, so that node sends no such request; the signer takes what goes over the wire. */
  const unsendable = new Set(["get-space", "get-utf8"]);
  test.each(vectors.filter(({ name }) => !unsendable.has(name)))(
    "$name",
    async ({ method, path, headers, body, authorization }) => {
      const request = { method, path, host: "example.amazonaws.com", headers: dropAbsent(headers), body };
      const at = fromMillis(Date.UTC(2015, 7, 30, 12, 36));
      const signed = await signRequest(request, { region: "us-east-1", service: "service" }, example, at);
      expect(signed.authorization).toBe(authorization);
    },
  );
  test.each(vectors.filter(({ name }) => unsendable.has(name)))("$name cannot be sent", ({ path }) => {
    expect(() => createRequest({ path })).toThrow("unescaped characters");
  });
});

function dropAbsent(headers: object): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== undefined));
}

const opened: ScriptedSource[] = [];
afterEach(async () => {
  for (const source of opened.splice(0)) await source.close();
  vi.useRealTimers();
});

/** Verifies a request as Amazon documents it, from what came over the wire. Undefined where it is right. */
function findFault(
  { method = "", url = "", headers }: IncomingMessage,
  body: string,
  known: ReadonlyMap<string, AwsCredentials>,
): string | undefined {
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/([^/]+)\/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/;
  const [, id = "", day = "", region = "", service = "", names = "", signature] =
    form.exec(headers.authorization ?? "") ?? [];
  const credentials = known.get(id);
  if (credentials === undefined) return "The security token included in the request is invalid";
  if (headers["x-amz-security-token"] !== credentials.sessionToken) return "no token of the session";
  const hash = createHash("sha256").update(body).digest("hex");
  const type = url.startsWith("/workspaces/") ? "application/x-www-form-urlencoded" : "application/json";
  if (method === "POST" && headers["content-type"] !== type) return `the type is ${headers["content-type"]}`;
  if (headers["x-amz-content-sha256"] !== hash) return "the hash of the body is wrong";
  for (const name of ["host", "x-amz-date", "x-amz-content-sha256"])
    if (!names.split(";").includes(name)) return `${name} is not signed`;
  const [path = "", query = ""] = url.split("?");
  const encode = (text: string) =>
    encodeURIComponent(text).replace(
      /[!'()*]/g,
      (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
    );
  // As it came: whoever decodes it first does not see that a plus is no space.
  const canonicalQuery = query.split("&").sort().join("&");
  const canonical = [
    method,
    // Encoded once more than on the wire.
    path.split("/").map(encode).join("/"),
    canonicalQuery,
    ...names.split(";").map((name) => `${name}:${String(headers[name]).trim().replace(/ +/g, " ")}`),
    "",
    names,
    hash,
  ].join("\n");
  const scope = `${day}/${region}/${service}/aws4_request`;
  const text = ["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, sha256(canonical)].join("\n");
  const key = [day, region, service, "aws4_request"].reduce<string | Buffer>(
    (key, part) => createHmac("sha256", key).update(part).digest(),
    `AWS4${credentials.secretAccessKey}`,
  );
  if (createHmac("sha256", key).update(text).digest("hex") !== signature)
    return `The request signature we calculated does not match\n${canonical}`;
  return undefined;
}
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");

const products = ["Elasticsearch", "OpenSearch", "Prometheus"] as const;
const never = new AbortController().signal;
const request: ElasticRequest = {
  method: "POST",
  path: "/logs-*,%3Clogs-%7Bnow%2Fd%7D%3E/_search",
  query: { ignore_unavailable: "true", filter_path: "hits.hits._id,took", routing: "a b&c=d/é~*" },
  body: '{"query":{"match":{"message":"é"}}}',
};

/** A source that takes signed requests alone, and a client of it. */
async function open(
  product: (typeof products)[number],
  over: { credentials?: readonly AwsCredentials[]; refuse?: () => string | undefined } = {},
) {
  const handed = over.credentials ?? [{ ...example, sessionToken: "a/token+of=the session" }];
  const known = new Map(handed.slice(-1).map((one) => [one.accessKeyId, one]));
  const state = { loads: 0, refused: [] as string[] };
  const source = await openScriptedSource((response, incoming, body) => {
    const fault = over.refuse?.() ?? findFault(incoming, body, known);
    if (fault === undefined) return sendJson(response, { status: "success", data: { ok: true } });
    state.refused.push(fault);
    sendJson(response, { message: fault }, 403);
  });
  opened.push(source);
  const auth = createAwsLogin({
    backend: "amazon",
    settings: { region: "eu-central-1", service: product === "Prometheus" ? "aps" : "es" },
    now: () => fromMillis(Date.UTC(2026, 0, 15)),
    loadCredentials: async () => async () => {
      state.loads += 1;
      return handed[Math.min(state.loads, handed.length) - 1] ?? example;
    },
  });
  const shared = { auth, headers: {}, timeout: 5_000 };
  if (product === "Prometheus") {
    const url = `${source.url}/workspaces/ws-1`;
    const settings = { ...prometheusSettings, ...shared, url, answerBytes: 1_000_000 };
    const transport = createTransport("amazon", settings, testIO);
    const form = new URLSearchParams({ query: 'up{a="é b"}', time: "1" });
    const path = `/api/v1/query?${new URLSearchParams({ "match[]": '{a=~"b+.*"}' })}`;
    const ask = () => readJson(transport, z.unknown(), { method: "POST", path, form }, never);
    return { state, ask };
  }
  const create = product === "OpenSearch" ? createOpenSearchTransport : createElasticsearchTransport;
  const transport = await create(source.url, { ...shared, maxResponseBytes: 1_000_000 });
  const ask = async () => {
    const { status, body } = await transport.send(request, never);
    if (status !== 200) throw new Error(body.toString());
  };
  return { state, ask };
}

const prometheusSettings = { concurrent: 2, queued: 2, failuresToOpen: 10, openFor: 1_000, retryDelay: 1 };

describe.each(products)("%s", (product) => {
  test("takes each request as signed, with the token of its session", async () => {
    const { state, ask } = await open(product);
    await Promise.all([ask(), ask(), ask()]);
    expect(state).toEqual({ loads: 1, refused: [] });
  });

  test("is asked again with new credentials where the old ones were withdrawn", async () => {
    const { state, ask } = await open(product, {
      credentials: [{ ...example, accessKeyId: "OLD" }, example],
    });
    await ask();
    await ask();
    expect(state.loads).toBe(2);
    expect(state.refused).toHaveLength(1);
  });

  test.each([
    [
      "Signature expired: 20260115T000000Z is now earlier than 20260115T000500Z",
      /^AWS refuses the signature for its time: the clock of this machine is \d+ s (?:behind|ahead)/,
    ],
    [
      "The security token included in the request is expired",
      /^AWS refuses the credentials: they have expired or were withdrawn/,
    ],
    [
      "The request signature we calculated does not match the signature you provided",
      /^AWS refuses the signature: .*eu-central-1/,
    ],
  ])("says in one sentence why it refuses: %s", async (told, sentence) => {
    const { ask } = await open(product, { refuse: () => told });
    const failure = await ask().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(BackendError);
    expect(failure).toMatchObject({ failure: "denied", message: expect.stringMatching(sentence) });
    expect(JSON.stringify(failure)).not.toContain(example.secretAccessKey);
  });

  test("lets another refusal through as it is", async () => {
    const { state, ask } = await open(product, { refuse: () => "no rights for this index" });
    await expect(ask()).rejects.toThrow("no rights for this index");
    expect(state.refused).toHaveLength(1);
  });
});

test("credentials that nobody gives are not blamed on the source", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const loading = Promise.withResolvers<void>();
  const login = createAwsLogin({
    backend: "amazon",
    settings: { region: "eu-central-1", service: "es" },
    now: () => fromMillis(Date.UTC(2026, 0, 15)),
    loadCredentials: async () => () => {
      loading.resolve();
      return new Promise(() => {});
    },
  });
  const guard = createGuard("amazon", { timeout: 2_000, concurrent: 1, queued: 1 }, testIO);
  const sign = (signal: AbortSignal) => login.aws.sign({ method: "GET", host: "a", path: "/" }, signal);
  const failed = guard
    .run(true, never, sign, () => ({ method: "GET", path: "/" }))
    .catch((error: unknown) => error);
  await loading.promise;
  vi.advanceTimersByTime(2_000);
  expect(await failed).toMatchObject({
    failure: "denied",
    message: "no credentials for AWS: nobody gave any in time",
  });
  // Ends the renewal as well.
  vi.advanceTimersByTime(3_000);
});

test("a late refusal of old credentials does not drop the new ones", async () => {
  let loads = 0;
  const login = createAwsLogin({
    backend: "amazon",
    settings: { region: "eu-central-1", service: "es" },
    now: () => fromMillis(Date.UTC(2026, 0, 15)),
    loadCredentials: async () => async () => ({ ...example, accessKeyId: `KEY${++loads}` }),
  });
  const ask = (delay: number) =>
    sendSigned(
      login,
      { method: "GET", host: "a", path: "/" },
      never,
      async ({ authorization }) => {
        await new Promise((resolve) => setTimeout(resolve, delay));
        return authorization?.includes("Credential=KEY1/") === true ? 403 : 200;
      },
      (status) =>
        status === 200 ? undefined : Promise.resolve({ status, text: "ExpiredToken", date: undefined }),
    );
  expect(await Promise.all([1, 20, 40, 60].map(ask))).toEqual([200, 200, 200, 200]);
  expect(loads).toBe(2);
});

test("credentials are renewed before they end, and the old ones serve while nobody gives new ones", async () => {
  let clock = Date.UTC(2026, 0, 15);
  let loads = 0;
  let isDown = false;
  const login = createAwsLogin({
    backend: "amazon",
    settings: { region: "eu-central-1", service: "es" },
    now: () => fromMillis(clock),
    loadCredentials: async () => async () => {
      if (isDown) throw new Error("no answer of the metadata service");
      loads += 1;
      return { ...example, accessKeyId: `KEY${loads}`, expiration: new Date(clock + 3_600_000) };
    },
  });
  const sign = async () =>
    /Credential=(\w+)/.exec(
      (await login.aws.sign({ method: "GET", host: "a", path: "/" }, never)).headers.authorization ?? "",
    )?.[1];
  expect([await sign(), await sign()]).toEqual(["KEY1", "KEY1"]);
  clock += 56 * 60_000;
  isDown = true;
  expect(await sign()).toBe("KEY1");
  clock += 10 * 60_000;
  await expect(sign()).rejects.toThrow("no credentials for AWS: no answer of the metadata service");
  isDown = false;
  clock += 2_000;
  expect(await sign()).toBe("KEY2");
});

test("without Amazon's library one sentence says what to install", async () => {
  const settings = { url: "http://127.0.0.1:9", auth: { aws: { region: "eu-central-1", service: "es" } } };
  const backend = elastic.create("amazon", elastic.parseConfig(settings), testIO);
  await expect(backend.probe(never)).rejects.toThrow(/npm install @aws-sdk\/credential-providers/);
  await backend.close();
});

test.each([
  [elastic, "aps"],
  [prometheus, "es"],
])("a service of the other kind is refused", (kind, service) => {
  const settings = { url: "http://127.0.0.1:9", auth: { aws: { region: "eu-central-1", service } } };
  expect(() => kind.parseConfig(settings)).toThrow();
});
