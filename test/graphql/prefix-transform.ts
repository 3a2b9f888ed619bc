// A transform for Mesh that gives the types of a source a prefix, as the package for this does. Mesh imports it by its path.
import { buildSchema, type GraphQLSchema, isSpecifiedScalarType, printSchema } from "graphql";

interface Options {
  readonly config: { readonly prefix: string; readonly bare: boolean };
}

export default class PrefixTransform {
  readonly #prefix: string;
  /** How Mesh calls transforms that change the schema of a source itself. */
  readonly noWrap: boolean;

  constructor({ config }: Options) {
    this.#prefix = config.prefix;
    this.noWrap = config.bare;
  }

  transformSchema(schema: GraphQLSchema): GraphQLSchema {
    const names = Object.values(schema.getTypeMap())
      .filter((type) => !type.name.startsWith("__") && !isSpecifiedScalarType(type))
      .filter((type) => type !== schema.getQueryType())
      .map(({ name }) => name);
    const pattern = new RegExp(`\\b(?:${names.join("|")})\\b`, "g");
    return buildSchema(printSchema(schema).replaceAll(pattern, (name) => this.#prefix + name));
  }
}
