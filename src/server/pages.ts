// What people open in a browser: the console, the documentation of the API and a place to try queries. Everything is
// served from here and nothing from elsewhere, under a policy that lets a page reach this server only; the console also the
// identity providers where people sign in. The pages hold no data, so they need no token; what they show is asked for with the
// reader's own.

import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { readOwn } from "../core/collections.ts";
import { isCodingAllowed, isMediaTypeNamed } from "../core/negotiation.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";
import { type ConsoleSignIn, printSignIn, signedInPath } from "./console-sign-in.ts";
import { buildOpenApi } from "./openapi.ts";

interface Page {
  /** 304 for a browser that has the page as it is. */
  readonly status: 200 | 304;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** The page at a path, or undefined where there is none. Keeps each page once plain and once compressed. */
export type FindPage = (path: string, headers: Pick<Headers, "get">) => Promise<Page | undefined>;

type Load = () => Promise<string | Uint8Array>;
interface PageSource {
  readonly type: keyof typeof contentTypes;
  readonly load: Load;
  readonly policy?: string;
  /** How long a browser need not ask again. */
  readonly fresh?: "max-age=3600";
}

const compress = promisify(gzip);
const { resolve } = createRequire(import.meta.url);

const buildPolicy = (more: Readonly<Record<string, string>> = {}): string =>
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

/**
 * The console shows what strangers wrote, so whatever would make markup of a text is an error of the browser's too. It asks this
 * server, and the identity providers where people sign in.
 */
function buildConsolePolicy(signIn: ConsoleSignIn | undefined): string {
  const origins = signIn === undefined ? [] : signIn.origins;
  return buildPolicy({
    "connect-src": ["'self'", ...origins].join(" "),
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
  });
}

/** The editor of GraphiQL writes its own style elements, and runs its languages in workers that it builds itself. */
const editorPolicy = buildPolicy({
  "style-src": "'self' 'unsafe-inline'",
  "font-src": "'self' data:",
  "worker-src": "blob:",
});

const contentTypes = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  json: "application/json; charset=utf-8",
  png: "image/png",
  svg: "image/svg+xml",
} as const;

/** A file beside the module that a package names to programs; its other files have no names. */
const findModule = (name: string, path: string): string => join(dirname(resolve(name)), path);

const consoleFolder = new URL("../console/", import.meta.url);

/** The console's files as they are, and what it shares with others. A path is one of these or none. */
function listConsolePages(signIn: ConsoleSignIn | undefined): Readonly<Record<string, PageSource>> {
  const file =
    (address: URL | string): Load =>
    () =>
      readFile(address);
  const own = readdirSync(consoleFolder, { recursive: true, encoding: "utf8" }).flatMap((name) => {
    const [, type] = /\.(js|css|svg)$/.exec(name) ?? [];
    const load = file(new URL(name, consoleFolder));
    return type === "js" || type === "css" || type === "svg" ? [[`/console/${name}`, { type, load }]] : [];
  });
  return {
    "/": {
      type: "html",
      load: file(new URL("index.html", consoleFolder)),
      policy: buildConsolePolicy(signIn),
    },
    ...Object.fromEntries(own),
    [signedInPath]: { type: "html", load: file(new URL("sign-in/signed-in.html", consoleFolder)) },
    "/console/sign-in.json": {
      type: "json",
      load: async () => printSignIn(signIn),
    },
    "/console/sign-in/oauth4webapi.js": { type: "js", load: file(resolve("oauth4webapi")) },
    "/console/traces/normalise.js": {
      type: "js",
      load: file(new URL("../tracing/spans/normalise-statement.js", import.meta.url)),
    },
    "/console/map/dagre.js": { type: "js", load: file(findModule("@dagrejs/dagre", "dagre.esm.js")) },
    "/console/metrics/uplot.js": { type: "js", load: file(resolve("uplot/dist/uPlot.esm.js")) },
    "/console/metrics/uplot.css": { type: "css", load: file(resolve("uplot/dist/uPlot.min.css")) },
  };
}

/** The pages of one configuration. */
export function createPages(operations: readonly Endpoint[], signIn: ConsoleSignIn | undefined): FindPage {
  const swagger =
    (file: string): Load =>
    () =>
      readFile(resolve(`swagger-ui-dist/${file}`));
  const text =
    (content: string): Load =>
    async () =>
      content;
  const graphiql =
    (part: keyof GraphiqlParts): Load =>
    async () =>
      (await splitGraphiql())[part];

  const fresh = "max-age=3600";
  const pages: Readonly<Record<string, PageSource>> = {
    ...listConsolePages(signIn),
    "/openapi.json": {
      type: "json",
      // The routes of older clients beside it are described for people alone.
      load: async () =>
        JSON.stringify(buildOpenApi(operations.filter(({ path }) => path.startsWith("/api/v2/")))),
    },
    "/docs": { type: "html", load: text(docsPage) },
    "/docs/start.js": { type: "js", load: text(docsStart), fresh },
    "/docs/swagger-ui.css": { type: "css", load: swagger("swagger-ui.css"), fresh },
    "/docs/swagger-ui-bundle.js": { type: "js", load: swagger("swagger-ui-bundle.js"), fresh },
    "/docs/favicon.png": { type: "png", load: swagger("favicon-32x32.png"), fresh },
    "/graphql": { type: "html", load: text(graphiqlPage), policy: editorPolicy },
    "/graphql/graphiql.css": { type: "css", load: graphiql("style"), fresh },
    "/graphql/graphiql.js": { type: "js", load: graphiql("script"), fresh },
    "/graphql/start.js": { type: "js", load: text(graphiqlStart) },
  };
  const loaded = new Map<string, Promise<Page>>();

  return async (path, headers) => {
    const known = readOwn(pages, path);
    if (known === undefined) return undefined;
    const zipped = isCodingAllowed(headers.get("accept-encoding"), "gzip");
    const key = `${path} ${zipped}`;
    const page = loaded.get(key) ?? readPage(known, zipped);
    loaded.set(key, page);
    // A file that cannot be read now may be readable later.
    page.catch(() => loaded.delete(key));
    const { headers: described, ...rest } = await page;
    const { ETag: tag = "", "Content-Type": _, "Content-Encoding": __, ...kept } = described;
    return isCurrentTag(tag, headers.get("if-none-match"))
      ? { status: 304, headers: { ...kept, ETag: tag }, body: emptyBody }
      : { ...rest, headers: described };
  };
}

