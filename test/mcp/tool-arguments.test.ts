// Which site the arguments of a tool mean.
import { expect, test } from "vitest";
import type { Site } from "#src/access/sites.ts";
import { NotFound, Unprocessable } from "#src/core/errors.ts";
import { selectSite } from "#src/mcp/tool-arguments.ts";

const site = (id: string, environment?: string) => ({ id, name: "Shop", environment }) as Site;
const [production, staging, unnamed] = [site("a", "production"), site("b", "staging"), site("c")];

type Wanted = Partial<Parameters<typeof selectSite>[0]>;

function select(wanted: Wanted, sites: readonly Site[]): string {
  try {
    return selectSite(wanted as Parameters<typeof selectSite>[0], sites).id;
  } catch (error) {
    if (error instanceof NotFound) return "none";
    if (error instanceof Unprocessable) return "several";
    throw error;
  }
}

test.each<[string, Wanted, readonly Site[], string]>([
  ["the only one", {}, [production], "a"],
  ["the only one of the name, in any case", { app_name: "shop" }, [production], "a"],
  ["several of one name", { app_name: "shop" }, [production, staging], "several"],
  ["that of the environment", { app_name: "shop", app_environment: "Staging" }, [production, staging], "b"],
  ["none in another environment", { app_name: "shop", app_environment: "staging" }, [production], "none"],
  [
    "none where the id has another environment",
    { site_id: "a", app_environment: "staging" },
    [production],
    "none",
  ],
  [
    "one that has no environment",
    { app_name: "shop", app_environment: "production" },
    [unnamed, staging],
    "c",
  ],
  [
    "that of the environment before one that has none",
    { app_environment: "staging" },
    [unnamed, staging],
    "b",
  ],
])("%s", (_, wanted, sites, id) => {
  expect(select(wanted, sites)).toBe(id);
});
