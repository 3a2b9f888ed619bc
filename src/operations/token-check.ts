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
