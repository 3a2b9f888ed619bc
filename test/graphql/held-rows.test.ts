// The fields of one query hold their rows together until it is answered: few rows of many bytes are bounded too.
import { afterAll, expect, test } from "vitest";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis } from "#src/core/time.ts";
import type { LogStore } from "#src/store/logs.ts";
import { clock, createDemo, loadPlainSchema } from "../support/demo-server.ts";

const lineChars = 10_000;
const lines: LogStore["lines"] = async function* ({ sources: [{ id: source_id }] }) {
  const message = "m".repeat(lineChars / 2);
  const json = `{"m":"${message}"}`;
  for (let n = 0; n < 100; n += 1) {
    const line: LogLine = {
      id: `l${n}`,
      time: fromMillis(clock - n),
      source_id,
      severity: "info",
      message,
      json,
    };
    yield [line];
  }
};
// As much as three fields of a hundred rows hold, and not four.
const demo = await createDemo({
  graphql: loadPlainSchema,
  limits: { heldBytes: 3.5 * 100 * lineChars },
  site: (site) => ({ ...site, ...(site.logs && { logs: { ...site.logs, store: { lines } } }) }),
});
afterAll(() => demo.close());

const ask = (aliases: number) => {
  const field = `logs_lines(site_id: "demo-shop", source_ids: ["app"], query: "",
    pagination: { per_page: 100, order: DESC }) { message }`;
  return demo.graphql(`{ ${Array.from({ length: aliases }, (_, at) => `a${at}: ${field}`).join(" ")} }`);
};

test("fields whose rows hold too many bytes together are refused by these", async () => {
  const { errors = [] } = await ask(4);
  expect(errors.length).toBeGreaterThan(0);
  for (const { message, extensions } of errors) {
    expect(message).toContain("more than 3,500,000 bytes of documents or series at once");
    expect(extensions).toMatchObject({ status: 422, slug: "result_too_large" });
  }
});

test("each query counts for itself", async () => {
  for (let round = 0; round < 3; round += 1) {
    const { data, errors } = await ask(3);
    expect(errors).toBeUndefined();
    expect(data?.a2).toHaveLength(100);
  }
});
