// `readout schema`: the GraphQL schema of the operations and their links, as SDL. What a `.meshrc.yaml` adds to it
// depends on its sources; introspection of a running server shows it.
import { parseArgs } from "node:util";
import { lexicographicSortSchema, printSchema } from "graphql";
import { toErrorMessage } from "../core/errors.ts";
import { schema } from "../graphql/schema.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout schema

Prints the GraphQL schema that /graphql serves, without the sources of your own.
`;

export async function run(args: readonly string[], shell: Shell): Promise<number> {
  try {
    parseArgs({ args: [...args], options: {} });
  } catch (error) {
    return printUsageError(`schema: ${toErrorMessage(error)}`, usage, shell);
  }
  shell.out(`${printSchema(lexicographicSortSchema(schema))}\n`);
  return exitCodes.done;
}
