// Scopes: what a token may be used for. Each operation needs one, and some forms of an answer need another beside it.

/** In the order of the documentation. */
export const scopes = [
  "logs",
  "tracing",
  "metrics",
  "kubernetes",
  "deploys",
  "graphql",
  "export",
  "tail",
  "mcp",
] as const;

export type Scope = (typeof scopes)[number];
