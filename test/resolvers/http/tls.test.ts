// TLS with each of the three clients: the server's certificate is verified, and the client shows its own.
import type { ServerOptions } from "node:https";
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { describeError } from "#src/cli/support/open-backend.ts";
import { BackendError } from "#src/core/errors.ts";
import type { Backend, BackendInfo, IO } from "#src/store/backend.ts";
import { testIO } from "../../support/io.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../../support/scripted-http-source.ts";
import { never } from "../../support/signals.ts";
import { pem, readPem } from "../../support/tls.ts";

const io: IO = { ...testIO, readText: readPem };
const server: ServerOptions = {
  cert: readPem(pem.server.cert),
  key: readPem(pem.server.key),
  ca: readPem(pem.ca),
};
const versioned = (version: object) => (response: Parameters<Responder>[0]) => {
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify({ version }));
};

interface Client {
  readonly name: string;
  readonly reply: Responder;
  readonly open: (url: string, tls: object) => Backend;
}
const openElastic: Client["open"] = (url, tls) =>
  elastic.create("source", elastic.parseConfig({ url, tls, auth: { username: "u", password: "hush" } }), io);
const clients: readonly Client[] = [
  {
    name: "Elasticsearch",
    reply: (response) => sendJson(response, { version: { number: "8.19.8" } }),
    open: openElastic,
  },
  {
    name: "OpenSearch",
    reply: versioned({ number: "2.19.1", distribution: "opensearch" }),
    open: openElastic,
  },
  {
    name: "Prometheus",
    reply: (response, _, body) => {
      const ones = [{ metric: {}, value: [1_700_000_040, "1"] }];
      const edge = { resultType: "vector", result: ones };
      sendJson(response, { status: "success", data: body === "" ? { version: "3.1.0" } : edge });
    },
    open: (url, tls) =>
      prometheus.create(
        "source",
        prometheus.parseConfig({ url, tls, auth: { username: "u", password: "hush" } }),
        io,
      ),
  },
];

let fake: ScriptedSource | undefined;
afterEach(async () => {
  await fake?.close();
  fake = undefined;
});

describe.each(clients)("TLS to $name", ({ reply, open }) => {
  async function probe(options: ServerOptions, tls: object): Promise<BackendInfo> {
    fake = await openScriptedSource(reply, options);
    const backend = open(fake.url, tls);
    try {
      return await backend.probe(never);
    } finally {
      await backend.close();
    }
  }
  const refusal = (options: ServerOptions, tls: object): Promise<unknown> =>
    probe(options, tls).then(
      () => "an answer",
      (error: unknown) => error,
    );

  test("accepts a certificate of the configured CA", async () => {
    expect((await probe(server, { ca: pem.ca })).version).toMatch(/^\d+\.\d+\.\d+$/);
    expect(fake?.requests.length).toBeGreaterThan(0);
  });

  test.each([
    ["of another CA", { ca: pem.otherCa }],
    ["of no CA that this machine knows", {}],
  ])("sends nothing for a certificate %s", async (_, tls) => {
    const error = await refusal(server, tls);
    expect(error).toBeInstanceOf(BackendError);
    expect(error).toMatchObject({ failure: "unreachable" });
    expect(String(error)).not.toContain("hush");
    expect(describeError(error)).toContain("(name the CA that signed its certificate: tls.ca");
    expect(fake?.requests).toEqual([]);
  });

  test("shows its own certificate to a server that asks for one", async () => {
    const strict = { ...server, requestCert: true, rejectUnauthorized: true };
    expect((await probe(strict, { ca: pem.ca, ...pem.client })).version).toMatch(/^\d/);
    await fake?.close();
    const error = await refusal(strict, { ca: pem.ca });
    expect(error).toMatchObject({ failure: "unreachable" });
    expect(describeError(error)).toContain("if it wants a certificate, name tls.cert and tls.key");
    expect(fake?.requests).toEqual([]);
  });

  test.each<[string, ServerOptions | undefined, (url: string) => string, string]>([
    ["http to a server with TLS", server, (url) => url.replace("https", "http"), "begin url with https://"],
    ["https to one without", undefined, (url) => url.replace("http", "https"), "begin url with http://"],
    [
      "another name than the certificate's",
      server,
      (url) => url.replace("127.0.0.1", "localhost"),
      "name it in url as its certificate does",
    ],
  ])("names what to change for %s", async (_, options, asked, advice) => {
    fake = await openScriptedSource(reply, options);
    const backend = open(asked(fake.url), { ca: pem.ca });
    const error: unknown = await backend.probe(never).catch((error: unknown) => error);
    await backend.close();
    expect(describeError(error)).toContain(advice);
  });
});

describe("files of tls", () => {
  const broken = readPem(pem.ca).replace(/\n[^-]{20}/, "\nAAAAAAAAAAAAAAAAAAAA");
  const texts: Readonly<Record<string, string>> = {
    empty: "",
    words: "not a certificate\n",
    broken,
    bundle: `${readPem(pem.ca)}\n# another one\n${readPem(pem.otherCa)}`,
    "half broken": `${readPem(pem.ca)}\n${broken}`,
    key: readPem(pem.client.key),
    cert: readPem(pem.client.cert),
    "other key": readPem(pem.server.key),
  };
  const open = (tls: object) => {
    const readText = (path: string) => {
      const text = texts[path];
      if (text === undefined)
        throw Object.assign(new Error(`no such file, open ${path}`), { code: "ENOENT" });
      return text;
    };
    return elastic.create("source", elastic.parseConfig({ url: "https://x", tls }), { ...testIO, readText });
  };

  test.each([
    ["empty", { ca: "empty" }, /^tls\.ca: empty has no certificate that can be used \(ERR_/],
    ["other text", { ca: "words" }, /^tls\.ca: words has no certificate/],
    ["a broken certificate", { ca: "broken" }, /^tls\.ca: broken has no certificate that can be used \(ERR_/],
    [
      "a broken certificate after a good one",
      { ca: "half broken" },
      /^tls\.ca: half broken has no certificate/,
    ],
    ["a key for a certificate", { ca: "key" }, /^tls\.ca: key has no certificate/],
    ["no certificate of the client", { cert: "key", key: "key" }, /^tls\.cert: key has no certificate/],
    ["no key of the client", { cert: "cert", key: "cert" }, /^tls\.key: cert has no private key/],
    [
      "another key",
      { cert: "cert", key: "other key" },
      /^tls\.key: other key .* or is not the key of tls\.cert$/,
    ],
    ["no file", { ca: "none.pem" }, /^tls\.ca: none\.pem cannot be read \(ENOENT\)$/],
    [
      "no file of the client's key",
      { cert: "cert", key: "none" },
      /^tls\.key: none cannot be read \(ENOENT\)$/,
    ],
  ])("are refused with the setting's name: %s", (_, tls, message) => {
    expect(() => open(tls)).toThrow(message);
  });

  test("may hold several authorities", async () => {
    await open({ ca: "bundle", cert: "cert", key: "key" }).close();
  });
});
