// Links between domains. They stand in the telemetry schema itself and not in `.meshrc.yaml`: a link is resolved
// beside the rows that it starts from, so it needs no `selectionSet`, which would make Mesh stitch a single source,
// and with a second source it is still one delegation. Each link is batched: one request to a source a level.
import { extendSchema, type GraphQLSchema, isObjectType, parse } from "graphql";
import * as apps from "./apps.ts";
import type { Resolvers } from "./session.ts";

const typeDefs = /* GraphQL */ `
  extend type Query {
    "The sites that the token may see."
    sites: [Site!]
    "One of them; null when there is none of that id."
    site(id: String!): Site
  }
  "What a token gives access to."
  type Site {
    id: String!
    "The \`source_ids\` of its logs."
    sources: [String!]
  }
`;

const resolvers: Resolvers = {
  Query: {
    sites: (_, __, { readout }) => readout.sites.map(({ id }) => ({ id })),
    site: (_, { id }: { readonly id: string }, { readout }) =>
      readout.sites.some((site) => site.id === id) ? { id } : null,
  },
  Site: {
    sources: ({ id }: { readonly id: string }, _, { readout }) => [
      ...(readout.sites.find((site) => site.id === id)?.logs?.sources.keys() ?? []),
    ],
  },
};

/** The schema with the links, and with the fields that existing clients expect. */
export function addLinks(schema: GraphQLSchema): GraphQLSchema {
  const extended = extendSchema(schema, parse(`${apps.typeDefs}\n${typeDefs}`));
  for (const [typeName, fields] of [...Object.entries(apps.resolvers), ...Object.entries(resolvers)]) {
    const type = extended.getType(typeName);
    if (!isObjectType(type)) throw new Error(`no type ${typeName}`);
    for (const [name, resolve] of Object.entries(fields)) {
      const field = type.getFields()[name];
      if (field === undefined) throw new Error(`no field ${typeName}.${name}`);
      field.resolve = resolve;
    }
  }
  return extended;
}
