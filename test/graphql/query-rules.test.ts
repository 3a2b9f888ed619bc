// Documents that clients name by a hash, from a folder as it changes, and a schema that nobody may read.
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getIntrospectionQuery } from "graphql";
import { afterEach, describe, expect, test } from "vitest";
import { openDocumentDirectory } from "#src/graphql/document-directory.ts";
import { withoutSuggestion } from "#src/graphql/query-rules.ts";
import { createSubject, token } from "../wire/harness.ts";

const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
const document = "{ viewer { id } }";
const answer = { data: { viewer: { id: "ana" } } };

let folder: string | undefined;
let close = (): void => {};
afterEach(() => {
  close();
  if (folder !== undefined) rmSync(folder, { recursive: true });
  folder = undefined;
});

async function open(
  files: Readonly<Record<string, string>>,
  rules: { onlyDocuments?: boolean; introspection?: boolean } = {},
) {
  const own = mkdtempSync(join(tmpdir(), "readout-documents-"));
  folder = own;
  const write = (name: string, text: string) => writeFileSync(join(own, name), text);
  for (const [name, text] of Object.entries(files)) write(name, text);
  const logged: object[] = [];
  const documents = await openDocumentDirectory({
    folder: () => own,
    log: (event) => void logged.push(event),
    interval: 20,
  });
  close = documents.close;
  const { server } = createSubject({
    served: {
      queryRules: { findDocument: documents.find, onlyDocuments: false, introspection: true, ...rules },
    },
  });
  const ask = async (body: object) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    const init = { method: "POST", headers, body: JSON.stringify(body) };
    return (await server.fetch("http://readout/graphql", init)).json();
  };
  const askByHash = (sha256Hash: string, more: object = {}) =>
    ask({ extensions: { persistedQuery: { version: 1, sha256Hash } }, ...more });
  return { ask, askByHash, write, logged, documents };
}

const refused = (message: string) => ({ errors: [{ message }] });

describe("documents of a folder", () => {
  test("are answered by the hash of their text, with and without its last line break", async () => {
    const { askByHash } = await open({ "viewer.graphql": `${document}\n` });
    expect(await askByHash(hash(document))).toEqual(answer);
    expect(await askByHash(hash(`${document}\n`).toUpperCase())).toEqual(answer);
    expect(await askByHash(hash("{ auth { message } }"))).toEqual(refused("PersistedQueryNotFound"));
  });

  test("are taken from manifests, and with variables", async () => {
    const query = "query One($id: String!) { site(id: $id) { id } }";
    const { askByHash } = await open({
      "map.json": JSON.stringify({ [hash(document)]: document }),
      "apollo.json": JSON.stringify({
        format: "apollo-persisted-query-manifest",
        version: 1,
        operations: [{ id: "A".repeat(64), name: "One", type: "query", body: query }],
      }),
    });
    expect(await askByHash(hash(document))).toEqual(answer);
    expect(await askByHash("a".repeat(64), { variables: { id: "shop" } })).toEqual({
      data: { site: { id: "shop" } },
    });
  });

  test("come and go with their files, and a wrong file leaves the others", async () => {
    const { askByHash, write, logged } = await open({ "map.json": "{}" });
    expect(await askByHash(hash(document))).toEqual(refused("PersistedQueryNotFound"));
    write("map.json", JSON.stringify({ "no hash": document }));
    write("viewer.graphql", document);
    await expect.poll(() => askByHash(hash(document))).toEqual(answer);
    expect(logged).toEqual([expect.objectContaining({ message: "documents not taken" })]);
  });

  test("are not changed by what is sent beside the hash", async () => {
    const { askByHash } = await open({ "viewer.graphql": document });
    expect(await askByHash(hash(document), { query: document })).toEqual(answer);
    const other = { query: "{ auth { message } }" };
    expect(await askByHash(hash(document), other)).toEqual(
      refused("The query is not the document of its hash"),
    );
    // The client has been told that the server does not know it.
    expect(await askByHash(hash(other.query), other)).toMatchObject({
      data: { auth: { message: "Authenticated as ana" } },
    });
  });

  test("pass the bounds of a query", async () => {
    const deep = `{ ${Array.from({ length: 101 }, (_, at) => `a${at}: viewer { id }`).join(" ")} }`;
    const { askByHash } = await open({ "deep.graphql": deep });
    expect(JSON.stringify(await askByHash(hash(deep)))).toMatch(/Aliases limit/);
  });

  test("are all that is answered, where others are refused", async () => {
    const { ask, askByHash } = await open({ "viewer.graphql": document }, { onlyDocuments: true });
    expect(await askByHash(hash(document))).toEqual(answer);
    const message = "Only documents of this server are answered, by their hash";
    for (const query of [document, "{ auth { message } }", getIntrospectionQuery()])
      expect(await ask({ query })).toEqual(refused(message));
    expect(await askByHash(hash("{ auth { message } }"), { query: "{ auth { message } }" })).toEqual(
      refused(message),
    );
  });
});

test("the suggestion at the end of an error is cut, and nothing before it", () => {
  const text = " Did you mean x?".repeat(3_000);
  expect(withoutSuggestion(`a${text}`)).toBe(`a${" Did you mean x?".repeat(2_999)}`);
  expect(withoutSuggestion(`a${text} b`)).toBe(`a${text} b`);
});

describe("a schema that nobody may read", () => {
  const message = "Introspection is switched off on this server";

  test.each([
    getIntrospectionQuery(),
    '{ __type(name: "Query") { name } }',
    "{ viewer { id } ...on Query { s: __schema { queryType { name } } } }",
    "{ _service { sdl } }",
  ])("is not answered: %s", async (query) => {
    const { ask } = await open({}, { introspection: false });
    expect(await ask({ query })).toEqual(refused(message));
  });

  test("is not suggested by errors, and names of types are", async () => {
    const { ask } = await open({}, { introspection: false });
    expect(await ask({ query: "{ viewr { id } }" })).toMatchObject(
      refused('Cannot query field "viewr" on type "Query".'),
    );
    expect(await ask({ query: "{ viewer { __typename } }" })).toEqual({
      data: { viewer: { __typename: "Viewer" } },
    });
  });
});
