import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { run } from "../../src/cli/check/check.ts";
import { BackendError } from "../../src/core/errors.ts";
import type { Backend } from "../../src/store/backend.ts";
import type { Inspections } from "../../src/store/inspection.ts";
import { createShell } from "../support/fake-shell.ts";
import { ago, check, closed, createFakeKind, now, report } from "./check-harness.ts";

const oneSource = `
tokens: [{ user: ana, sha256: "${"ab".repeat(32)}", sites: "*" }]
backends: { elk: { kind: fake } }
sites: { shop: { logs: { backend: elk, sources: { app: { index: "logs-*" } } } } }
`;

test("check prints the complete report of a configuration that works", async () => {
  const file = `
tokens:
  - { user: ana, sha256: "${"ab".repeat(32)}", sites: "*" }
  - { user: bob, sha256: "${"cd".repeat(32)}", sites: "*", expires: 2026-05-01T00:00:00Z }
backends: { elk: { kind: fake }, production: { kind: fake } }
sites:
  shop:
    logs: { backend: elk, sources: { app: { index: "logs-app-*" }, nginx: { index: "filebeat-*" } } }
    traces: { backend: elk, index: "traces-*" }
    metrics: { backend: production }
  blog: { retention: 36h }
`;
  const limitation = "message is text without a keyword: term queries read more documents";
  const logs: Inspections["logs"] = async ({ id }) =>
    id === "app" ? report({ limitations: [limitation] }) : report({ indices: 1, newest: undefined });
  const metrics: Inspections["metrics"] = async () => ({
    found: ["214 metrics: 120 gauges, 94 counters", "2 more"],
    limitations: ["no metadata"],
    problems: [],
  });
  const traces: Inspections["traces"] = async ({ site, index }) =>
    report({ layout: "otel", newest: ago(60), limitations: [`${site} ${index}: no events`] });
  const { code, out, err } = await check(file, createFakeKind({ inspections: { logs, traces, metrics } }));
  expect(out).toBe(`readout.yaml: valid

Tokens    2, expired: bob

Backends
  elk         fake  Fake 1.2.3  N ms
  production  fake  Fake 1.2.3  N ms

Site shop, retention 30d
  logs in elk
    app    logs-app-*  layout ecs  3 indices  newest line 4 s ago
      limitation: ${limitation}
    nginx  filebeat-*  layout ecs  1 index    no lines
  traces in elk
    traces-*  layout otel  3 indices  newest span 1 m ago
      limitation: shop traces-*: no events
  metrics in production
    214 metrics: 120 gauges, 94 counters
    2 more
      limitation: no metadata

Site blog, retention 36h
  nothing configured

0 problems, 3 limitations
`);
  expect([code, err]).toEqual([0, ""]);
  expect(closed).toEqual(expect.arrayContaining(["elk", "production"]));
});

test("an audit log that cannot be opened is a problem, and is not made", async () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-audit-"));
  const checkFile = (path: string) =>
    check(`${oneSource}audit: { file: "${path}", key: "0123456789abcdef" }\n`, createFakeKind());
  const wrong = await checkFile(folder);
  expect(wrong.code).toBe(1);
  expect(wrong.out).toContain(`\nAudit log in ${folder}\n  PROBLEM cannot be opened (EISDIR)\n\n1 problem`);
  const right = await checkFile(join(folder, "audit.jsonl"));
  expect(right.code).toBe(0);
  expect(right.out).toContain(`\nAudit log in ${join(folder, "audit.jsonl")}\n\n0 problems`);
  expect(readdirSync(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
});

test("a spool that cannot be made is a problem, and is not made", async () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-spool-"));
  writeFileSync(join(folder, "file"), "");
  const checkSpool = (path: string) =>
    check(`${oneSource}intake: { spool: "${join(folder, path)}" }\n`, createFakeKind());
  const wrong = await checkSpool("file/data/spool.db");
  expect(wrong.code).toBe(1);
  expect(wrong.out).toContain(
    "spool.db\n  PROBLEM its folder cannot be written (ENOTDIR): all reports are dropped\n",
  );
  expect((await checkSpool("data/spool.db")).code).toBe(0);
  expect(readdirSync(folder)).toEqual(["file"]);
  rmSync(folder, { recursive: true });
});

