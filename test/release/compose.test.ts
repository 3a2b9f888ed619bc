// What the stack of `docker-compose.yml` is told that no check of its file would find.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse as parseYaml } from "yaml";

interface Sink {
  readonly type: string;
  readonly endpoints: readonly string[];
  readonly api_version?: string;
}

test("Vector is told the protocol of OpenSearch, whose version it would take for one of Elasticsearch", () => {
  const { sinks }: { readonly sinks: Readonly<Record<string, Sink>> } = parseYaml(
    readFileSync("deploy/compose/vector.yaml", "utf8"),
  );
  const toOpenSearch = Object.values(sinks).filter(({ endpoints }) => endpoints[0]?.includes("opensearch"));
  expect(toOpenSearch.map(({ type, api_version }) => [type, api_version])).toEqual([["elasticsearch", "v8"]]);
});
