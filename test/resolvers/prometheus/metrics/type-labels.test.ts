// Of a metric that no target declares, the types in the label `__type__` decide what it is, if they agree. Otherwise its samples
// do.
import { expect, test } from "vitest";
import { openFakePrometheus } from "../../../support/prometheus/scripted-server.ts";
import { sendJson } from "../../../support/scripted-http-source.ts";
import { never } from "../../../support/signals.ts";

test.each([
  { types: ["counter"], falls: true, found: "counter" },
  { types: ["gauge", "info"], falls: false, found: "gauge" },
  { types: ["counter", "gauge"], falls: true, found: "gauge" },
  { types: ["counter", "gauge", "info"], falls: false, found: "counter" },
])("types $types of samples that fall ($falls) are a $found", async ({ types, falls, found }) => {
  const series = (metric: object, value: number) => ({ metric, value: [0, String(value)] });
  const answerQuery = (query: string) => {
    if (query.includes("__type__")) return types.map((type) => series({ __type__: type }, 1));
    if (query.includes("histogram_count")) return [];
    if (query.includes("resets")) return [series({}, falls ? 1 : 0)];
    return [series({}, 5)];
  };
  const fake = await openFakePrometheus({
    metrics: { load: undefined },
    answer(form, response) {
      const result = answerQuery(form.get("query") ?? "");
      sendJson(response, { status: "success", data: { resultType: "vector", result } });
    },
  });
  const backend = fake.open();
  try {
    expect(await backend.stores.metrics?.type({}, "load", never)).toBe(found);
  } finally {
    await backend.close();
    await fake.close();
  }
});
