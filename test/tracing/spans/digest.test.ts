import fc from "fast-check";
import { expect, test } from "vitest";
import { spanKinds } from "#src/core/rows.ts";
import {
  decodeDigest,
  deriveIncidentNumber,
  encodeActionDigest,
  encodeErrorDigest,
  encodeEventDigest,
} from "#src/tracing/spans/digest.ts";

const text = fc.string({ unit: "binary" });

test("derived digests are URL-safe and decode to what they stand for", () => {
  const law = fc.property(
    text,
    text,
    text,
    fc.constantFrom(...spanKinds),
    (namespace, action, other, kind) => {
      const key = { service: namespace, kind, name: action, statement: other === "" ? undefined : other };
      for (const [digest, meaning] of [
        [encodeActionDigest({ namespace, action }), { of: "action", namespace, action }],
        [
          encodeErrorDigest(other, { namespace, action }),
          { of: "error", exception: other, namespace, action },
        ],
        [encodeEventDigest(key), { of: "event", ...key }],
      ] as const) {
        expect(digest).toMatch(/^[\w-]+$/);
        expect(decodeDigest(digest)).toEqual(meaning);
      }
    },
  );
  fc.assert(law);
});

test("decodeDigest returns undefined for any other text", () => {
  const real = encodeActionDigest({ namespace: "web", action: "Cart#show" });
  const others = [
    "",
    "act_",
    "act_!!",
    "xyz",
    real.slice(0, -1),
    `${real}A`,
    real.toUpperCase(),
    `err_${real.slice(4)}`,
    // The same key, spelt in another way than ours.
    `act_${Buffer.from('["web", "Cart#show"]').toString("base64url")}`,
  ];
  expect(others.map(decodeDigest)).toEqual(others.map(() => undefined));
});

test("deriveIncidentNumber is stable, positive, a safe integer, and differs by site and digest", () => {
  const numbers = ["a", "b"].flatMap((site) =>
    ["x", "y"].map((digest) => deriveIncidentNumber(site, digest)),
  );
  expect(new Set(numbers).size).toBe(4);
  expect(numbers.every((number) => Number.isSafeInteger(number) && number > 0)).toBe(true);
  expect(deriveIncidentNumber("demo-shop", "digest-1")).toBe(deriveIncidentNumber("demo-shop", "digest-1"));
});
