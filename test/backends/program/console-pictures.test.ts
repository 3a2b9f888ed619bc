// The pictures of the guide: each is made from the demo as the guide shows it. `PICTURES=write` replaces those in docs/images.
import { readFileSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { ask, complaints, open, openContext, page, prepareConsole } from "./console-harness.ts";

prepareConsole();

interface Picture {
  readonly file: string;
  readonly height: number;
  readonly colorScheme: "light" | "dark";
  /** Opens the view, and resolves when all of it is there. */
  readonly prepare: () => Promise<void>;
}

const width = 1_280;
const pictures: readonly Picture[] = [
  {
    file: "console.png",
    height: 540,
    colorScheme: "light",
    prepare: async () => {
      await open("#/logs?site=demo-shop");
      await page.locator(".field-entry summary", { hasText: "source" }).click();
      await page.getByText(/^of [\d,]+ lines$/).waitFor();
      await page.locator(".histogram-mark").first().waitFor();
    },
  },
  {
    file: "console-trace.png",
    height: 560,
    colorScheme: "dark",
    prepare: async () => {
      const [failed] = await ask("tracing/traces/errors", {
        site_ids: ["demo-shop"],
        action_name: "CheckoutController#create",
        pagination: { per_page: 1, order: "DESC", cursor: "Time" },
      });
      await open(`#/trace?id=${failed?.trace_id}`);
      await page.getByRole("heading", { name: "Log lines" }).waitFor();
      await page.getByRole("link", { name: "Open in the logs" }).waitFor();
    },
  },
  {
    file: "console-map.png",
    height: 690,
    colorScheme: "light",
    prepare: async () => {
      await open("#/map?site=demo-shop");
      await page.locator(".map-node").nth(6).waitFor();
    },
  },
];

test.each(pictures)("$file is of a view as it is", async ({ file, height, colorScheme, prepare }) => {
  await openContext({ viewport: { width, height }, colorScheme });
  await prepare();
  const made = await page.screenshot({ animations: "disabled" });
  expect(complaints).toEqual([]);
  const path = `docs/images/${file}`;
  if (process.env.PICTURES === "write") writeFileSync(path, made);
  expect(readSize(readFileSync(path))).toEqual({ width, height });
  expect(readSize(made)).toEqual({ width, height });
});

/** Pixels, of the header of a PNG. */
function readSize(png: Buffer): { readonly width: number; readonly height: number } {
  return { width: png.readUInt32BE(16), height: png.readUInt32BE(20) };
}