describe("clocks", () => {
  const checkClock = async (readClock: Backend["readClock"]) => {
    const { code, out } = await check(oneSource, createFakeKind(readClock && { readClock }), 100);
    const lines = out.split("\n");
    const backend = lines.findIndex((line) => line.startsWith("  elk"));
    return { code, clock: lines[backend + 1], last: lines.at(-2) };
  };

  test("check says how far the clock of a backend is off", async () => {
    expect(await checkClock(async () => ago(95))).toEqual({
      code: 0,
      clock:
        "    limitation: its clock is 95.0 s behind this machine's: what it stamps seems older than it is",
      last: "0 problems, 1 limitation",
    });
    expect((await checkClock(async () => ago(-2.5))).clock).toBe(
      "    limitation: its clock is 2.5 s ahead of this machine's: a range up to now does not have what it stamps yet",
    );
  });

  test.each<[string, Backend["readClock"]]>([
    ["nearly agrees", async () => ago(1.9)],
    ["is not told", async () => undefined],
    ["cannot be read", () => Promise.reject(new BackendError("elk", "unreachable", "no"))],
    ["is not told in time", () => new Promise(() => undefined)],
    ["is not known to the kind", undefined],
  ])("check says nothing of a clock that %s", async (_, readClock) => {
    expect(await checkClock(readClock)).toEqual({ code: 0, clock: "", last: "0 problems, 0 limitations" });
  });
});

test("check names the product of each backend of a part that has several", async () => {
  const file = `
tokens: [{ user: ana, sha256: "${"ab".repeat(32)}", sites: "*" }]
backends: { old: { kind: fake }, new: { kind: fake } }
sites:
  shop:
    logs: { backend: old, sources: { app: { index: l } } }
    traces: [{ backend: old, index: t }, { backend: new, index: t }]
`;
  const traces: Inspections["traces"] = async () => report();
  const kind = createFakeKind({ inspections: { logs: async () => report(), traces } });
  const { out } = await check(file, kind);
  expect(out.split("\n").filter((line) => / in (?:old|new)/.test(line))).toEqual([
    "  logs in old",
    "  traces in old, Fake 1.2.3",
    "  traces in new, Fake 1.2.3",
  ]);
});

test("check inspects hundreds of sources a few at a time", async () => {
  const sources = Array.from({ length: 300 }, (_, n) => `s${n}: { index: x }`).join(", ");
  let [calls, running, most] = [0, 0, 0];
  const logs: Inspections["logs"] = async () => {
    calls += 1;
    running += 1;
    most = Math.max(most, running);
    await new Promise((resolve) => setTimeout(resolve, 1));
    running -= 1;
    return report();
  };
  const file = oneSource.replace('app: { index: "logs-*" }', sources);
  expect(await check(file, createFakeKind({ inspections: { logs } }))).toMatchObject({ code: 0 });
  expect({ calls, most }).toEqual({ calls: 300, most: 16 });
});

test.each<[string, Partial<Backend>, string]>([
  [
    "a backend that fails",
    {
      probe: async () => {
        throw new BackendError("elk", "unreachable", "connect http://u:secret@h:9200\n  refused");
      },
    },
    "elk  fake  FAILED unreachable: connect http://…@h:9200 refused",
  ],
  [
    "a backend that never answers",
    { probe: () => new Promise(() => undefined) },
    "FAILED no answer within 20ms",
  ],
  [
    "a source that never answers",
    { inspections: { logs: () => new Promise(() => undefined) } },
    "app  logs-*  FAILED no answer",
  ],
  [
    "a source that fails",
    {
      inspections: {
        logs: async () => {
          throw new BackendError("elk", "denied", "no rights to logs-*");
        },
      },
    },
    "app  logs-*  FAILED denied: no rights to logs-*",
  ],
  [
    "credentials that are refused",
    {
      probe: async () => {
        throw new BackendError("elk", "denied", "status 401: Unauthorized");
      },
    },
    "FAILED denied: status 401: Unauthorized (auth is missing or wrong)",
  ],
  [
    "a source with a problem",
    { inspections: { logs: async () => report({ problems: ["where: message is analysed text"] }) } },
    "PROBLEM where: message is analysed text",
  ],
  [
    "a pattern that names nothing",
    { inspections: { logs: async () => report({ indices: 0, newest: undefined }) } },
    "PROBLEM no index is named logs-*",
  ],
  ["a backend without log lines", { stores: {}, inspections: {} }, "PROBLEM elk serves no log lines"],
])("check reports %s, with exit code 1", async (_, overrides, line) => {
  const { code, out } = await check(oneSource, createFakeKind(overrides), 20);
  expect(out).toContain(line);
  expect(out).toContain("1 problem, 0 limitations");
  expect(out).not.toContain("secret");
  expect(code).toBe(1);
});

