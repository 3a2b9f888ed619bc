// The requests for error reports, and the meaning of each response.
import type { ServerResponse } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { buildReportSpan, readReport } from "#src/intake/error-report.ts";
import { renderReport } from "../../support/error-reports.ts";
import { testIO } from "../../support/io.ts";
import { openScriptedSource, type ScriptedSource, sendJson } from "../../support/scripted-http-source.ts";
import { never } from "../../support/signals.ts";

const fakes: ScriptedSource[] = [];
afterEach(async () => {
  for (const fake of fakes.splice(0)) await fake.close();
});

/** A server that has what is `listed`, by default no indices, and answers `bulk` to a bulk request. */
async function open(
  bulk: (response: ServerResponse, items: number) => void,
  place = "indices",
  listed: object = {},
) {
  let made = false;
  const fake = await openScriptedSource((response, { method, url = "" }, body) => {
    if (url.startsWith("/_resolve/"))
      return sendJson(response, made ? { [place]: [{ name: "reports" }] } : listed);
    if (url.includes("/_bulk")) return bulk(response, body.trim().split("\n").length / 2);
    if (method === "PUT") {
      if (url === "/reports" && place === "data_streams")
        return sendJson(response, { error: "template" }, 400);
      made = true;
      return sendJson(response, {});
    }
    return sendJson(response, { version: { number: "8.19.0" } });
  });
  fakes.push(fake);
  const backend = elastic.create("elk", elastic.parseConfig({ url: fake.url }), testIO);
  const { reports: store } = backend.stores;
  const { reports: inspect } = backend.inspections;
  if (store === undefined || inspect === undefined) throw new Error("no report store");
  const target = { site: "shop", index: "reports", layout: "auto" };
  const deliver = async (count = 2) => store.deliver(target, await spans(count), never);
  const deleteIndex = () => {
    made = false;
  };
  return {
    fake,
    store,
    target,
    deliver,
    deleteIndex,
    inspect: () => inspect(target, never),
  };
}

function spans(count: number) {
  const numbers = Array.from({ length: count }, (_, n) => n);
  const build = async (n: number) => {
    const report = await readReport(renderReport(n, { tags: { n: `${n}` } }));
    if (report === undefined) throw new Error("no report");
    return buildReportSpan("shop", `${n}`.padStart(32, "a"), report);
  };
  return Promise.all(numbers.map(build));
}
const items = (statuses: readonly number[], type = "document_parsing_exception") => ({
  items: statuses.map((status) => ({
    create: status < 300 ? { status } : { status, error: { type, reason: "because" } },
  })),
});

