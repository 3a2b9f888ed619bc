// Front-end error reports on real servers: from an intake's own connection through the spool into an index, once each.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Span } from "#src/model.ts";
import { readReport, spanOf } from "#src/report.ts";
import { type Cluster, openCluster } from "../support/cluster.ts";
import { reportBody } from "../support/reports.ts";
import { named } from "./named.ts";

const signal = () => AbortSignal.timeout(60_000);

/** Elasticsearch's test distribution has data streams, but not the requests that make and delete them. */
const excused = "elasticsearch";

describe.each(named())("$name", ({ url, product }) => {
  let cluster: Cluster;
  const index = "readout-frontend-test";
  const target = { site: "shop", index, profile: "auto" };
  beforeAll(async () => {
    cluster = openCluster(url);
    await cluster.remove(`${index}*`);
  });
  afterAll(async () => {
    await cluster.remove(`${index}*`);
    await cluster.close();
  });

  function stores() {
    const { reports: store } = cluster.backend.stores;
    const { reports: inspect } = cluster.backend.inspections;
    if (store === undefined || inspect === undefined) throw new Error("no report store");
    return { store, inspect };
  }
  let drawn = 0;
  function span(over: Record<string, unknown> = {}): Span {
    drawn += 1;
    const report = readReport(reportBody(drawn, over));
    if (report === undefined) throw new Error("no report");
    return spanOf("shop", drawn.toString(16).padStart(32, "0"), report);
  }
  async function documents(name = index) {
    await cluster.request("POST", `/${name}/_refresh`);
    const body = JSON.stringify({ size: 1_000, track_total_hits: true });
    const answer = (await cluster.request("POST", `/${name}/_search`, body)) as {
      hits: { hits: { _id: string; _source: Record<string, unknown> }[] };
    };
    return answer.hits.hits;
  }

  test("check makes the index, proves the right to write, and leaves no document", async () => {
    const report = await stores().inspect(target, signal());
    expect(report).toEqual({ found: [`index ${index}, writable`], limitations: [], problems: [] });
    expect(await documents()).toEqual([]);
    expect((await stores().inspect(target, signal())).problems).toEqual([]);
  });

  test("what is delivered twice is there once, under its own id", async () => {
    const spans = Array.from({ length: 50 }, () => span());
    const { store } = stores();
    expect(await store.deliver(target, spans, signal())).toEqual(new Map());
    expect(await store.deliver(target, spans, signal())).toEqual(new Map());
    const ids = (await documents()).map(({ _id }) => _id);
    expect(ids.toSorted()).toEqual(spans.flatMap(({ trace_id }) => [trace_id, `${trace_id}-0`]).toSorted());
  });

  test("whatever a user names a tag, and however long a value is, the document is taken and kept whole", async () => {
    const odd = {
      ...{
        a: "1",
        "a.b": "2",
        "a.b.c": "3",
        ".": "4",
        "..": "5",
        " ": "6",
        "x.": "7",
        ".x": "8",
        "": "9",
        "*": "10",
      },
      [`k${"x".repeat(2_000)}`]: "y".repeat(40_000),
      ...Object.fromEntries(Array.from({ length: 1_500 }, (_, n) => [`many.${n}`, `${n}`])),
    };
    const one = span({
      tags: odd,
      error: { name: "E", message: "m".repeat(50_000), backtrace: ["b".repeat(50_000)] },
    });
    expect(await stores().store.deliver(target, [one], signal())).toEqual(new Map());
    const found = (await documents()).filter(({ _id }) => _id.startsWith(one.trace_id));
    const whole = found.find(({ _id }) => _id === one.trace_id)?._source;
    expect(whole?.attributes).toEqual(one.span_attributes);
    expect(found.find(({ _id }) => _id === `${one.trace_id}-0`)?._source.attributes).toEqual(
      one.events[0]?.attributes,
    );
  });

  test("a document that a mapping refuses is told apart from its neighbours", async () => {
    const strict = `${index}-strict`;
    await cluster.createIndex(strict, {
      mappings: { properties: { name: { type: "long" }, trace_id: { type: "keyword" } } },
    });
    const [good, bad] = [span({ action: "7" }), span({ action: "no number" })];
    const refusals = await stores().store.deliver({ ...target, index: strict }, [good, bad], signal());
    expect([...refusals.keys()]).toEqual([bad.trace_id]);
    expect(refusals.get(bad.trace_id)).toMatch(/^status 400: /);
  });

  test("an index that may not be written is a failure and no refusal", async () => {
    const blocked = `${index}-blocked`;
    await cluster.createIndex(blocked, { settings: { "index.blocks.write": true } });
    await expect(
      stores().store.deliver({ ...target, index: blocked }, [span()], signal()),
    ).rejects.toMatchObject({
      name: "BackendError",
      failure: "denied",
    });
    const { problems } = await stores().inspect({ ...target, index: blocked }, signal());
    expect(problems).toEqual([expect.stringContaining("reports cannot be written")]);
  });

  test("a name that a template claims becomes a data stream", async () => {
    const stream = `${index}-stream`;
    const template = {
      index_patterns: [stream],
      data_stream: {},
      priority: 900,
      template: { mappings: { properties: { "@timestamp": { type: "date" } } } },
    };
    await cluster.request("PUT", `/_index_template/${stream}`, JSON.stringify(template));
    try {
      const { store, inspect } = stores();
      const one = span();
      const there = { ...target, index: stream };
      if (product === excused) {
        await expect(store.deliver(there, [one], signal())).rejects.toMatchObject({ failure: "rejected" });
        return;
      }
      expect(await store.deliver(there, [one], signal())).toEqual(new Map());
      expect(await store.deliver(there, [one], signal())).toEqual(new Map());
      expect((await documents(stream)).map(({ _id }) => _id).toSorted()).toEqual([
        one.trace_id,
        `${one.trace_id}-0`,
      ]);
      expect((await inspect(there, signal())).limitations).toEqual([expect.stringContaining("rollover")]);
    } finally {
      await cluster.request("DELETE", `/_data_stream/${stream}`).catch(() => {});
      await cluster.request("DELETE", `/_index_template/${stream}`);
    }
  });
});