test.each<[string, Partial<Backend>, string]>([
  ["a backend without it", { inspections: {} }, "PROBLEM prom serves no kubernetes"],
  [
    "a part that fails",
    {
      inspections: {
        kubernetes: async () => {
          throw new BackendError("prom", "timeout", "too slow");
        },
      },
    },
    "    FAILED timeout: too slow",
  ],
  [
    "a part with a problem",
    {
      inspections: {
        kubernetes: async ({ cluster = "" }) => ({
          found: [],
          limitations: [],
          problems: [`no node in ${cluster}`],
        }),
      },
    },
    "      PROBLEM no node in prod",
  ],
])("check reports Kubernetes: %s, with exit code 1", async (_, overrides, line) => {
  const file = `
tokens: []
backends: { prom: { kind: fake } }
sites: { shop: { kubernetes: { backend: prom, match: { cluster: prod } } } }
`;
  const { code, out } = await check(file, createFakeKind(overrides), 20);
  expect(out).toContain(`\n  kubernetes in prom\n`);
  expect(out).toContain(`${line}\n`);
  expect(code).toBe(1);
});

test("check reports a backend that cannot be created, and finds files beside the configuration", async () => {
  const file = oneSource.replace("{ kind: fake }", "{ kind: fake, ca: ca.pem }, b: { kind: fake }");
  const shell = (files: Record<string, string>) => createShell({ now, files, kinds: [createFakeKind()] });
  const without = shell({ "conf/r.yaml": file });
  expect(await run(["--config", "conf/r.yaml"], without)).toBe(1);
  expect(without.printed()).toMatch(/elk {2}fake {2}FAILED no such file\n {2}b {4}fake {2}Fake 1\.2\.3/);
  expect(without.printed()).toContain("not looked at: the backend does not answer");
  expect(await run(["--config", "conf/r.yaml"], shell({ "conf/r.yaml": file, "conf/ca.pem": "x" }))).toBe(0);
});

test("check probes all backends at once", async () => {
  const file = "backends: { a: { kind: fake }, b: { kind: fake } }\nsites: {}";
  let waiting = 0;
  const both = Promise.withResolvers<void>();
  const probe: Backend["probe"] = async () => {
    waiting += 1;
    if (waiting === 2) both.resolve();
    await both.promise;
    return { product: "Fake", version: "1" };
  };
  expect((await check(file, createFakeKind({ probe }), 2_000)).code).toBe(0);
});

test("check prints every issue of a wrong file, with exit code 1", async () => {
  const { code, out, err } = await check("sites: {}\nbackend: {}\nlimits: { rows: x }", createFakeKind());
  expect(err).toBe(
    'readout.yaml:1: backends: is missing\nreadout.yaml:2: backend: unknown key; did you mean "backends"?\n' +
      "readout.yaml:3: limits.rows: expected a whole number from 1 up\n\n3 problems in readout.yaml\n",
  );
  expect([code, out]).toEqual([1, ""]);
});

test("check reports a missing file, with exit code 1", async () => {
  const shell = createShell({ now });
  expect(await run(["--config", "x.yaml"], shell)).toBe(1);
  expect(shell.complained()).toBe(
    "x.yaml: cannot be read (ENOENT); `readout init` writes one, and --config names another\n",
  );
});

test.each([[["--colour"]], [["readout.yaml"]], [["--config"]]])(
  "check refuses the arguments %j, with exit code 2",
  async (args) => {
    const shell = createShell({ now });
    expect(await run(args, shell)).toBe(2);
    expect(shell.complained()).toContain("Usage: readout check");
  },
);

test("Ctrl-C ends check", async () => {
  const stop = new AbortController();
  const shell = createShell({
    now,
    files: { "readout.yaml": oneSource },
    kinds: [createFakeKind({ probe: () => new Promise(() => undefined) })],
    signal: stop.signal,
  });
  const running = run([], shell);
  stop.abort(new Error("interrupted"));
  await expect(running).rejects.toThrow("interrupted");
});

test("check reports a missing or wrong Mesh configuration", async () => {
  const files = { "readout.yaml": `${oneSource}mesh: /m/mesh.yaml\n` };
  const looked = async (more: Readonly<Record<string, string>>) => {
    const shell = createShell({ now, files: { ...files, ...more }, kinds: [createFakeKind()] });
    return { code: await run([], shell), out: shell.printed() };
  };
  const missing = await looked({});
  expect(missing.out).toContain("GraphQL by /m/mesh.yaml\n  PROBLEM /m/mesh.yaml: cannot be read (ENOENT)\n");
  expect(missing.code).toBe(1);
  const wrong = await looked({ "/m/mesh.yaml": "sources: 1" });
  expect(wrong.out).toContain("GraphQL by /m/mesh.yaml\n  PROBLEM /m/mesh.yaml: sources: expected a list\n");
  expect(wrong.code).toBe(1);
});

