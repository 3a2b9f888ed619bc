// Documents as Logstash's gelf input, Wazuh 4, OpenShift's collectors, Logsearch for Cloud Foundry and HashiCorp's programs write
// them: the layout that is detected, and the lines.
import { describe, expect, test } from "vitest";
import {
  createFakeIndex,
  type JsonObject,
  openIndices,
  readSingleDocument,
} from "../../../support/elastic/layout-harness.ts";

describe("GELF by Logstash", () => {
  const sent = { "@version": "1", version: "1.1", source_host: "172.17.0.1", host: "h", message: "m" };
  const docker = {
    container_id: "9f2c",
    container_name: "web",
    image_id: "sha256:1",
    image_name: "shop:2",
    command: "node .",
    created: "2026-01-15T09:00:00Z",
    tag: "9f2c",
  };
  test.each<readonly [string, JsonObject, object]>([
    ["Docker's driver", { ...docker, level: 3 }, { severity: "error", group: "web" }],
    ["Docker's driver, without the input's fields", { ...docker, level: 6, source_host: undefined }, {}],
    ["a logger, by number", { level: 4, facility: "shop" }, { severity: "warn", group: "shop" }],
    ["a logger, by a number in a text", { level: "2", facility: "shop" }, { severity: "critical" }],
    ["a name beside the number", { level: 7, level_name: "TRACE", logger_name: "l" }, { severity: "trace" }],
    ["a severity beside the number", { level: "4", Severity: "WARN", LoggerName: "l" }, { severity: "warn" }],
    ["a name that is none beside the number", { level: 3, level_name: "OOPS" }, { severity: "error" }],
    ["a number beyond syslog's", { level: 30 }, { severity: "unknown" }],
    ["a tag as from Fluentd", { level: 3, tag: "app", severity: "ERROR" }, { severity: "error" }],
    ["no level", { facility: "shop" }, { severity: "unknown" }],
    ["a message that was not renamed", { message: undefined, short_message: "m", level: 3 }, {}],
    ["no address of a sender", { source_host: undefined, level: 3 }, { severity: "error" }],
    [
      "a facility without the input's address and version",
      { source_host: undefined, version: undefined, facility: "shop", level: 5 },
      { severity: "notice", group: "shop" },
    ],
    ["a host that was renamed for ECS", { host: { name: "h" }, level: 3 }, { severity: "error" }],
    ["no version", { version: undefined, level: 1 }, { severity: "alert" }],
    ["no host", { host: undefined, level: 0 }, { severity: "fatal", hostname: "172.17.0.1" }],
  ])("reads %s", async (_, own, line) => {
    const document = JSON.parse(JSON.stringify({ ...sent, ...own }));
    const expected = { layout: "gelf", guesses: [], line: { message: "m", hostname: "h", ...line } };
    expect(await readSingleDocument(document)).toMatchObject(expected);
  });

  test("leaves JSON with a version, a host and a level in words to Logstash's layout", async () => {
    const document = {
      "@version": "1",
      version: "2.3.1",
      host: "h",
      level: "ERROR",
      message: "m",
      type: "t",
    };
    const line = { severity: "error", message: "m", hostname: "h", group: "t" };
    expect(await readSingleDocument(document)).toEqual({ layout: "logstash", guesses: [], line });
  });

  test("guesses no number to be syslog's without a mark", async () => {
    const { layout, line } = await readSingleDocument({ message: "m", level: 3, host: "h" });
    expect({ layout, severity: line.severity }).toEqual({ layout: "fluent-bit", severity: "unknown" });
  });

  test("finds exactly the lines of a severity", async () => {
    const levels = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((level) => ({ ...sent, level, n: level }));
    const named = { ...sent, level: 7, level_name: "TRACE", n: 9 };
    const { read } = await openIndices({ "logs-1": createFakeIndex([...levels, named]) });
    const numbers = async (query: string) => (await read(query)).map(({ json }) => JSON.parse(json).n);
    expect(await numbers("severity=error")).toEqual([3]);
    expect(await numbers("severity=trace OR severity=debug")).toEqual([7, 9]);
    expect(await numbers("severity=unknown")).toEqual([8]);
    expect(await numbers("severity!=error n<5")).toEqual([0, 1, 2, 4]);
  });

  test("does not report the level as numbers without a severity", async () => {
    const { report } = await openIndices({ "logs-1": createFakeIndex([{ ...sent, level: 3 }]) });
    expect((await report()).limitations.filter((text) => text.includes("holds numbers"))).toEqual([]);
  });
});

