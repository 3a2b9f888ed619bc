// The program ends TLS itself, with files that change.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { endAll, startReadout } from "../support/process.ts";
import { pem, readPem } from "../support/tls.ts";
import { ask, present, publicUrl } from "../wire/tls-client.ts";

afterAll(endAll);

// It starts a program and writes files while others do the same, so it has more time.
test("the program serves TLS from files, and takes new ones", async () => {
  const folder = await mkdtemp(join(tmpdir(), "readout-tls-"));
  const write = async (pair: { readonly cert: string; readonly key: string }) => {
    await writeFile(join(folder, "cert.pem"), readPem(pair.cert));
    await writeFile(join(folder, "key.pem"), readPem(pair.key));
  };
  await write(pem.server);
  await writeFile(join(folder, "ca.pem"), readPem(pem.clientsCa));
  const file = join(folder, "readout.yaml");
  await writeFile(
    file,
    `listen: { address: "127.0.0.1:0", cert: cert.pem, key: key.pem, client_ca: ca.pem }
public_url: ${publicUrl}
auth: { certificates: [{ user: ana, subject: { C: DE, O: Acme, OU: [ops, shop], CN: ana }, sites: [shop] }] }
backends: { demo: { kind: memory } }
sites: { shop: { logs: { backend: demo, sources: { app: { index: demo-shop-app } } } } }
`,
  );
  const { child, ended, listening } = startReadout("serve", "--config", file);
  const address = await listening;
  expect(address).toMatch(/^https:/);
  const port = Number(new URL(address).port);
  const first = await ask(port, present("ana"));
  expect([first.status, (await ask(port, present("eve"))).status]).toEqual([200, 401]);
  await write(pem.secondServer);
  await expect.poll(async () => (await ask(port, present("ana"))).fingerprint).not.toBe(first.fingerprint);
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
  await rm(folder, { recursive: true });
}, 180_000);
