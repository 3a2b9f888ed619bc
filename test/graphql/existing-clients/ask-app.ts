import type { createDemo } from "../../support/demo-server.ts";

type GraphqlServer = Pick<Awaited<ReturnType<typeof createDemo>>, "graphql">;

/** Asks for fields of the demo's app, as existing clients call a site. */
export async function askApp(fields: string, { graphql }: GraphqlServer) {
  const { data, errors = [] } = await graphql(`{ app(id: "demo-shop") { ${fields} } }`);
  return { app: (data?.app ?? {}) as Record<string, unknown>, errors };
}