describe("Wazuh", () => {
  const alert = {
    timestamp: "2026-01-15T10:00:00.000Z",
    id: "1768471200.4711",
    rule: {
      id: "5710",
      level: 5,
      description: "sshd: unknown user",
      groups: ["syslog", "sshd"],
      mail: false,
    },
    agent: { id: "001", name: "web-1", ip: "10.0.0.7" },
    manager: { name: "wazuh-1" },
    decoder: { parent: "sshd", name: "sshd" },
    location: "/var/log/auth.log",
  };
  const full_log = "Jan 15 10:00:00 web-1 sshd[7]: Invalid user eve";
  const program = { predecoder: { program_name: "sshd", hostname: "web-1" } };

  test.each<readonly [string, JsonObject, object]>([
    ["a line of a log", { full_log, ...program }, { message: full_log, severity: "notice", group: "sshd" }],
    ["an event without a line", {}, { message: "sshd: unknown user", severity: "notice", group: "sshd" }],
    ["a file's change", { full_log, decoder: { name: "syscheck_integrity_changed" } }, { message: full_log }],
    ["the manager's own", { full_log, agent: { id: "000" } }, { hostname: "wazuh-1" }],
    [
      "a line of an archive",
      { full_log, rule: undefined, ...program },
      { message: full_log, severity: "unknown" },
    ],
  ])("reads %s", async (_, own, line) => {
    const document = JSON.parse(JSON.stringify({ ...alert, ...own }));
    const expected = { layout: "wazuh", guesses: [], line: { hostname: "web-1", ...line } };
    expect(await readSingleDocument(document)).toMatchObject(expected);
  });

  test.each([
    [0, "debug"],
    [3, "info"],
    [4, "notice"],
    [6, "notice"],
    [7, "warn"],
    [11, "warn"],
    [12, "error"],
    [14, "error"],
    [15, "critical"],
    [16, "critical"],
    [17, "unknown"],
  ])("reads the rule's level %d as %s", async (level, severity) => {
    const document = { ...alert, full_log, rule: { ...alert.rule, level } };
    expect((await readSingleDocument(document)).line.severity).toBe(severity);
    const { read } = await openIndices({ "logs-1": createFakeIndex([document]) });
    expect(await read(`severity=${severity} hostname=web-1 rule.level=${level}`)).toHaveLength(1);
  });

  test("is recognised by its template, which maps a version of Logstash and a host too", async () => {
    const index = createFakeIndex([{ ...alert, full_log, "@version": "1" }]);
    const { report } = await openIndices({ "logs-1": { ...index, documents: [] } });
    expect((await report()).layout).toBe("wazuh");
  });
});

describe("OpenShift's log forwarding", () => {
  const openshift = { cluster_id: "4f1c", sequence: 17 };
  const pod = { pod_name: "web-1", namespace_name: "shop", container_name: "web", namespace_id: "77" };
  const vector = {
    hostname: "node-1",
    kubernetes: pod,
    level: "default",
    log_source: "container",
    log_type: "application",
    openshift,
  };
  const fluentd = {
    docker: { container_id: "a1" },
    hostname: "node-1",
    level: "unknown",
    log_type: "application",
    kubernetes: { ...pod, host: "node-1", master_url: "https://kubernetes.default.svc" },
    pipeline_metadata: { collector: { name: "fluentd", version: "1.14.6" } },
    openshift,
    viaq_msg_id: "ZTc2",
  };
  const ours = { hostname: "node-1", group: "web" };
  test.each<readonly [string, JsonObject, object]>([
    ["a text by Vector", { ...vector, level: "error", message: "m" }, { severity: "error", message: "m" }],
    ["a text without a level", { ...vector, message: "m" }, { severity: "unknown", message: "m" }],
    [
      "JSON with a message and a level of its own",
      { ...vector, level: "error", structured: { level: "warning", message: "no errors", n: 1 } },
      { severity: "warn", message: "no errors" },
    ],
    [
      "JSON with a level by number",
      { ...vector, level: "error", structured: { level: 50, msg: "m" } },
      { severity: "error", message: "m" },
    ],
    [
      "JSON without a text",
      { ...vector, level: "info", structured: { user: "ann" } },
      { severity: "info", message: '{"user":"ann"}' },
    ],
    [
      "a text by Fluentd",
      { ...fluentd, level: "notice", message: "m" },
      { severity: "notice", message: "m" },
    ],
    [
      "JSON beside its text by Fluentd",
      { ...fluentd, message: '{"level":"info"}', structured: { level: "info" } },
      { severity: "info", message: '{"level":"info"}' },
    ],
  ])("reads %s", async (_, document, line) => {
    const expected = { layout: "openshift", guesses: [], line: { ...ours, ...line } };
    expect(await readSingleDocument(document)).toMatchObject(expected);
  });

  test("reads a node's journal", async () => {
    const document = {
      hostname: "node-1",
      level: "err",
      log_source: "node",
      log_type: "infrastructure",
      message: "m",
      systemd: { t: { SYSTEMD_UNIT: "kubelet.service" }, u: { SYSLOG_IDENTIFIER: "kubelet" } },
      openshift,
      tag: ".journal.system",
    };
    const line = { severity: "error", message: "m", hostname: "node-1", group: "kubelet" };
    expect(await readSingleDocument(document)).toEqual({ layout: "openshift", guesses: [], line });
  });

  test("finds lines by the application's own level and fields", async () => {
    const documents = [
      { ...vector, level: "error", structured: { level: "warning", message: "a", n: 1 } },
      { ...vector, level: "error", message: "b" },
      { ...vector, level: "info", structured: { level: "E", user: { name: "ann" } } },
    ];
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents) });
    const messages = async (query: string) => (await read(query)).map(({ message }) => message);
    const printed = '{"level":"E","user":{"name":"ann"}}';
    expect(await messages("severity=error")).toEqual(["b", printed]);
    expect(await messages("severity=warn structured.n=1")).toEqual(["a"]);
    expect(await messages("message:ann")).toEqual([printed]);
    expect(await messages("structured.user.name=ann hostname=node-1 group=web")).toEqual([printed]);
  });

  test("leaves pods of Fluent Bit and Fluentd to their layouts", async () => {
    const kubernetes = { ...pod, host: "node-1" };
    expect((await readSingleDocument({ kubernetes, log: "m", stream: "stdout" })).layout).toBe("fluent-bit");
    const tagged = { kubernetes: { namespace_id: "77", container_name: "web" }, message: "m", tag: "kube" };
    expect((await readSingleDocument(tagged)).layout).toBe("fluentd");
  });
});

