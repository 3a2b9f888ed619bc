// When a starting program says that it is ready: once every backend has been tried and no tenant filter is known not to hold.
import { describe, expect, test } from "vitest";
import { hashToken } from "#src/access/auth.ts";
import * as serve from "#src/cli/serve/serve.ts";
import { BackendError } from "#src/core/errors.ts";
import { now } from "#src/core/time.ts";
import type { BackendKind } from "#src/store/backend.ts";
import type { SourceInspection } from "#src/store/inspection.ts";
import { createShell } from "../support/fake-shell.ts";

const found: SourceInspection = { layout: "x", newest: undefined, limitations: [], problems: [] };
const broken: SourceInspection = {
  ...found,
  problems: ["it does not hold"],
  tenantFilterFault: "it does not hold",
};

/** A backend whose log sources `a` and `b` are inspected as told. */
function createKind(
  kind: string,
  inspect: Readonly<Record<"a" | "b", () => Promise<SourceInspection>>>,
  probe: () => Promise<void> = async () => {},
): BackendKind<unknown> {
  return {
    kind,
    parseConfig: () => ({}),
    create: (name) => ({
      name,
      kind,
      stores: {},
      close: async () => {},
      probe: async () => {
        await probe();
        return { product: "Slow", version: "1" };
      },
      inspections: { logs: async ({ id }) => inspect[id as "a" | "b"]() },
    }),
  };
}

/** Starts the program over these backends. Every site has two sources. */
async function startServing(...kinds: readonly BackendKind<unknown>[]) {
  const names = kinds.map(({ kind }) => kind);
  const text = `
listen: 127.0.0.1:0
tokens: [{ user: ana, sha256: "${hashToken("t")}", sites: "*" }]
backends:
${names.map((name) => `  ${name}: { kind: ${name} }`).join("\n")}
sites:
${names.map((name) => `  ${name}: { logs: { backend: ${name}, sources: { a: { index: a }, b: { index: b } } } }`).join("\n")}
`;
  const stop = new AbortController();
  const shell = createShell({
    now: now(),
    files: { "readout.yaml": text },
    kinds: [...kinds],
    signal: stop.signal,
  });
  const ended = serve.run([], shell);
  await expect.poll(() => shell.printed()).toContain("http://");
  const [address = ""] = /http:\/\/\S+/.exec(shell.printed()) ?? [];
  const askReadiness = async () => {
    const response = await fetch(`${address}/readyz`).catch(() => undefined);
    return response && { status: response.status, text: await response.text() };
  };
  return { address, askReadiness, ended, shell, stop: () => stop.abort() };
}

describe("readiness of a starting program", () => {
  test("begins once the tenant filters of all backends are inspected", async () => {
    const first = Promise.withResolvers<SourceInspection>();
    const second = Promise.withResolvers<SourceInspection>();
    const { askReadiness, address, ended, stop } = await startServing(
      createKind("one", { a: async () => found, b: () => first.promise }),
      createKind("two", { a: () => second.promise, b: async () => found }),
    );
    expect(await askReadiness()).toEqual({
      status: 503,
      text: expect.stringMatching(/^starting\none: not probed yet\n/),
    });
    expect((await fetch(`${address}/livez`)).status).toBe(200);
    first.resolve(found);
    await expect.poll(async () => (await askReadiness())?.text).toContain("one: Slow 1");
    expect((await askReadiness())?.status).toBe(503);
    second.resolve(found);
    await expect.poll(async () => (await askReadiness())?.status).toBe(200);
    stop();
    expect(await ended).toBe(0);
  });

  test("never begins where a tenant filter does not hold, also beside sources that cannot be inspected", async () => {
    const fault = Promise.withResolvers<SourceInspection>();
    const { askReadiness, ended, shell } = await startServing(
      createKind("one", {
        a: () => Promise.reject(new BackendError("one", "timeout", "a source without an answer")),
        b: () => fault.promise,
      }),
    );
    expect((await askReadiness())?.status).toBe(503);
    fault.resolve(broken);
    const states: (number | undefined)[] = [];
    const askOnce = async () => {
      states.push((await askReadiness())?.status);
      return shell.complained();
    };
    await expect.poll(askOnce, { interval: 1 }).toContain("draining");
    expect(await ended).toBe(1);
    // In the end nobody listens any more.
    expect(states.filter((status) => status !== undefined && status !== 503)).toEqual([]);
    expect(shell.complained()).toContain("sites.one.logs.sources.b: it does not hold");
  });

  test("takes no other problem for a tenant filter that does not hold", async () => {
    const problems = ["where: the name of an index"];
    const { askReadiness, ended, stop } = await startServing(
      createKind("one", { a: async () => found, b: async () => ({ ...found, problems }) }),
    );
    await expect.poll(async () => (await askReadiness())?.status).toBe(200);
    stop();
    expect(await ended).toBe(0);
  });

  test("does not wait for a backend that does not answer", async () => {
    const failing = async () => {
      throw new BackendError("one", "unreachable", "nobody there");
    };
    const { askReadiness, ended, stop } = await startServing(
      createKind("one", { a: async () => found, b: async () => found }, failing),
    );
    await expect.poll(async () => (await askReadiness())?.status).toBe(200);
    expect((await askReadiness())?.text).toMatch(/^ready\none: does not answer\n/);
    stop();
    expect(await ended).toBe(0);
  });
});
