// Lookups that read no store.
import type { Operation } from "./operation.ts";

/** Spec, "Token check result". Reaching `run` is the check. */
export const auth: Operation<undefined, { readonly message: string }> = {
  name: "auth",
  method: "GET",
  path: "/api/v2/auth",
  access: "token",
  parse: () => undefined,
  sites: () => [],
  run: async (_, { user }) => ({ message: `Authenticated as ${user}` }),
};