describe("Logsearch for Cloud Foundry", () => {
  const common = {
    "@input": "syslog",
    "@shipper": { priority: 6, name: "doppler_syslog" },
    "@message": "m",
    "@version": "1",
  };
  test.each<readonly [string, JsonObject, object]>([
    [
      "an application's line",
      {
        "@index_type": "app",
        "@type": "LogMessage",
        "@level": "WARN",
        "@source": { type: "APP", component: "rep", job: "cell_z1", host: "10.0.0.7" },
        "@cf": { app: "shop", app_id: "31b9", space: "prod", org: "acme", app_instance: 0 },
      },
      { severity: "warn", hostname: "10.0.0.7", group: "shop" },
    ],
    [
      "a component's line",
      {
        "@index_type": "platform",
        "@type": "vcap",
        "@level": "ERROR",
        "@source": { type: "cf", component: "nats", job: "nats_z1", vm: "nats_z1/0" },
      },
      { severity: "error", hostname: "nats_z1/0", group: "nats" },
    ],
    [
      "dotted keys",
      { "@source.host": "h", "@source.component": "uaa", "@level": "DEBUG" },
      { severity: "debug" },
    ],
  ])("reads %s", async (_, own, line) => {
    expect(await readSingleDocument({ ...common, ...own })).toMatchObject({
      layout: "cloud-foundry",
      guesses: [],
      line: { message: "m", ...line },
    });
  });

  test("finds lines by their fields and by paths that begin with @", async () => {
    const documents = ["INFO", "ERROR"].map((level) => {
      return { ...common, "@level": level, "@source": { host: "h" }, "@cf": { app: "shop", org: "acme" } };
    });
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents) });
    expect(await read("severity=error group=shop hostname=h message=m @cf.org=acme")).toHaveLength(1);
    expect(await read("severity!=error")).toHaveLength(1);
  });
});

test("reads JSON of HashiCorp's programs, whose names begin with @ too", async () => {
  const document = { "@level": "warn", "@message": "m", "@module": "core.raft", "peer-id": "7" };
  const line = { severity: "warn", message: "m", hostname: undefined, group: "core.raft" };
  expect(await readSingleDocument(document)).toEqual({ layout: "plain", guesses: [], line });
});

describe("ECS, the original of a message", () => {
  const own = { ecs: { version: "1.0.0" }, host: { name: "h" } };
  test.each<readonly [string, JsonObject, string | undefined]>([
    ["log.original", { log: { level: "info", original: "raw" } }, "raw"],
    ["event.original", { event: { original: "raw" } }, "raw"],
    ["event.original before log.original", { event: { original: "b" }, log: { original: "a" } }, "b"],
    ["a message before both", { message: "m", event: { original: "b" }, log: { original: "a" } }, "m"],
    ["msg before log.original", { msg: "m", log: { original: "a" } }, "m"],
    ["neither", { log: { level: "info" } }, undefined],
  ])("is the message: %s", async (_, document, message) => {
    const { layout, line } = await readSingleDocument({ ...own, ...document });
    expect({ layout, message: line.message }).toEqual({ layout: "ecs", message });
  });

  test("is found by filters on the message", async () => {
    const documents = [
      { ...own, message: "first", log: { original: "hidden" } },
      { ...own, log: { original: "second" } },
    ];
    const { read } = await openIndices({ "logs-1": createFakeIndex(documents) });
    expect((await read("message=second")).map(({ message }) => message)).toEqual(["second"]);
    expect(await read("message=hidden")).toEqual([]);
    expect(await read("message!=second")).toHaveLength(1);
  });
});
