import { expect, test } from "vitest";
import { parseMeshrc } from "../../src/config/mesh-config.ts";

test.each([
  ["{}", "f.yaml: sources: is missing"],
  ["sources: 5", "f.yaml: sources: expected a list"],
  [
    "sources: *all",
    "f.yaml: an alias (*name) needs an anchor (&name) before it; text that begins with * needs quotes",
  ],
  ["[]", "f.yaml: expected keys with values"],
  [
    "sources: [{ name: 5, handler: x }]",
    "f.yaml: sources.0.name: expected text; put it in quotes\nf.yaml: sources.0.handler: expected keys with values",
  ],
])("says in our own words what is wrong with a file of Mesh: %s", (text, message) => {
  expect(() => parseMeshrc(text, "f.yaml")).toThrow(expect.objectContaining({ message }));
});
