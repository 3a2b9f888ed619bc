// TLS that the program ends itself: who may ask by a certificate, what a browser's page may not, and new certificates under load.
import { Agent, type RequestOptions } from "node:https";
import { connect } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CertificateEntry } from "#src/config/edge-settings.ts";
import type { ServedConfig } from "#src/server/server.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { pem, readPem } from "../support/tls.ts";
import { createSubject, token } from "./harness.ts";
import { ask, present, publicUrl, trusted } from "./tls-client.ts";

const servedBy = (pair: { readonly cert: string; readonly key: string }, clientCa = pem.clientsCa) => ({
  cert: readPem(pair.cert),
  key: readPem(pair.key),
  clientCa: readPem(clientCa),
});
const subject = { C: ["DE"], O: ["Acme"], OU: ["ops", "shop"], CN: ["ana"] };

function serve(certificates: readonly CertificateEntry[], served: Partial<ServedConfig> = {}) {
  return createSubject({ certificates, served: { publicUrl, tls: servedBy(pem.server), ...served } });
}

describe("a certificate is a user", () => {
  const bySubject = serve([{ user: "ana", subject, sites: ["shop"] }]);
  const byName = serve([{ user: "agent", san: "URI:spiffe://acme/agent", sites: ["shop"] }]);
  const byBoth = serve([
    { user: "ana", subject, sites: ["shop"] },
    { user: "agent", san: "URI:spiffe://acme/agent", sites: ["shop"] },
  ]);
  const bySite = serve([{ user: "ana", subject, sites: ["bare"] }]);
  const subjects = { bySubject, byName, byBoth, bySite };
  const ports: Record<string, number> = {};
  beforeAll(async () => {
    for (const [name, { server }] of Object.entries(subjects)) {
      ports[name] = (await server.listen({ host: "127.0.0.1", port: 0 })).port;
    }
  });
  afterAll(() => Promise.all(Object.values(subjects).map(({ server }) => server.close(0))));
  const askAs = (name: keyof typeof subjects, over?: RequestOptions) => ask(ports[name] ?? 0, over);

  test("by its whole subject, or by a name of its alternative names", async () => {
    expect((await askAs("bySubject", present("ana"))).status).toBe(200);
    expect((await askAs("byName", present("ana"))).status).toBe(200);
  });

  test("for the sites of that user alone", async () => {
    expect((await askAs("bySite", present("ana"))).status).toBe(404);
  });

  test("but not by its common name, by another authority, or by a name that looks like two", async () => {
    for (const name of ["eve", "forged", "quoted"] as const) {
      expect([name, (await askAs("bySubject", present(name))).status]).toEqual([name, 401]);
      expect([name, (await askAs("byName", present(name))).status]).toEqual([name, 401]);
    }
    expect((await askAs("bySubject")).status).toBe(401);
  });

  test("but not where it is two users", async () => {
    expect((await askAs("byBoth", present("ana"))).status).toBe(401);
  });

  test("but a token counts before it", async () => {
    const authorization = `Bearer ${token}`;
    const foreign = { origin: "https://evil.example.com", host: "other" };
    expect((await askAs("bySubject", { ...present("eve"), headers: { authorization } })).status).toBe(200);
    expect(
      (await askAs("bySite", { ...present("ana"), headers: { authorization, ...foreign } })).status,
    ).toBe(200);
    for (const wrong of ["Bearer wrong", "Bearer "]) {
      const headers = { authorization: wrong };
      expect((await askAs("bySubject", { ...present("ana"), headers })).status).toBe(401);
    }
  });

  test.each([
    [{}, 200],
    [{ origin: publicUrl }, 200],
    [{ "sec-fetch-site": "same-origin" }, 200],
    [{ host: "READOUT.example.com:8443" }, 200],
    [{ origin: "https://evil.example.com" }, 401],
    [{ origin: "null" }, 401],
    [{ origin: "http://readout.example.com:8443" }, 401],
    [{ "sec-fetch-site": "cross-site" }, 401],
    [{ "sec-fetch-site": "same-site" }, 401],
    [{ "sec-fetch-site": "none" }, 401],
    [{ host: "127.0.0.1" }, 401],
    [{ host: "readout.example.com" }, 401],
    [{ host: "evil.example.com:8443" }, 401],
    [{ origin: publicUrl, "sec-fetch-site": "cross-site" }, 401],
  ])("alone only of a page of this server: %j", async (headers, status) => {
    expect((await askAs("bySubject", { ...present("ana"), headers })).status).toBe(status);
  });

  test("not where no address of this server is known", async () => {
    const { server } = createSubject({
      certificates: [{ user: "ana", subject, sites: ["shop"] }],
      served: { tls: servedBy(pem.server) },
    });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    expect((await ask(port, present("ana"))).status).toBe(401);
    await server.close(0);
  });

  test("no more on an open connection, once its authority is no longer one", async () => {
    const { server, served } = serve([{ user: "ana", subject, sites: ["shop"] }]);
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const agent = new Agent({
      keepAlive: true,
      maxSockets: 1,
      ca: trusted,
      checkServerIdentity: () => undefined,
      ...present("ana"),
    });
    expect((await ask(port, { agent })).status).toBe(200);
    await server.reload({ ...served, tls: servedBy(pem.server, pem.otherCa) });
    expect((await ask(port, { agent })).status).toBe(401);
    expect((await ask(port, present("ana"))).status).toBe(401);
    agent.destroy();
    await server.close(0);
  });

  test("no more for an export that is under way, once its authority is no longer one", async () => {
    const { server, served } = createSubject({
      lines: 60_000,
      certificates: [{ user: "ana", subject, sites: ["shop"] }],
      served: { publicUrl, tls: servedBy(pem.server) },
    });
    const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
    const begin = async () => {
      const exported = ask(port, { ...present("ana"), headers: { accept: "application/x-ndjson" } });
      const open = async () => (await server.fetch("http://x/metrics")).text();
      await expect.poll(open).toContain("readout_open_streams 1");
      return { exported };
    };
    const staying = await begin();
    await server.reload({ ...served, tls: servedBy(pem.secondServer) });
    expect((await staying.exported).status).toBe(200);
    const cut = await begin();
    const isCut = expect(cut.exported).rejects.toThrow();
    await server.reload({ ...served, tls: servedBy(pem.server, pem.otherCa) });
    await isCut;
    await server.close(0);
  });

  test("speaks TLS 1.2 and later alone", async () => {
    const shake = (version: "TLSv1.1" | "TLSv1.2" | "TLSv1.3") =>
      new Promise<string>((resolve) => {
        const options = {
          minVersion: version,
          maxVersion: version,
          ciphers: "DEFAULT@SECLEVEL=0",
          ca: trusted,
        };
        const socket = connect({ host: "127.0.0.1", port: ports.bySubject ?? 0, ...options }, () => {
          resolve(socket.getProtocol() ?? "");
          socket.destroy();
        });
        socket.on("error", () => resolve("refused"));
      });
    expect(await Promise.all([shake("TLSv1.1"), shake("TLSv1.2"), shake("TLSv1.3")])).toEqual([
      "refused",
      "TLSv1.2",
      "TLSv1.3",
    ]);
  });
});

