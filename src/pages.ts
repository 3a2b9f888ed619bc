// What people open in a browser: the documentation of the API and a place to try queries. Everything is served from
// here and nothing from elsewhere, under a policy that lets a page reach this server only. The pages hold no data, so
// they need no token; what they show is asked for with the reader's own.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { buildOpenApi } from "./openapi.ts";
import type { Endpoint } from "./operations/operation.ts";

export interface Page {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** The page at a path, or undefined where there is none. Reads each file once. */
export type FindPage = (path: string, headers: Pick<Headers, "get">) => Promise<Page | undefined>;

type Load = () => Promise<string | Uint8Array>;

const compress = promisify(gzip);
const { resolve } = createRequire(import.meta.url);

const policy = (more: Readonly<Record<string, string>> = {}): string =>
  Object.entries({
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    ...more,
  })
    .map(([directive, sources]) => `${directive} ${sources}`)
    .join("; ");

/** The editor of GraphiQL writes its own style elements, and runs its languages in workers that it builds itself. */
const editorPolicy = policy({
  "style-src": "'self' 'unsafe-inline'",
  "font-src": "'self' data:",
  "worker-src": "blob:",
});

const types = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  json: "application/json; charset=utf-8",
  png: "image/png",
} as const;

export function createPages(operations: readonly Endpoint[]): FindPage {
  const swagger =
    (file: string): Load =>
    () =>
      readFile(resolve(`swagger-ui-dist/${file}`));
  const text =
    (content: string): Load =>
    async () =>
      content;
  let parts: Promise<GraphiqlParts> | undefined;
  const graphiql =
    (part: keyof GraphiqlParts): Load =>
    async () => {
      parts ??= splitGraphiql();
      return (await parts)[part];
    };

  const pages: Readonly<Record<string, { type: keyof typeof types; load: Load; policy?: string }>> = {
    "/openapi.json": { type: "json", load: async () => JSON.stringify(buildOpenApi(operations)) },
    "/docs": { type: "html", load: text(docsPage), policy: policy() },
    "/docs/start.js": { type: "js", load: text(docsStart) },
    "/docs/swagger-ui.css": { type: "css", load: swagger("swagger-ui.css") },
    "/docs/swagger-ui-bundle.js": { type: "js", load: swagger("swagger-ui-bundle.js") },
    "/docs/favicon.png": { type: "png", load: swagger("favicon-32x32.png") },
    "/graphql": { type: "html", load: text(graphiqlPage), policy: editorPolicy },
    "/graphql/graphiql.css": { type: "css", load: graphiql("style") },
    "/graphql/graphiql.js": { type: "js", load: graphiql("script") },
  };
  const loaded = new Map<string, Promise<Page>>();

  return async (path, headers) => {
    const known = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (known === undefined) return undefined;
    const zipped = /\bgzip\b/.test(headers.get("accept-encoding") ?? "");
    const key = `${path} ${zipped}`;
    const page = loaded.get(key) ?? load();
    loaded.set(key, page);
    // A file that cannot be read now may be readable later.
    page.catch(() => loaded.delete(key));
    return page;

    async function load(): Promise<Page> {
      const content = Buffer.from((await known?.load()) ?? "");
      return {
        body: zipped ? await compress(content) : content,
        headers: {
          "Content-Type": types[known?.type ?? "html"],
          ...(zipped ? { "Content-Encoding": "gzip" } : {}),
          "Content-Security-Policy": known?.policy ?? policy(),
          "Cache-Control": known?.type === "html" || known?.type === "json" ? "no-cache" : "max-age=3600",
          Vary: "Accept, Accept-Encoding",
          "X-Content-Type-Options": "nosniff",
          // The page's address may hold a token.
          "Referrer-Policy": "no-referrer",
        },
      };
    }
  };
}

/** Whether a GET of /graphql is a person's who opens it, and not a client's query. */
export function wantsGraphiql(headers: Pick<Headers, "get">, search: string): boolean {
  return /\btext\/html\b/.test(headers.get("accept") ?? "") && !/[?&]query=/.test(search);
}

const docsPage = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Readout: the API</title>
    <link rel="icon" type="image/png" href="/docs/favicon.png">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
    <script src="/docs/swagger-ui-bundle.js" defer></script>
    <script src="/docs/start.js" defer></script>
  </head>
  <body>
    <noscript>This page needs JavaScript. The document that it shows is <a href="/openapi.json">/openapi.json</a>.</noscript>
    <div id="docs"></div>
  </body>
</html>
`;

// Swagger UI's own validator badge would ask a server elsewhere.
const docsStart = `SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  validatorUrl: null,
  tryItOutEnabled: true,
  defaultModelsExpandDepth: 0,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
`;

const graphiqlPage = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Readout: GraphiQL</title>
    <link rel="icon" type="image/png" href="/docs/favicon.png">
    <link rel="stylesheet" href="/graphql/graphiql.css">
  </head>
  <body id="body" class="no-focus-outline">
    <noscript>This page needs JavaScript.</noscript>
    <div id="root"></div>
    <script src="/graphql/graphiql.js"></script>
  </body>
</html>
`;

interface GraphiqlParts {
  readonly script: string;
  readonly style: string;
}

const startingQuery = `# Write your token in the headers below, as { "Authorization": "Bearer …" }.
{
  sites {
    id
    sources
  }
}
`;

/** Yoga's GraphiQL is one page with everything in it; a strict policy wants its script and its style apart. */
async function splitGraphiql(): Promise<GraphiqlParts> {
  const { renderGraphiQL } = await import("@graphql-yoga/render-graphiql");
  const page = renderGraphiQL({
    title: "Readout",
    defaultQuery: startingQuery,
    headers: JSON.stringify({ Authorization: "Bearer " }, null, 2),
  });
  const style = between(page, "<style>", page.indexOf("</style>"));
  return {
    style,
    script: between(page, "<script>", page.lastIndexOf("</script>"), page.indexOf("</style>")),
  };
}

function between(page: string, opening: string, end: number, from = 0): string {
  const start = page.indexOf(opening, from);
  if (start === -1 || end < start) throw new Error("GraphiQL's page is not as expected");
  return page.slice(start + opening.length, end);
}
