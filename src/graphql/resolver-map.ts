// Resolvers of fields that a schema has from its text.
import { type GraphQLSchema, isObjectType } from "graphql";
import type { Resolvers } from "../operations/runtime/session.ts";

/** Gives fields their resolvers. */
export function setResolvers(schema: GraphQLSchema, resolvers: Resolvers): void {
  for (const [typeName, fields] of Object.entries(resolvers)) {
    const type = schema.getType(typeName);
    if (!isObjectType(type)) throw new Error(`no type ${typeName}`);
    for (const [name, resolve] of Object.entries(fields)) {
      const field = type.getFields()[name];
      if (field === undefined) throw new Error(`no field ${typeName}.${name}`);
      field.resolve = resolve;
    }
  }
}
