// The spans that a collector of OTLP was sent.
import { expect } from "vitest";
import * as z from "zod";
import type { ScriptedSource } from "./scripted-http-source.ts";

// OTLP's JSON mapping, exactly: what is not in it fails the test.
const attribute = z.strictObject({
  key: z.string(),
  value: z.union([
    z.strictObject({ stringValue: z.string() }),
    z.strictObject({ intValue: z.string().regex(/^\d+$/) }),
  ]),
});
const hex = (digits: number) => z.string().regex(new RegExp(`^[0-9a-f]{${digits}}$`));
const nanos = z.string().regex(/^\d{19}$/);
const exported = z.strictObject({
  resourceSpans: z.tuple([
    z.strictObject({
      resource: z.strictObject({ attributes: z.array(attribute) }),
      scopeSpans: z.tuple([
        z.strictObject({
          scope: z.strictObject({ name: z.literal("readout") }),
          spans: z.array(
            z.strictObject({
              traceId: hex(32),
              spanId: hex(16),
              parentSpanId: hex(16).optional(),
              name: z.string(),
              kind: z.union([z.literal(2), z.literal(3)]),
              startTimeUnixNano: nanos,
              endTimeUnixNano: nanos,
              attributes: z.array(attribute),
              status: z.strictObject({ code: z.literal(2).optional() }),
            }),
          ),
        }),
      ]),
    }),
  ]),
});

/** Fails where a request is none of the service `readout-test`. */
export function listSpans(collector: ScriptedSource) {
  return collector.requests.flatMap(({ path, body }) => {
    expect(path).toBe("/v1/traces");
    const [{ scopeSpans, resource }] = exported.parse(JSON.parse(body)).resourceSpans;
    expect(plain(resource.attributes)["service.name"]).toBe("readout-test");
    return scopeSpans[0].spans.map((span) => ({ ...span, attributes: plain(span.attributes) }));
  });
}
const plain = (attributes: readonly z.output<typeof attribute>[]) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0] ?? ""]));