const emptyBody = new Uint8Array();

/** Weak or not makes no difference here (RFC 9110, section 13.1.2). */
function isCurrentTag(tag: string, asked: string | null): boolean {
  const bare = (one: string) => one.trim().replace(/^W\//, "");
  return (asked ?? "").split(",").some((one) => one.trim() === "*" || bare(one) === bare(tag));
}

async function readPage({ type, load, policy: own, fresh }: PageSource, zipped: boolean): Promise<Page> {
  const content = Buffer.from(await load());
  const policy = own ?? buildPolicy();
  // A browser that has the page has to learn of another policy too.
  const tag = createHash("sha256").update(policy).update(content).digest("base64url").slice(0, 27);
  return {
    status: 200,
    body: zipped ? await compress(content) : content,
    headers: {
      "Content-Type": contentTypes[type],
      ...(zipped ? { "Content-Encoding": "gzip" } : {}),
      "Content-Security-Policy": policy,
      // Modules name each other by plain names, so a browser asks whether each is still what it has; usually it is.
      "Cache-Control": fresh ?? "no-cache",
      // Weak, since the compressed page is the same page.
      ETag: `W/"${tag}"`,
      Vary: "Accept, Accept-Encoding",
      "X-Content-Type-Options": "nosniff",
      // The page's address may hold a token.
      "Referrer-Policy": "no-referrer",
    },
  };
}

/**
 * Whether a GET of /graphql is a person's who opens it, and not a client's query. GraphiQL itself keeps what is typed in
 * the address, as `query`; a page that a browser opens could not send the header that a query by GET needs. Java's
 * HttpURLConnection names `text/html` too, so a token tells its queries.
 */
export function isGraphiqlRequest(headers: Pick<Headers, "get">): boolean {
  const isOpened = isMediaTypeNamed(headers.get("accept"), "text/html");
  return isOpened && !/^bearer\b/i.test(headers.get("authorization") ?? "");
}

const docsPage = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Readout: the API</title>
    <link rel="icon" type="image/png" href="/docs/favicon.png">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
    <script src="/docs/start.js"></script>
    <script src="/docs/swagger-ui-bundle.js" defer></script>
  </head>
  <body>
    <noscript>This page needs JavaScript. The document that it shows is <a href="/openapi.json">/openapi.json</a>.</noscript>
    <div id="docs"></div>
  </body>
</html>
`;

// Swagger UI is dark by a class alone, set before it is drawn: as the reader's system is, or as the console's theme was
// chosen. Its own validator badge would ask a server elsewhere.
const docsStart = `const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function paint() {
  const chosen = localStorage.getItem("readout.theme");
  document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : prefersDark.matches);
}
paint();
prefersDark.addEventListener("change", paint);
// The console's token, where this tab has shown the console: requests that are tried here carry it.
const token = sessionStorage.getItem("readout.token");
addEventListener("DOMContentLoaded", () => {
  const ui = SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#docs",
    deepLinking: true,
    validatorUrl: null,
    tryItOutEnabled: true,
    defaultModelsExpandDepth: 0,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    onComplete: () => token && ui.preauthorizeApiKey("bearer", token),
  });
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
    <script src="/graphql/start.js"></script>
  </body>
</html>
`;

// The console opens a query here by the address and hands its session on; its token is written into the headers, which
// are not kept: GraphiQL would put them where they outlive the tab. Without a query of the address or of an earlier visit
// it is told the first one, or it would open an empty tab beside that.
const graphiqlStart = `const asked = new URLSearchParams(location.search);
const first = ${JSON.stringify(`# Put your token into Headers,
# then press the round arrows
# to read the schema.
{
  sites {
    id
    sources
  }
}
`)};
YogaGraphiQL.renderYogaGraphiQL(document.querySelector("#root"), {
  title: "Readout",
  defaultQuery: first,
  query: asked.get("query") || localStorage.getItem("graphiql:query") || first,
  variables: asked.get("variables") ?? undefined,
  initialHeaders: JSON.stringify(
    { Authorization: "Bearer " + (sessionStorage.getItem("readout.token") ?? "") }, null, 2),
  shouldPersistHeaders: false,
});
`;

interface GraphiqlParts {
  readonly script: string;
  readonly style: string;
}

/** Yoga's GraphiQL is one page with everything in it; a strict policy wants its script and its style apart. */
async function splitGraphiql(): Promise<GraphiqlParts> {
  const { renderGraphiQL } = await import("@graphql-yoga/render-graphiql");
  const page = renderGraphiQL();
  const style = sliceBetween(page, "<style>", page.indexOf("</style>"));
  // All of the script but its last call, which `graphiqlStart` makes.
  const start = page.lastIndexOf("YogaGraphiQL.renderYogaGraphiQL(");
  return { style, script: sliceBetween(page, "<script>", start, page.indexOf("</style>")) };
}

function sliceBetween(page: string, opening: string, end: number, from = 0): string {
  const start = page.indexOf(opening, from);
  if (start === -1 || end < start) throw new Error("GraphiQL's page is not as expected");
  return page.slice(start + opening.length, end);
}
