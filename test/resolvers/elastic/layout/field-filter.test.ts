// Which fields of a mapping matter to figures of spans that are kept.
import { describe, expect, test } from "vitest";
import { buildSpanSource } from "#src/access/sites.ts";
import { createFieldFilter } from "../../../../resolvers/elastic/layout/field-filter.ts";
import { spanLayouts } from "../../../../resolvers/elastic/layout/span-layout.ts";
import { readFields } from "../../../../resolvers/elastic/mapping/indexed-field.ts";
import { opaqueMetadata } from "../../../../resolvers/elastic/mapping/mapping.ts";
import { describeIndices, keepsIndices } from "../../../../resolvers/elastic/snapshot/snapshot.ts";

function filterFor(where?: string, over: object = {}) {
  const source = buildSpanSource("shop", { index: "t", layout: "auto", ...(where && { where }) });
  return createFieldFilter([{ ...source, ...over }], () => [...spanLayouts.values()]);
}

describe("fields", () => {
  test.each([
    "trace_id",
    "kind",
    "@timestamp",
    "name",
    "status.code",
    "links",
    "parent.id",
    "anything.else",
    // What is read by name, what lies below that, and what that lies in.
    "attributes.db.statement",
    "attributes.db.statement.keyword",
    "attributes.db",
    "resource.attributes.service.name",
    "resource.attributes.service.version",
    "attributes.peer.service",
    "attributes.appsignal.incident_digest",
    "attributes.readout.report",
    "tag.db@statement",
    "labels.db_statement",
    "attributes.event.name",
  ])("that may change what is read: %s", (field) => {
    expect(filterFor()(field)).toBe(true);
  });

  test.each([
    "attributes.http.route",
    "attributes.http",
    "resource.attributes.k8s.pod.name",
    "attributes.x",
    "tag.http@method",
    "process.tag.k8s@pod@name",
    "labels.http_route",
    "numeric_labels.queue_size",
  ])("that change nothing: %s", (field) => {
    expect(filterFor()(field)).toBe(false);
  });

  test("of the site's own settings and of its tenant filter matter", () => {
    const own = filterFor('attributes.tenant.id="x" OR labels.team="y"', {
      namespaceAttribute: "app.area",
      actionAttribute: "app.job",
    });
    for (const name of ["tenant.id", "tenant", "tenant.id.keyword", "app.area", "app.job"])
      expect([name, own(`attributes.${name}`)]).toEqual([name, true]);
    expect([own("labels.app_area"), own("labels.team"), own("labels.team.keyword")]).toEqual([
      true,
      true,
      true,
    ]);
    expect(own("attributes.tenants")).toBe(false);
    // Names that cannot be told from values.
    expect(filterFor('attributes.{a}="x"')("attributes.http.route")).toBe(true);
  });
});

test("mappings keep what was counted while applications bring attributes", () => {
  const isRead = filterFor();
  const mapping = (attributes: object, more: object = {}) => {
    const properties = {
      trace_id: { type: "keyword" },
      attributes: { properties: attributes },
      ...more,
    };
    const fields = readFields({ properties } as never, [], {
      ignoreMalformed: false,
      ignoreAbove: 1e9,
      standardAnalyzer: true,
    });
    const group = { indices: ["i"], fields } as never;
    return describeIndices({ ...opaqueMetadata, indices: new Set(["i"]), groups: [group] }, isRead);
  };
  const keyword = { type: "keyword" };
  const before = mapping({ known: keyword });
  expect(keepsIndices(before, mapping({ known: keyword, other: keyword }))).toBe(true);
  expect(keepsIndices(before, mapping({}))).toBe(true);
  expect(keepsIndices(before, mapping({ known: keyword, "db.statement": keyword }))).toBe(false);
  expect(keepsIndices(before, mapping({ known: keyword }, { kind: keyword }))).toBe(false);
  expect(keepsIndices(before, mapping({ known: keyword }, { trace_id: { type: "text" } }))).toBe(false);
});
