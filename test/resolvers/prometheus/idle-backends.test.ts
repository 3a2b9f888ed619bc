// A configuration may have hundreds of backends of which few are asked.
import { expect, test } from "vitest";
import { prometheus } from "#resolvers/prometheus/prometheus.ts";
import { testIO } from "../../support/io.ts";

test("a backend that nobody has asked holds no caches", async () => {
  const before = process.memoryUsage().arrayBuffers;
  const backends = Array.from({ length: 100 }, (_, n) =>
    prometheus.create(`p${n}`, prometheus.parseConfig({ url: "http://127.0.0.1:1" }), testIO),
  );
  // The fields of a cache are arrays of numbers as long as it may become: 300 kB for each backend.
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(1_000_000);
  for (const backend of backends) await backend.close();
});
