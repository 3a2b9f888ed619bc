// The schema that existing clients know, as a list of facts in `schema-facts.txt`: types, fields, arguments and references.
import { readFileSync } from "node:fs";
import { buildSchema, type GraphQLSchema, printSchema } from "graphql";

const facts = readFileSync(new URL("schema-facts.txt", import.meta.url), "utf8");

/** Types of ours have these names already, so that the ones of existing clients have others. */
const renamed = ["LogLine", "Point", "Series", "Timeseries"];

export function buildKnownSchema(): GraphQLSchema {
  const text = facts
    .split(/\n(?=\S)/)
    .map((block) => {
      const [head = "", ...members] = block.trimEnd().split("\n");
      const [kind, name, ...interfaces] = head.split(" ");
      if (kind === "scalar") return head;
      if (kind === "union") return `union ${name} = ${members.map((one) => one.trim()).join(" | ")}`;
      const implemented = interfaces.length === 0 ? "" : ` implements ${interfaces.join(" & ")}`;
      return `${kind} ${name}${implemented} {\n${members.join("\n")}\n}`;
    })
    .join("\n");
  return buildSchema(text);
}

/** Ours with the names that existing clients know. */
export function renameTypes(schema: GraphQLSchema): GraphQLSchema {
  let text = printSchema(schema);
  for (const name of renamed) {
    text = text.replace(new RegExp(`\\b${name}\\b`, "g"), `Our${name}`);
    text = text.replace(new RegExp(`\\bApp${name}\\b`, "g"), name);
  }
  return buildSchema(text);
}
