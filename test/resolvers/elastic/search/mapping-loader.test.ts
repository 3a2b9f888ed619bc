// The mappings behind a pattern are asked for every few seconds, and are nearly always those of the time before.
import { expect, test } from "vitest";
import type { ElasticClient } from "#resolvers/elastic/client/client.ts";
import { loadIndexMetadata, type ReadMappings } from "#resolvers/elastic/search/mapping-loader.ts";
import { BackendError } from "#src/core/errors.ts";
import { countTurns } from "../../../support/event-loop-turns.ts";

const properties = Object.fromEntries(
  Array.from({ length: 1_000 }, (_, n) => [`field_${n}`, { type: "keyword" }]),
);
const buildResponse = (count: number, uuid: string) =>
  Buffer.from(
    JSON.stringify(
      Object.fromEntries(
        Array.from({ length: count }, (_, n) => [
          `logs-${n}`,
          { mappings: { properties }, settings: { index: { number_of_shards: "1", uuid: `${uuid}${n}` } } },
        ]),
      ),
    ),
  );

/** Loads the metadata of one pattern, of which the server says this. */
function openLoader() {
  const known = new Map<string, ReadMappings>();
  return (bytes: Buffer) => {
    const client = { send: async () => bytes } as unknown as ElasticClient;
    return loadIndexMetadata("elk", client, "logs-*", known, new AbortController().signal);
  };
}

test("the same response is not read again, and one with another index is", async () => {
  const load = openLoader();
  const first = await load(buildResponse(3, "a"));
  const again = await load(buildResponse(3, "a"));
  expect(again).not.toBe(first);
  expect(again.groups).toBe(first.groups);
  const other = await load(buildResponse(3, "b"));
  expect(other.groups).toEqual(first.groups);
  expect(other.groups).not.toBe(first.groups);
  expect([...other.uuids.values()]).toEqual(["b0", "b1", "b2"]);
});

test("a large response lets other work run, also where it is the same as before", async () => {
  const load = openLoader();
  const bytes = buildResponse(200, "a");
  const least = Math.floor(bytes.length / 300_000);
  expect(await countTurns(() => load(bytes))).toBeGreaterThanOrEqual(2 * least);
  expect(await countTurns(() => load(bytes))).toBeGreaterThanOrEqual(least);
});

const backingIndex = {
  ".ds-logs-app-2025.01.01-000001": { aliases: {}, mappings: { properties: {} }, data_stream: "logs-app" },
};

test.each([
  ["logs,logs-*", "/logs/_search"],
  ["logs-app,logs-*", undefined],
])("of %s, a data stream answers for its own name only", async (pattern, probed) => {
  const paths: string[] = [];
  const client = {
    async send({ path, method }: { readonly path: string; readonly method: string }) {
      if (method === "GET") return Buffer.from(JSON.stringify(backingIndex));
      paths.push(path);
      throw new BackendError("elk", "denied", "no permission", { status: 403 });
    },
  } as unknown as ElasticClient;
  const loaded = loadIndexMetadata("elk", client, pattern, new Map(), new AbortController().signal);
  if (probed === undefined) await loaded;
  else await expect(loaded).rejects.toMatchObject({ failure: "denied", status: 403 });
  expect(paths).toEqual(probed === undefined ? [] : [probed]);
});

test("the error of a resolution that cannot be read has a cause", async () => {
  const client = {
    send: async ({ method }: { readonly method: string }) =>
      Buffer.from(JSON.stringify(method === "GET" ? {} : { hits: { hits: [] } })),
    sendJson: async () => ({ indices: "none" }),
    detectProduct: async () => ({ narrowsAliases: true }),
  } as unknown as ElasticClient;
  const loaded = loadIndexMetadata("elk", client, "logs", new Map(), new AbortController().signal);
  await expect(loaded).rejects.toMatchObject({ failure: "malformed", cause: { name: "ZodError" } });
});
