// Queries are compiled as an optimisation: whatever is asked, the answer is the one that GraphQL's own executor gives.
import fc from "fast-check";
import { execute, parse } from "graphql";
import { afterAll, expect, test } from "vitest";
import { schema } from "#src/graphql/schema.ts";
import { createDemo } from "../support/demo-server.ts";
import { sampleRuns } from "../support/law-runs.ts";

const demo = await createDemo();
afterAll(() => demo.close());

const sources = new Map(["app", "nginx", "worker"].map((id) => [id, {}]));
const readout = {
  user: "demo",
  sites: ["demo-shop", "demo-blog"].map((id) => ({ id, logs: { sources } })),
  spendValues: () => {},
};

/** Fields that read no source, by type; where they lead, by name. */
const fields = {
  Query: { viewer: "Viewer", 'site(id: "demo-shop")': "Site", "app(id: $app)": "App", sites: "Site" },
  Viewer: { id: "", name: "", email: "", apps: "App" },
  App: { id: "", name: "", logs: "Logs" },
  Logs: { sources: "Source", 'source(id: "app")': "Source" },
  Source: { id: "", type: "", key: "" },
  Site: { id: "", sources: "" },
} as const satisfies Record<string, Record<string, string>>;
type Type = keyof typeof fields;

function draw(gen: fc.GeneratorValue): string {
  const pick = <T>(values: readonly T[]): T => gen(fc.constantFrom<T[]>, ...values);
  const fragments: { readonly name: string; readonly type: Type; text: string }[] = [];
  let directives = 0;
  const directive = (): string => {
    if (directives === 6 || !pick([true, false, false])) return "";
    directives += 1;
    return ` @${pick(["include", "skip"])}(if: ${pick(["$yes", "$no", "true", "false"])})`;
  };
  const select = (type: Type, depth: number): string =>
    Array.from({ length: pick([1, 2, 3]) }, () => one(type, depth)).join(" ");
  const one = (type: Type, depth: number): string => {
    const form = depth < 3 ? pick(["field", "field", "inline", "named", "again"]) : "field";
    if (form === "inline") return `... on ${type}${directive()} { ${select(type, depth + 1)} }`;
    const known = fragments.find((fragment) => fragment.type === type && fragment.text !== "");
    if (form === "again" && known !== undefined) return `...${known.name}${directive()}`;
    if (form === "named") {
      const fragment = { name: `F${fragments.length}`, type, text: "" };
      fragments.push(fragment);
      fragment.text = select(type, depth + 1);
      return `...${fragment.name}${directive()}`;
    }
    const [field, leadsTo] = pick(Object.entries<string>(fields[type]));
    const below = Object.keys(fields).find((name): name is Type => name === leadsTo);
    return `${field}${directive()}${below === undefined ? "" : ` { ${select(below, depth + 1)} }`}`;
  };
  const text = select("Query", 0);
  const named = fragments.map(({ name, type, text }) => `fragment ${name} on ${type} { ${text} }`);
  // Each variable is used, so that the document is valid.
  const used = "viewer { name } x: app(id: $app) { id @include(if: $yes) name @skip(if: $no) }";
  const plain = directives === 0 ? "x: app(id: $app) { id }" : used;
  const flags = directives === 0 ? "" : ", $yes: Boolean! = true, $no: Boolean! = false";
  return `query ($app: String! = "demo-blog"${flags}) { ${text} ${plain} } ${named.join(" ")}`;
}

test("a query is answered as GraphQL's own executor answers it", async () => {
  const runs = sampleRuns(120);
  let answered = 0;
  const law = fc.asyncProperty(fc.gen(), async (gen) => {
    const query = draw(gen);
    const { data, errors } = await demo.graphql(query);
    // Over one of the bounds.
    if (errors !== undefined) {
      expect(errors[0]?.message).toMatch(/limit/);
      return;
    }
    answered += 1;
    const meant = await execute({ schema, document: parse(query), contextValue: { readout } });
    expect(data).toEqual(JSON.parse(JSON.stringify(meant.data)));
  });
  await fc.assert(law, { numRuns: runs });
  expect(answered).toBeGreaterThan(runs / 4);
});