test("check does not call a source with a problem empty", async () => {
  const problem = "where: name is of type text in logs-1; it must be a keyword";
  const looked = report({ newest: undefined, problems: [problem] });
  const { code, out } = await check(oneSource, createFakeKind({ inspections: { logs: async () => looked } }));
  expect(out).toContain(`app  logs-*  layout ecs  3 indices\n      PROBLEM ${problem}\n`);
  expect(code).toBe(1);
});

test("check reports documents that do not fit the schema, and files that are none", async () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-check-"));
  const config = (more = "") => `backends: {}\nsites: {}\ngraphql: { documents: ${folder} }\n${more}`;
  try {
    writeFileSync(join(folder, "a.graphql"), "{ viewer { id } }\n");
    const { code, out } = await check(config(), createFakeKind());
    expect(out).toContain(`\nGraphQL documents in ${folder}: 1\n\n0 problems`);
    expect(code).toBe(0);
    writeFileSync(join(folder, "b.graphql"), "{ viewr { id } }");
    writeFileSync(join(folder, "c.gql"), "{ viewer { id }");
    writeFileSync(join(folder, "d.json"), "[]");
    const wrong = await check(config(), createFakeKind());
    expect(wrong.out).toContain(`
GraphQL documents in ${folder}: 3
  PROBLEM ${join(folder, "d.json")}: expected a map of hashes to documents, or Apollo's manifest of persisted queries
  PROBLEM ${join(folder, "b.graphql")}: Cannot query field "viewr" on type "Query". Did you mean "viewer"?
  PROBLEM ${join(folder, "c.gql")}: Syntax Error: Expected Name, found <EOF>.

3 problems`);
    expect(wrong.code).toBe(1);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("check reports front-end reports and visuals", async () => {
  const folder = mkdtempSync(join(tmpdir(), "readout-check-"));
  try {
    const visual = (over: object) =>
      JSON.stringify({
        id: "A".repeat(22),
        title: "CPU",
        type: "line",
        site: "shop",
        range: "1h",
        select: [{ name: "cpu", tags: {}, field: "gauge" }],
        ...over,
      });
    writeFileSync(join(folder, "a.yaml"), visual({}));
    writeFileSync(join(folder, "b.yaml"), visual({ id: "B".repeat(22), site: "gone" }));
    writeFileSync(join(folder, "c.yaml"), visual({ type: "pie", title: "" }));
    const asked: unknown[] = [];
    const reports: Inspections["reports"] = async (target) => {
      asked.push(target);
      return { found: ["index r-1, writable"], limitations: ["is a data stream"], problems: [] };
    };
    const file = `
backends: { elk: { kind: fake }, other: { kind: fake } }
sites:
  shop: { frontend: { keys: [k], backend: elk, index: "r-1" } }
intake: { listen: "127.0.0.1:8081" }
visuals: ${folder}
`;
    const { code, out } = await check(file, createFakeKind({ inspections: { reports } }));
    expect(out).toContain(`
  frontend in elk
    index r-1, writable
      limitation: is a data stream

Front-end reports on 127.0.0.1:8081, spool data/spool.db

Visuals in ${folder}: 2 published
  PROBLEM ${join(folder, "c.yaml")}: title: must not be empty
  PROBLEM ${join(folder, "c.yaml")}: type: expected line, area, bar, number or table
  PROBLEM "CPU": The site has no metrics
  limitation: "CPU" is of a site that is not configured, gone, and therefore not found

3 problems, 2 limitations
`);
    expect(code).toBe(1);
    expect(asked).toEqual([{ site: "shop", index: "r-1", layout: "auto" }]);
    const without = await check(file.replace(/intake.*\nvisuals.*\n/, ""), createFakeKind());
    expect(without.out).toContain("PROBLEM elk cannot write reports");
    expect(without.out).toContain("Front-end reports\n  limitation: without `intake` none are taken");
    const missing = await check(
      file.replace(folder, join(folder, "none")),
      createFakeKind({ inspections: { reports } }),
    );
    expect(missing.out).toContain(`PROBLEM ${join(folder, "none")}: the folder cannot be read (ENOENT)`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
