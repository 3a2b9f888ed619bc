// Lookups that read no store.
import * as z from "zod";
import type { Operation } from "./runtime/operation.ts";

/** Spec, "Token check result". Reaching `run` is the check. */
export const auth: Operation<undefined, { readonly message: string }> = {
  name: "auth",
  method: "GET",
  path: "/api/v2/auth",
  access: "token",
  scope: "none",
  summary: "Whose token this is",
  description: "Answers 401 when the token is missing, unknown or expired.",
  request: z.unknown().transform(() => undefined),
  answer: z
    .object({
      message: z.string().meta({
        description: "Confirms the user of the token.",
        examples: ["Authenticated as ana"],
      }),
    })
    .meta({ id: "TokenCheck", description: "The result of a token check." }),
  sites: () => [],
  run: async (_, { user }) => ({ message: `Authenticated as ${user}` }),
};

interface Viewer {
  readonly user: string;
  readonly sites: readonly { readonly id: string; readonly sources: readonly string[] }[];
}

/** What the console opens with; the same is in GraphQL, which a server loads with its first query only. */
export const viewer: Operation<undefined, Viewer> = {
  name: "console_viewer",
  method: "GET",
  path: "/console/viewer",
  access: "token",
  scope: "none",
  summary: "Whose token this is, the sites that it may see, and their log sources",
  request: z.unknown().transform(() => undefined),
  answer: z.unknown(),
  sites: () => [],
  run: async (_, { user, sites }) => ({
    user,
    sites: [...sites].map(([id, { logs }]) => ({ id, sources: [...(logs?.sources.keys() ?? [])] })),
  }),
};
