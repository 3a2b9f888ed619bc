// What is wrong with the documents of a folder, for operators: a client would learn it with each request.
import { type GraphQLSchema, parse, validate } from "graphql";

/** One line for each fault, with the file. */
export function findDocumentFaults(
  schema: GraphQLSchema,
  documents: ReadonlyMap<string, readonly string[]>,
): readonly string[] {
  return [...documents].flatMap(([file, texts]) =>
    texts.flatMap((text) => listFaults(schema, text).map((fault) => `${file}: ${fault}`)),
  );
}

function listFaults(schema: GraphQLSchema, text: string): readonly string[] {
  try {
    return validate(schema, parse(text)).map(({ message }) => message);
  } catch (error) {
    return [error instanceof Error ? error.message : String(error)];
  }
}