const reloads = sampleRuns(1_000);

test(`${reloads} reloads, each tenth with another certificate, under load fail no request`, async () => {
  const { server, served } = serve([]);
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  const seen = new Set<string>();
  const wrong: unknown[] = [];
  let isOver = false;
  const load = async (agent: Agent | false) => {
    while (!isOver) {
      const headers = { authorization: `Bearer ${token}` };
      const answer = await ask(port, { agent, headers }).catch((error: unknown) => ({ error }));
      if ("error" in answer || answer.status !== 200) wrong.push(answer);
      else seen.add(answer.fingerprint);
    }
  };
  const kept = new Agent({
    keepAlive: true,
    maxSockets: 2,
    ca: trusted,
    checkServerIdentity: () => undefined,
  });
  const asking = [load(false), load(false), load(kept), load(kept)];
  for (let reload = 0; reload < reloads; reload += 1) {
    const pair = Math.floor(reload / 10) % 2 === 0 ? pem.secondServer : pem.server;
    await server.reload({ ...served, tls: servedBy(pair) });
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await expect.poll(() => seen.size).toBe(2);
  isOver = true;
  await Promise.all(asking);
  kept.destroy();
  expect(wrong).toEqual([]);
  await server.close(0);
});

test("a stream that fails is cut visibly", async () => {
  const { server } = createSubject({ lines: 60_000, served: { tls: servedBy(pem.server) } });
  const { port } = await server.listen({ host: "127.0.0.1", port: 0 });
  const headers = { authorization: `Bearer ${token}`, accept: "application/x-ndjson" };
  const asked = ask(port, { headers });
  await expect
    .poll(async () => (await server.fetch("http://x/metrics")).text())
    .toContain("readout_open_streams 1");
  await server.close(0);
  await expect(asked).rejects.toThrow();
});
