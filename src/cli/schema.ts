// `readout schema`: the GraphQL schema of the operations and their links, as SDL. What a `.meshrc.yaml` adds to it
// depends on its sources; introspection of a running server shows it.
import { parseArgs } from "node:util";
import { lexicographicSortSchema, printSchema } from "graphql";
import { toErrorMessage } from "../core/errors.ts";
import { schema } from "../graphql/schema.ts";
import { printSubgraph } from "../graphql/subgraph.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout schema [--subgraph]

Prints the GraphQL schema that /graphql serves, without the sources of your own.

      --subgraph           as a subgraph of Federation 2, without the fields for existing clients
`;

export async function run(args: readonly string[], shell: Shell): Promise<number> {
  let isSubgraph: boolean;
  try {
    const { values } = parseArgs({ args: [...args], options: { subgraph: { type: "boolean" } } });
    isSubgraph = values.subgraph === true;
  } catch (error) {
    return printUsageError(`schema: ${toErrorMessage(error)}`, usage, shell);
  }
  shell.out(isSubgraph ? await printSubgraph(schema) : `${printSchema(lexicographicSortSchema(schema))}\n`);
  return exitCodes.done;
}