describe("error report store", () => {
  test("creates the index, then a report as a span and its exception with fixed ids", async () => {
    const { fake, deliver } = await open((response) => sendJson(response, items([201, 201])));
    expect(await deliver(1)).toEqual(new Map());
    const sent = fake.requests.filter(({ path }) => path !== "/");
    expect(sent.map(({ method, path }) => `${method} ${path.split("?")[0]}`)).toEqual([
      "GET /_resolve/index/reports*",
      "PUT /reports",
      "POST /reports/_bulk",
    ]);
    const id = "0".padStart(32, "a");
    const lines = sent[2]?.body
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines).toEqual([
      { create: { _id: id } },
      {
        "@timestamp": "2026-11-18T11:06:40.000Z",
        trace_id: id,
        span_id: id.slice(16),
        name: "TypeError",
        kind: "Internal",
        duration: 0,
        status: { code: "Error", message: "number 0" },
        attributes: {
          "readout.report": true,
          "appsignal.namespace": "frontend",
          "appsignal.action_name": "TypeError",
          "appsignal.tag.n": "0",
        },
        resource: { attributes: { "service.name": "shop" } },
      },
      { create: { _id: `${id}-0` } },
      {
        "@timestamp": "2026-11-18T11:06:40.000Z",
        trace_id: id,
        span_id: id.slice(16),
        event_name: "exception",
        attributes: {
          "exception.type": "TypeError",
          "exception.message": "number 0",
          "exception.stacktrace": "at app.js:1",
        },
        resource: { attributes: { "service.name": "shop" } },
      },
    ]);
  });

  test("creates the index anew where it was deleted between two deliveries", async () => {
    const { fake, deliver, deleteIndex } = await open((response, count) =>
      sendJson(response, items(Array(count).fill(201))),
    );
    await deliver();
    await deliver();
    deleteIndex();
    await deliver();
    const written = fake.requests.filter(({ path }) => path.startsWith("/reports"));
    expect(written.map(({ method }) => method)).toEqual(["PUT", "POST", "POST", "PUT", "POST"]);
  });

  test("counts existing documents as delivered", async () => {
    const { deliver } = await open((response) => sendJson(response, items([409, 409, 201, 409])));
    expect(await deliver()).toEqual(new Map());
  });

  test.each(["document_parsing_exception", "mapper_parsing_exception"])(
    "refuses only the report whose document does not fit, with the reason: %s",
    async (type) => {
      const { deliver } = await open((response) => sendJson(response, items([201, 201, 201, 400], type)));
      expect(await deliver()).toEqual(new Map([["1".padStart(32, "a"), `status 400: ${type}: because`]]));
    },
  );

  test.each([
    [429, "overloaded"],
    [503, "overloaded"],
    [403, "denied"],
    [404, "rejected"],
    [500, "rejected"],
  ])("fails the whole delivery when one document has status %i", async (status, failure) => {
    const { deliver } = await open((response) => sendJson(response, items([201, 201, status, 400])));
    await expect(deliver()).rejects.toMatchObject({ name: "BackendError", failure });
  });

  test.each([
    [
      "index_closed_exception",
      ["reports cannot be written to reports: status 400: index_closed_exception: because"],
    ],
    // No index to write to, no such pipeline, a text that is too long.
    [
      "illegal_argument_exception",
      ["reports cannot be written to reports: status 400: illegal_argument_exception: because"],
    ],
    ["strict_dynamic_mapping_exception", []],
    // OpenSearch says so of the body of an inspection where documents pass a pipeline.
    ["not_x_content_exception", []],
  ])("fails the delivery on %s, which may be the fault of the index", async (type, problems) => {
    const { deliver, inspect } = await open((response, count) =>
      sendJson(response, items(Array(count).fill(400), type)),
    );
    await expect(deliver()).rejects.toMatchObject({ name: "BackendError", failure: "rejected" });
    expect((await inspect()).problems).toEqual(problems);
  });

  test.each([
    ["too few results", { items: [{ create: { status: 201 } }] }, 200, "malformed"],
    ["no results", {}, 200, "malformed"],
    ["no JSON", "<html>", 200, "malformed"],
    ["an error", { error: "x" }, 500, "rejected"],
    ["no right", { error: "x" }, 403, "denied"],
  ])("rejects a response with %s", async (_, answer, status, failure) => {
    const { deliver } = await open((response) => sendJson(response, answer, status));
    await expect(deliver()).rejects.toMatchObject({ name: "BackendError", failure });
  });

  test("rejects a list of indices of another form", async () => {
    const { deliver, inspect } = await open((response) => sendJson(response, items([201, 201])), "indices", {
      indices: ["reports"],
    });
    const malformed = { name: "BackendError", failure: "malformed" };
    await expect(deliver()).rejects.toMatchObject(malformed);
    await expect(inspect()).rejects.toMatchObject(malformed);
  });

  test("creates a data stream when a template requires one", async () => {
    const { fake, deliver, inspect } = await open((response, count) => {
      sendJson(response, items(Array.from({ length: count }, () => (count === 1 ? 400 : 201))));
    }, "data_streams");
    await deliver(1);
    expect(fake.requests.map(({ path }) => path)).toContain("/_data_stream/reports");
    const { limitations, problems } = await inspect();
    expect(limitations).toEqual([expect.stringContaining("data stream")]);
    expect(problems).toEqual([]);
  });

  test("creates a deleted index again on the next delivery", async () => {
    let gone = true;
    const { fake, deliver } = await open((response) => {
      sendJson(response, items(gone ? [404, 404, 404, 404] : [201, 201, 201, 201]));
      gone = false;
    });
    await expect(deliver()).rejects.toMatchObject({ failure: "rejected" });
    await deliver();
    expect(fake.requests.filter(({ path }) => path.startsWith("/_resolve/"))).toHaveLength(2);
  });

  test("refuses to write in another layout", async () => {
    const { store, target } = await open((response) => sendJson(response, items([])));
    const wrong = { ...target, layout: "ecs" };
    await expect(store.deliver(wrong, await spans(1), never)).rejects.toMatchObject({
      failure: "rejected",
    });
  });

  test("inspection sends a body that no mapping accepts, even an empty one", async () => {
    const { fake, inspect } = await open((response) => sendJson(response, items([400])));
    expect((await inspect()).problems).toEqual([]);
    const [, document] = fake.requests.find(({ path }) => path.includes("/_bulk"))?.body.split("\n") ?? [];
    expect(document).toBe("[]");
  });

  test("inspection reports a server that takes any body, without an error that it does not give", async () => {
    const { inspect } = await open((response) => sendJson(response, items([201])));
    expect((await inspect()).problems).toEqual(["reports cannot be written to reports: status 201"]);
  });

  test("inspection reports a user who may not write", async () => {
    const { inspect } = await open((response) => sendJson(response, items([403])));
    expect((await inspect()).problems).toEqual([
      "reports cannot be written to reports: status 403: document_parsing_exception: because",
    ]);
  });
});
