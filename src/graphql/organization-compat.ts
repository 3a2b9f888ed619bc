// A few read-only fields that existing clients ask the same origin for before they read log lines: the apps of an
// organization and their log sources. An app is a site. There is one organization, so any slug names it.

import type { Site } from "../access/sites.ts";
import type { Resolvers } from "./session.ts";

export const typeDefs = /* GraphQL */ `
  extend type Query {
    "The site of that id; null when there is none that the token may see. For existing clients; see \`site\`."
    app("A \`site_id\`." id: String!): App
    "Whose token this is."
    viewer: Viewer!
    "The sites that the token may see. There is one organization, whatever the slug."
    organization("Any text." slug: String!): Organization!
  }
  "A site, as existing clients know it."
  type App {
    "The site's id, the \`site_id\` of every query."
    id: String!
    "As the configuration names it, else its id."
    name: String!
    "As the configuration says; null where it does not."
    environment: String
    "Always null: a site is configured, not created."
    createdAt: String
    "Always null, as \`createdAt\`."
    updatedAt: String
    "Its log sources."
    logs: AppLogs!
  }
  "The logs of a site."
  type AppLogs {
    "All of them, in the order of the configuration."
    sources: [AppLogSource!]!
    "The source of that id; null when there is none."
    source("A \`source_id\`." id: String!): AppLogSource
  }
  "A log source of a site."
  type AppLogSource {
    "The \`source_id\` of its lines."
    id: String!
    "The same."
    name: String!
    "Always \`custom\`: a source of the site's own."
    type: String!
    "Always \`JSON\`: what the structured body of a line is."
    fmt: String!
    "Always null: nothing is sent to a source here, so that none has a key."
    key: String
  }
  "The user of a token."
  type Viewer {
    "The token's \`user\` in the configuration."
    id: String!
    "Always null: a token has no address."
    email: String
    "The same as the id."
    name: String!
    "The one that there is."
    organizations: [Organization!]!
    "The sites that the token may see."
    apps: [App!]!
  }
  "What all sites belong to."
  type Organization {
    "The slug."
    id: String!
    "As it was asked for, else \`readout\`."
    slug: String!
    "The slug."
    name: String!
    "The sites that the token may see."
    apps: [App!]!
  }
`;

export const resolvers: Resolvers = {
  Query: {
    app: (_, { id }: { readonly id: string }, { readout }) => {
      const site = readout.sites.find((one) => one.id === id);
      return site && toApp(site);
    },
    viewer: (_, __, { readout }) => ({
      id: readout.user,
      email: null,
      name: readout.user,
      organizations: [toOrganization("readout", readout.sites)],
      apps: readout.sites.map(toApp),
    }),
    organization: (_, { slug }: { readonly slug: string }, { readout }) =>
      toOrganization(slug, readout.sites),
  },
  AppLogs: {
    source: ({ sources }: ReturnType<typeof toAppLogs>, { id }: { readonly id: string }) =>
      sources.find((source) => source.id === id) ?? null,
  },
};

function toOrganization(slug: string, sites: readonly Site[]) {
  return { id: slug, slug, name: slug, apps: sites.map(toApp) };
}

function toApp({ id, name = id, environment, logs }: Site) {
  return {
    id,
    name,
    environment: environment ?? null,
    createdAt: null,
    updatedAt: null,
    logs: toAppLogs(logs),
  };
}

function toAppLogs(logs: Site["logs"]) {
  const ids = [...(logs?.sources.keys() ?? [])];
  return { sources: ids.map((id) => ({ id, name: id, type: "custom", fmt: "JSON", key: null })) };
}
