// `readout init` over servers that a test plays, writing into a folder of the test.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import { isNameInPattern } from "#resolvers/elastic/mapping/index-patterns.ts";
import { kinds } from "#resolvers/index.ts";
import { run } from "#src/cli/init/init.ts";
import { parseConfig } from "#src/config/config.ts";
import { toPlaces } from "#src/core/collections.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";
import {
  openScriptedSource,
  type Responder,
  type ScriptedSource,
  sendJson,
} from "../support/scripted-http-source.ts";

export const now = toInstant("2026-11-21T12:00:00Z");
/** As a file refers to an environment variable. */
export const ref = (name: string): string => `${"$"}{${name}}`;
export const minutesAgo = (minutes: number) => (now - BigInt(minutes) * 60_000_000_000n) as typeof now;
export const world = { ...createShell({ now }), kinds };

export let folder: string;
export let fakes: { close(): Promise<void> }[] = [];
/** Registers what each test needs: a folder for the file, and the end of its servers. */
export function prepareInitTests(): void {
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "readout-init-"));
  });
  afterEach(async () => {
    rmSync(folder, { recursive: true, force: true });
    await Promise.all(fakes.map((fake) => fake.close()));
    fakes = [];
  });
}

export async function init(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
  deadline?: number,
) {
  const shell = {
    ...createShell({ now, env }),
    kinds,
    readText: (path: string) => readFileSync(path, "utf8"),
  };
  const code = await run(["--out", join(folder, "r.yaml"), ...args], shell, deadline);
  return { code, out: shell.printed(), err: shell.complained() };
}
export const written = () => readFileSync(join(folder, "r.yaml"), "utf8");

export const mapping = (created = "8190899") => ({
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      message: { type: "text" },
      log: { properties: { level: { type: "keyword" } } },
    },
  },
  settings: { index: { number_of_shards: "1", version: { created } } },
});

/** A cluster of these names; `denied` may not be looked at. */
export async function serve(
  names: readonly string[],
  streams: readonly string[] = [],
  denied: RegExp = /^$/,
): Promise<ScriptedSource> {
  const reply: Responder = (response, request) => {
    const path = decodeURIComponent(request.url ?? "").split("?", 1)[0] ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    if (denied.test(path)) return sendJson(response, { error: "security_exception" }, 403);
    if (path.startsWith("/_resolve/index/")) {
      const indices = names.map((name) => ({ name, attributes: ["open"] }));
      return sendJson(response, { indices, aliases: [], data_streams: streams.map((name) => ({ name })) });
    }
    if (path.startsWith("/*/_settings/")) return sendJson(response, {});
    if (path.endsWith("/_search")) {
      const shards = { total: 1, successful: 1, skipped: 0, failed: 0 };
      return sendJson(response, { took: 1, timed_out: false, _shards: shards, hits: { hits: [] } });
    }
    return sendJson(response, { [`behind-${path.slice(1, 9)}`]: mapping() });
  };
  const fake = await openScriptedSource(reply);
  fakes.push(fake);
  return fake;
}

export const jaeger = {
  mappings: {
    properties: {
      traceID: { type: "keyword" },
      spanID: { type: "keyword" },
      startTime: { type: "long" },
      startTimeMillis: { type: "date" },
      duration: { type: "long" },
    },
  },
  settings: mapping().settings,
};
export const fluentBit = {
  mappings: {
    properties: {
      "@timestamp": { type: "date" },
      log: { type: "text" },
      kubernetes: { properties: { pod_name: { type: "keyword" }, labels: { type: "object" } } },
    },
  },
  settings: mapping().settings,
};
export const unread = {
  mappings: { ...jaeger.mappings, _source: { enabled: false } },
  settings: jaeger.settings,
};

/** A cluster of these names, each with a mapping of its own; data streams have indices behind them. */
export async function serveEach(definitions: ReadonlyMap<string, object>, streams: readonly string[] = []) {
  const behind = (name: string) => (streams.includes(name) ? `.ds-${name}-2026.11.20-000001` : name);
  const fake = await openScriptedSource((response, request) => {
    const path = decodeURIComponent(request.url ?? "").split("?", 1)[0] ?? "";
    if (path === "/") return sendJson(response, { version: { number: "8.19.8" } });
    const names = [...definitions.keys()];
    if (path.startsWith("/_resolve/index/")) {
      const plain = names.filter((name) => !streams.includes(name)).map((name) => ({ name }));
      const backing = streams.map((name) => ({ name, backing_indices: [behind(name)] }));
      return sendJson(response, { indices: plain, aliases: [], data_streams: backing });
    }
    if (path.startsWith("/*/_settings/")) return sendJson(response, {});
    // As servers do: a data stream is taken out by a name with a star alone.
    const parts = path
      .slice(1)
      .replace(/\/_search$/, "")
      .split(",");
    const pattern = parts.filter((part) => !part.startsWith("-") || !streams.includes(part.slice(1))).join();
    const covered = names.filter((name) => isNameInPattern(pattern, name));
    if (path.endsWith("/_search")) {
      const _shards = { total: covered.length, successful: covered.length, skipped: 0, failed: 0 };
      return sendJson(response, { took: 1, timed_out: false, _shards, hits: { hits: [] } });
    }
    const shown = covered.map((name) => [behind(name), definitions.get(name)]);
    return sendJson(response, Object.fromEntries(shown));
  });
  fakes.push(fake);
  return fake;
}

/** This many names, each with this definition. */
export const each = (count: number, nameOf: (at: number) => string, definition: object) =>
  Array.from({ length: count }, (_, at) => [nameOf(at), definition] as const);

/** Which sources hold which names, and which names the traces. */
export function listProposed(names: Iterable<string>) {
  const { main } = parseConfig(written(), "r.yaml", world).sites;
  const logs = main?.logs;
  const [traces] = toPlaces(main?.traces);
  const sources = Object.values(logs?.sources ?? {});
  return {
    lines: sources.map(({ index }) => index),
    spans: traces?.index,
    /** How often each name is read as lines and as spans. */
    held: [...names].map((name) => [
      name,
      sources.filter(({ index = "" }) => isNameInPattern(index, name)).length,
      traces !== undefined && isNameInPattern(traces.index, name),
    ]),
  };
}
