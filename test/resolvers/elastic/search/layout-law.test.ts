// A law of `auto`: what a shipper writes is detected as its layout, whichever optional fields its documents have.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { logLayouts } from "#resolvers/elastic/layout/log-layout.ts";
import { requireKey } from "#src/core/collections.ts";
import type { FakeIndex } from "../../../support/elastic/fake-cluster.ts";
import { filebeat, printDocument } from "../../../support/elastic/filebeat.ts";
import {
  at,
  buildMapping,
  type JsonObject,
  openIndices,
  readProperties,
} from "../../../support/elastic/layout-harness.ts";
import type { LogShipper, ShippableLine } from "../../../support/elastic/log-documents.ts";
import * as shippers from "../../../support/elastic/log-shippers.ts";
import * as platformShippers from "../../../support/elastic/platform-log-shippers.ts";
import { sampleRuns } from "../../../support/law-runs.ts";

const ecs: LogShipper = { layout: "ecs", index: String, definition: filebeat, document: printDocument };
const all: readonly (readonly [string, LogShipper])[] = Object.entries({
  ecs,
  ...shippers,
  ...platformShippers,
});

/** What a shipper writes always. */
const always: Readonly<Record<string, Partial<ShippableLine>>> = {
  "elastic-apm": { group: "shop" },
  gelf: { hostname: "web-1" },
  pino: { hostname: "web-1", severity: "info" },
  "syslog-ng": { hostname: "web-1", severity: "info" },
  wazuh: { severity: "info" },
};

/** An index with these documents whose times are mapped as the layout needs them. */
function createIndex(layout: string, documents: readonly JsonObject[]): FakeIndex {
  const properties: Record<string, object> = { ...readProperties({ mappings: buildMapping(documents) }) };
  for (const { field, unit } of requireKey(logLayouts, layout).time) {
    if (documents.some((document) => Object.hasOwn(document, field)))
      properties[field] = { type: unit === undefined ? "date" : "long" };
  }
  return { documents, mappings: { properties } };
}

async function detect(layout: string, documents: readonly JsonObject[]) {
  const { report } = await openIndices({ "logs-1": createIndex(layout, documents) });
  const { layout: detected, guesses } = await report();
  return { detected, guesses };
}

/** The message is never absent: a layout that finds none gives way to one that does. */
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined, freq: 1 });
const line: fc.Arbitrary<ShippableLine> = fc.record({
  time: fc.constant(at),
  severity: optional(fc.constantFrom("error", "WARN", "info", "debug", "notice", "critical")),
  message: fc.constantFrom("boom", "it broke\nbadly", "200"),
  hostname: optional(fc.constantFrom("web-1", "10.0.0.7")),
  group: optional(fc.constantFrom("shop", "cart")),
  json: fc.constantFrom(
    "{}",
    '{"n":5}',
    '{"user":{"name":"ann"},"n":1.5}',
    '{"trace_id":"4bf9","code":"E1"}',
  ),
});
const samples = fc.array(line, { minLength: 1, maxLength: 4 });

describe("layout detection, any optional fields", () => {
  test.each(all)("detects what %s writes as its layout", async (_, shipper) => {
    await fc.assert(
      fc.asyncProperty(samples, async (lines) => {
        const documents = lines.map((own): JsonObject => {
          return JSON.parse(shipper.document({ ...own, ...always[shipper.layout] }));
        });
        expect(await detect(shipper.layout, documents)).toEqual({ detected: shipper.layout, guesses: [] });
      }),
      { numRuns: sampleRuns(25, { share: 12, least: 2 }), seed: 28 },
    );
  });

  test.each(all)("init proposes what %s writes", async (_, shipper) => {
    const required = { time: at, message: "boom", hostname: "web-1", group: "shop", json: '{"n":5}' };
    const document = JSON.parse(shipper.document({ ...required, severity: "error" }));
    const { survey } = await openIndices({ "logs-1": createIndex(shipper.layout, [document]) });
    expect(await survey()).toMatchObject({ logs: [{ index: "logs-*", layout: shipper.layout }], notes: [] });
  });

  test("knows the layouts that one resembles or precedes", () => {
    for (const { resembles, precedes } of logLayouts.values())
      expect([...resembles, ...precedes].filter((name) => !logLayouts.has(name))).toEqual([]);
  });
});
