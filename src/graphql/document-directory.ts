// The folder of documents that clients ask for by a hash. A file of GraphQL is one document, by the SHA-256 of its text; a file of
// JSON is what a build has made of many: each by the hash that its client sends.
import { createHash } from "node:crypto";
import { z } from "zod";
import { ConfigError } from "../core/errors.ts";
import { tryParseJson } from "../core/json/parse-json.ts";
import { type FolderOptions, watchFolder } from "../files/watched-folder.ts";

export interface DocumentDirectory {
  /** The document of a hash in lower case; undefined for an unknown one. */
  readonly find: (hash: string) => string | undefined;
  /** By file, each once. */
  readonly list: () => ReadonlyMap<string, readonly string[]>;
  /** Reads the folder of another configuration. What it resolves to takes its documents in place of those of now. */
  readonly prepare: (folder: string | undefined) => Promise<() => void>;
  readonly close: () => void;
}

type Documents = ReadonlyMap<string, string>;

/** Resolves once the folder has been read. `folder` is asked for at each look; without one there are no documents. */
export async function openDocumentDirectory(
  options: Pick<FolderOptions<Documents>, "folder" | "log" | "interval">,
): Promise<DocumentDirectory> {
  let known: Documents = new Map();
  let byFile: ReadonlyMap<string, Documents> = new Map();
  const watched = await watchFolder<Documents>({
    ...options,
    isRead: (name) => /\.(?:graphql|gql|json)$/.test(name),
    parse: (text, file) => (file.endsWith(".json") ? parseManifest(text, file) : parseDocument(text)),
    change: (contents) => {
      known = new Map([...contents.values()].flatMap((documents) => [...documents]));
      byFile = contents;
    },
    messages: { unreadable: "documents cannot be read", wrong: "documents not taken" },
  });
  const { prepare, close } = watched;
  return { find: (hash) => known.get(hash), list: () => listDistinct(byFile), prepare, close };
}

function listDistinct(byFile: ReadonlyMap<string, Documents>): ReadonlyMap<string, readonly string[]> {
  const listTexts = (documents: Documents) => [
    ...new Set([...documents.values()].map((text) => text.trimEnd())),
  ];
  return new Map([...byFile].map(([file, documents]) => [file, listTexts(documents)]));
}

/** Clients send it with the line break at the end of the file or without. */
function parseDocument(text: string): Documents {
  return new Map([text, text.trimEnd()].map((form) => [hash(form), form]));
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

const hashSchema = z.string().regex(/^[0-9a-fA-F]{32,128}$/, "expected a hash as hexadecimal digits");
const apolloSchema = z.strictObject({
  format: z.literal("apollo-persisted-query-manifest"),
  version: z.literal(1),
  operations: z.array(
    z.looseObject({ id: hashSchema, body: z.string() }).transform(({ id, body }) => [id, body] as const),
  ),
});
/** Hashes, each with its document. */
const manifestSchema = z.union([
  apolloSchema.transform(({ operations }) => operations),
  z.record(hashSchema, z.string()).transform((documents) => Object.entries(documents)),
]);

/** A map of hashes to documents, or Apollo's manifest of persisted queries. @throws {ConfigError} */
function parseManifest(text: string, file: string): Documents {
  const { data } = manifestSchema.safeParse(tryParseJson(text));
  if (data === undefined) {
    const message = "expected a map of hashes to documents, or Apollo's manifest of persisted queries";
    throw new ConfigError(file, [{ path: "", message }]);
  }
  return new Map(data.map(([id, document]) => [id.toLowerCase(), document]));
}
