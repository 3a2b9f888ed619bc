// Who asks: the token's user, its sites, and the site of a visual; no store is read.
import * as z from "zod";
import { NotFound } from "../core/errors.ts";
import type { Context, Operation } from "./runtime/operation.ts";

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

interface ViewedSite {
  readonly id: string;
  readonly sources: readonly string[];
  /** Whether it has deploys that the token may read. */
  readonly deploys: boolean;
}

function describeSite(id: string, { sites, hasScope }: Context): ViewedSite {
  const site = sites.get(id);
  const sources = [...(site?.logs?.sources.keys() ?? [])];
  return { id, sources, deploys: site?.traces !== undefined && hasScope?.("deploys") === true };
}

interface Viewer {
  readonly user: string;
  readonly sites: readonly ViewedSite[];
  /** After which the console need not wait for an answer. */
  readonly deadline_ms: number;
}

/** What the console opens with; most of it is in GraphQL, which a server loads with its first query only. */
export const viewer: Operation<undefined, Viewer> = {
  name: "console_viewer",
  method: "GET",
  path: "/console/viewer",
  access: "token",
  scope: "none",
  summary:
    "Whose token this is, the sites that it may see, their log sources, and whether it may read their deploys",
  request: z.unknown().transform(() => undefined),
  answer: z.unknown(),
  sites: () => [],
  run: async (_, context) => ({
    user: context.user,
    sites: [...context.sites.keys()].map((id) => describeSite(id, context)),
    deadline_ms: context.limits.deadline,
  }),
};

/** A visual answers everybody, and does not say whose it is; the console marks the deploys of its site. */
export const visualSite: Operation<{ readonly id: string }, ViewedSite> = {
  name: "console_visual_site",
  method: "GET",
  path: "/console/visuals/{id}/site",
  access: "token",
  scope: "none",
  summary: "The site of a saved visual, for those who may see it",
  request: z.object({ id: z.string() }),
  answer: z.unknown(),
  sites: ({ id }, visuals) => {
    const visual = visuals?.find(id);
    return visual === undefined ? [] : [visual.site];
  },
  run: async ({ id }, context) => {
    const visual = context.visuals?.find(id);
    if (visual === undefined) throw new NotFound();
    return describeSite(visual.site, context);
  },
};
