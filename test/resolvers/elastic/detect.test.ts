// What `auto` makes of documents and mappings, over a small search server in memory: which layout is taken, what the lines
// are then, and what `check` says of it.
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { parse } from "#src/logql/parse.ts";
import type { LogLine } from "#src/model.ts";
import { fromMillis } from "#src/time.ts";
import { testIO } from "../../support/cluster.ts";
import { type Fake, openFake } from "../../support/fake.ts";
import { createSearch, type HeldIndex } from "../../support/search.ts";

type Json = { readonly [key: string]: unknown };
const at = "2026-01-15T10:00:00.000Z";
const range = { from: fromMillis(0), to: fromMillis(Date.UTC(2027, 0)) };

/** The mapping that a server makes of these as they come. */
function mapped(documents: readonly Json[]): object {
  const properties: Record<string, object> = {};
  for (const document of documents) {
    for (const [key, value] of Object.entries(document)) {
      if (key === "@timestamp") properties[key] = { type: "date" };
      else if (typeof value === "object" && value !== null) {
        const before = (properties[key] as { readonly properties?: object } | undefined)?.properties;
        const below = (mapped([value as Json]) as { readonly properties: object }).properties;
        properties[key] = { properties: { ...before, ...below } };
      } else properties[key] = { type: typeof value === "number" ? "long" : "keyword" };
    }
  }
  return { properties };
}

const held = (documents: readonly Json[], mappings = mapped(documents)): HeldIndex => ({
  documents: documents.map((document) => ({ "@timestamp": at, ...document })),
  mappings: {
    ...mappings,
    properties: {
      "@timestamp": { type: "date" },
      ...(mappings as { readonly properties?: object }).properties,
    },
  },
});

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).reverse()) await one.close();
});

/** A backend over these indices, which `hold` replaces. */
async function open(indices: Readonly<Record<string, HeldIndex>>) {
  let search = createSearch(indices, "Elasticsearch");
  const fake: Fake = await openFake((...asked) => search.reply(...asked));
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  opened.push(fake, backend);
  const source = { id: "app", index: "logs-*", profile: "auto" };
  const signal = () => AbortSignal.timeout(10_000);
  return {
    fake,
    hold(indices: Readonly<Record<string, HeldIndex>>) {
      search = createSearch(indices, "Elasticsearch");
    },
    async read(text = ""): Promise<LogLine[]> {
      const limits = { wanted: 100, documentLimit: 1_000, tieLimit: 1_000 };
      const query = { sources: [source], range, filter: parse(text), order: "asc", ...limits } as const;
      const lines: LogLine[] = [];
      for await (const batch of backend.stores.logs?.lines(query, signal()) ?? []) lines.push(...batch);
      return lines;
    },
    async report() {
      const report = await backend.inspections.logs?.(source, signal());
      if (report === undefined) throw new Error("no inspection of logs");
      return { ...report, guesses: report.limitations.filter((text) => text.includes("no known layout")) };
    },
  };
}

/** One document, alone in its index. */
const told = async (document: Json) => {
  const { read, report } = await open({ "logs-1": held([document]) });
  const [line] = await read();
  const { profile, guesses } = await report();
  const { severity, message, hostname, group } = line ?? {};
  return { profile, guesses, line: { severity, message, hostname, group } };
};

