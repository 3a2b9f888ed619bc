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

test("deriveIncidentNumber is a stable integer of 31 bits, from 1 on, and differs by site and digest", () => {
  // The first 31 bits of the SHA-256 of site, a zero byte and digest, worked out by another program.
  expect(deriveIncidentNumber("demo-shop", "digest-1")).toBe(1765569647);
  expect(deriveIncidentNumber("shop", "err_x")).toBe(2092241151);
  const numbers = Array.from({ length: 10_000 }, (_, n) =>
    deriveIncidentNumber(`site-${n % 7}`, `digest-${n}`),
  );
  expect(new Set(numbers).size).toBe(10_000);
  expect(numbers.every((number) => Number.isInteger(number) && number >= 1 && number <= 2_147_483_647)).toBe(
    true,
  );
  // Half of them have the highest bit.
  expect(numbers.filter((number) => number >= 2 ** 30).length).toBeGreaterThan(4_500);
});
