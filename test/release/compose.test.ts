// What the stack of `docker-compose.yml` is told that no check of its file would find.
import { execFileSync } from "node:child_process";
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

/** The bodies that the commands send, as the shell hands them to curl. */
function listBodies(commands: string): readonly string[] {
  const curl = `docker() { :; }; curl() { while [ $# -gt 0 ]; do [ "$1" = -d ] && printf '%s\\0' "$2"; shift; done; }`;
  const printed = execFileSync("bash", ["-c", `${curl}\n${commands}`], { encoding: "utf8" });
  return printed.split("\0").slice(0, -1);
}
test.each([
  ["docker-compose.yml", /(?<=^# {3}).*/gm],
  ["docs/reference/api/frontend-errors.md", /(?<=^```sh\n)curl (?:(?!^```).)*/gms],
])("the error report that %s sends is of now, within any retention", (file, commands) => {
  const lines = readFileSync(file, "utf8").match(commands) ?? [];
  const reports = listBodies(lines.join("\n"))
    .map((body) => JSON.parse(body))
    .filter(({ timestamp }) => timestamp !== undefined);
  expect(reports.map(({ namespace }) => namespace)).toEqual(["frontend"]);
  expect(Date.now() / 1_000 - reports[0].timestamp).toBeLessThan(60);
});