describe("Logstash", () => {
  const logstash = { "@version": "1", message: "x" };
  test.each<readonly [string, Json, object]>([
    [
      "syslog with ECS",
      { host: { hostname: "h" }, log: { syslog: { severity: { name: "Error", code: 3 } } } },
      { severity: "error", hostname: "h" },
    ],
    [
      "syslog with ECS, by number alone",
      { host: { hostname: "h" }, log: { syslog: { severity: { code: 3 } } } },
      { severity: "error", hostname: "h" },
    ],
    [
      "file with ECS",
      { event: { original: "x" }, host: { name: "h" }, log: { file: { path: "/a" } } },
      { severity: "unknown", hostname: "h", group: "/a" },
    ],
    [
      "tcp with ECS",
      { event: { original: "x" }, host: { ip: "::1", name: "h" } },
      { severity: "unknown", hostname: "h" },
    ],
  ])("%s is ecs", async (_, own, line) => {
    expect(await told({ ...logstash, ...own })).toMatchObject({
      profile: "ecs",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test.each<readonly [string, Json, object]>([
    ["a file", { host: "h", path: "/a" }, { severity: "unknown", hostname: "h", group: "/a" }],
    [
      "syslog",
      { host: "h", logsource: "l", severity: 3, severity_label: "Error", program: "cron" },
      { severity: "error", hostname: "h", group: "cron" },
    ],
    ["nothing of its own", {}, { severity: "unknown", hostname: undefined }],
  ])("%s without ECS is logstash", async (_, own, line) => {
    expect(await told({ ...logstash, ...own })).toMatchObject({
      profile: "logstash",
      guesses: [],
      line: { message: "x", ...line },
    });
  });

  test("lines with little more than a message do not hide those with ECS beside them", async () => {
    const bare = Array.from({ length: 12 }, () => logstash);
    const own = { host: { hostname: "h" }, log: { syslog: { severity: { name: "Error" } } } };
    const rich = Array.from({ length: 3 }, () => ({ ...logstash, ...own }));
    const { read, report } = await open({ "logs-1": held([...bare, ...rich]) });
    expect((await report()).profile).toBe("ecs");
    expect(await read("severity=error")).toHaveLength(3);
    expect(await read("hostname=h message=x")).toHaveLength(3);
  });

  test("one line with ECS does not hide the severities of those without", async () => {
    const plain = Array.from({ length: 12 }, () => ({ ...logstash, level: "error" }));
    const { read, report } = await open({
      "logs-1": held([...plain, { ...logstash, log: { file: { path: "/a" } } }]),
    });
    expect((await report()).profile).toBe("logstash");
    expect(await read("severity=error")).toHaveLength(12);
  });
});

describe("Fluent Bit and Fluentd", () => {
  test("Docker's fluentd driver is fluentd", async () => {
    const document = { container_id: "c1", container_name: "/web", source: "stderr", log: "boom" };
    expect(await told(document)).toEqual({
      profile: "fluentd",
      guesses: [],
      line: { severity: "error", message: "boom", hostname: undefined, group: "/web" },
    });
  });

  test.each<readonly [string, Json, string, object]>([
    ["tail without a parser", { log: "boom\n" }, "fluent-bit", { message: "boom", severity: "unknown" }],
    ["no tag key", { message: "boom", level: "error" }, "fluent-bit", { message: "boom", severity: "error" }],
    ["msg", { msg: "boom", level: "warn", host: "h" }, "fluent-bit", { message: "boom", severity: "warn" }],
    ["a severity of Logstash", { message: "boom", loglevel: "ERROR" }, "logstash", { severity: "error" }],
    ["a message and no more", { message: "boom" }, "ecs", { message: "boom" }],
  ])("%s shows no layout, and is read so that its lines are found", async (_, document, profile, line) => {
    const { guesses, ...rest } = await told(document);
    expect(rest).toMatchObject({ profile, line });
    const severities = "severity" in line && line.severity !== "unknown" ? 1 : 0;
    expect(guesses).toEqual([
      `logs-1: no known layout is recognised; read as ${profile}, by which 1 of 1 documents have a message and ${severities} a severity`,
    ]);
  });

  test("what holds no message by any layout is ecs, and check says so", async () => {
    expect(await told({ took: 5 })).toMatchObject({
      profile: "ecs",
      guesses: [
        "logs-1: no known layout is recognised; read as ecs, although none of 1 documents has a message by it",
      ],
    });
  });

  test("a mark of ecs does not hide messages that lie elsewhere", async () => {
    const document = { log: "boom", host: { name: "h" } };
    expect(await told(document)).toMatchObject({ profile: "fluent-bit", line: { message: "boom" } });
  });

  test("records of OpenTelemetry without a body are otel all the same", async () => {
    const document = { severity_text: "ERROR", attributes: { event: { original: "x" } } };
    expect(await told(document)).toMatchObject({ profile: "otel", line: { severity: "error" } });
  });

  test("a mapping that takes nothing up is no hindrance", async () => {
    const documents = [{ log: "boom", level: "error" }];
    const closed = held(documents, { dynamic: false });
    const { read, report } = await open({ "logs-1": closed });
    expect(await report()).toMatchObject({ profile: "fluent-bit", problems: [] });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });
});

test("a structured body of Fluent Bit without text has its compact JSON as the message", async () => {
  const documents = [
    { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hi there", n: 1 } },
    { kubernetes: { pod_name: "p", host: "h" }, log: { msg: "hidden" }, message: "by its text" },
    { kubernetes: { pod_name: "p", host: "h" }, log: [] },
  ];
  const { read } = await open({ "logs-1": held(documents) });
  const [structured = "", text] = ['{"msg":"hi there","n":1}', "by its text"];
  expect((await read()).map(({ message }) => message)).toEqual([structured, text, undefined]);
  expect((await read('message:"hi there"')).map(({ message }) => message)).toEqual([structured]);
  expect((await read('log.msg="hi there" message!:hidden')).map(({ message }) => message)).toEqual([
    structured,
  ]);
  expect(await read("message:hidden")).toEqual([]);
});

describe("several indices", () => {
  const tagged = { "@log_name": "app", log: "boom", level: "error" };

  test("what could be read in many ways is read as the others are", async () => {
    const { report } = await open({ "logs-1": held([tagged]), "logs-2": held([{ message: "x" }]) });
    const { profile, guesses } = await report();
    expect(profile).toBe("fluentd");
    expect(guesses).toEqual([expect.stringMatching(/^logs-2: .*read as fluentd, by which 1 of 1/)]);
  });

  test("what can be read in one way alone is not", async () => {
    const ecs = { ecs: { version: "8" }, message: "m", log: { level: "info" } };
    const { read } = await open({ "logs-1": held([ecs]), "logs-2": held([{ log: "boom" }]) });
    expect((await read()).map(({ message }) => message)).toEqual(["m", "boom"]);
  });
});

describe("an index that changes", () => {
  test("is told by the first documents that come, without a reading of its mapping", async () => {
    const mappings = mapped([{ log: "x", level: "x" }]);
    const { hold, read, report } = await open({ "logs-1": held([], mappings) });
    expect((await report()).guesses).toEqual([
      "logs-1: no known layout is recognised; read as ecs until there are documents that tell",
    ]);
    expect(await read()).toEqual([]);
    hold({ "logs-1": held([{ log: "boom", level: "error" }], mappings) });
    expect(await read("severity=error message=boom")).toHaveLength(1);
  });

  test("is told anew with its mapping, as long as it holds few documents", async () => {
    const first = { message: "starting" };
    const later = { log: "boom", level: "error" };
    const { hold, read, report } = await open({ "logs-1": held([first]) });
    expect((await report()).profile).toBe("ecs");
    hold({ "logs-1": held([first, later, later]) });
    expect((await report()).profile).toBe("fluent-bit");
    expect(await read("severity=error")).toHaveLength(2);
  });

  test("is not asked again by each request once it is told", async () => {
    const { fake, read } = await open({ "logs-1": held([{ log: "boom" }]) });
    await read();
    const before = fake.asked.length;
    await read();
    expect(fake.asked.slice(before).map(({ path }) => path.replace(/\?.*/, ""))).toEqual(["/logs-*/_search"]);
  });
});
