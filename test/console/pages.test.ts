// The console as it is served: its own files and no others, and nothing in them that the policy would have to allow.
import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { describeSignIn } from "#src/server/console-sign-in.ts";
import { createPages } from "#src/server/pages.ts";
import { createDemo } from "../support/demo-server.ts";

const demo = await createDemo();
afterAll(() => demo.close());
const folder = new URL("../../src/console/", import.meta.url);
const open = (path: string, headers: Record<string, string> = {}) =>
  demo.server.fetch(`http://readout${path}`, { headers });
const served = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
  /\.(js|css|svg)$/.test(name),
);
const foreign = [
  "metrics/uplot.js",
  "metrics/uplot.css",
  "traces/normalise.js",
  "map/dagre.js",
  "sign-in/oauth4webapi.js",
];

describe("the console's page", () => {
  test("is served at / with any query and without a token", async () => {
    for (const path of ["/", "/?token=nobody"]) {
      const page = await open(path);
      expect(page.status).toBe(200);
      expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    }
  });

  test("answers HEAD without a body", async () => {
    const answer = await demo.server.fetch("http://readout/", { method: "HEAD" });
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    expect((await demo.server.fetch("http://readout/", { method: "POST" })).status).toBe(404);
  });

  test("has a content policy without exceptions", async () => {
    const policy = (await open("/")).headers.get("content-security-policy") ?? "";
    expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self'; /);
    expect(policy).toContain("form-action 'none'");
    expect(policy).toContain("frame-ancestors 'none'");
    expect(policy).toContain("require-trusted-types-for 'script'; trusted-types 'none'");
    expect(policy).not.toMatch(/unsafe|https?:|\*/);
  });

  test("has no inline script or style, and links to existing files", async () => {
    const html = await (await open("/")).text();
    expect(html).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/);
    const linked = [...html.matchAll(/(?:src|href)="(\/[^"]*)"/g)].map(([, target]) => target ?? "");
    expect(linked.length).toBeGreaterThan(5);
    for (const target of linked) {
      expect((await open(target, { accept: "text/html" })).status, target).toBe(200);
    }
  });
});

describe("where people sign in at identity providers", () => {
  const provider = (issuer: string) => ({ issuer, audience: ["a"], algorithms: [], typ: [], user: "sub" });
  const signIn = describeSignIn({
    publicUrl: "https://readout.example.com",
    jwtIssuers: [
      {
        ...provider("https://id.example.com/realms/ops"),
        sites: { claim: "s" },
        console: { client_id: "console", scope: "openid", resource: "urn:readout", origins: [] },
      },
      { ...provider("https://machines.example.com"), sites: { claim: "s" } },
      {
        ...provider("https://id.example.com:8443/"),
        discovery: "https://id.example.com:8443/d",
        sites: { claim: "s" },
        console: { client_id: "other", scope: "openid logs", origins: ["https://login.example.com"] },
      },
    ],
  });
  const find = createPages([], signIn);
  const openPage = async (path: string, headers = new Headers()) => {
    const page = await find(path, headers);
    if (page === undefined) throw new Error("no page");
    return { ...page, text: new TextDecoder().decode(page.body) };
  };

  test("the page may ask this server and their origins, and nothing else has changed", async () => {
    const policyOf = async (page: Promise<{ readonly headers: Readonly<Record<string, string>> }>) =>
      (await page).headers["Content-Security-Policy"];
    const plain = (await open("/")).headers.get("content-security-policy") ?? "";
    expect(await policyOf(openPage("/"))).toBe(
      plain.replace(
        "connect-src 'self'",
        "connect-src 'self' https://id.example.com https://id.example.com:8443 https://login.example.com",
      ),
    );
    for (const path of ["/docs", "/console/signed-in", "/console/app.js"])
      expect(await policyOf(openPage(path)), path).toContain("connect-src 'self';");
  });

  test("a browser that has the page learns of another policy", async () => {
    const tag = (await open("/")).headers.get("etag") ?? "";
    expect((await openPage("/", new Headers({ "if-none-match": tag }))).status).toBe(200);
  });

  test("the page is told of clients, and of one address to come back to", async () => {
    expect(JSON.parse((await openPage("/console/sign-in.json")).text)).toEqual({
      redirectUri: "https://readout.example.com/console/signed-in",
      providers: [
        {
          issuer: "https://id.example.com/realms/ops",
          discovery: "https://id.example.com/realms/ops/.well-known/openid-configuration",
          clientId: "console",
          scope: "openid",
          resource: "urn:readout",
        },
        {
          issuer: "https://id.example.com:8443/",
          discovery: "https://id.example.com:8443/d",
          clientId: "other",
          scope: "openid logs",
        },
      ],
    });
    expect(await (await open("/console/sign-in.json")).json()).toEqual({ providers: [] });
  });

  test("the page to come back to loads one module, which loads no other", async () => {
    const { text } = await openPage("/console/signed-in");
    expect([...text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, target]) => target)).toEqual([
      "/console/sign-in/take-answer.js",
    ]);
    expect((await openPage("/console/sign-in/take-answer.js")).text).not.toMatch(/\bimport\b/);
  });
});

describe("the console's files", () => {
  const types = {
    js: "text/javascript; charset=utf-8",
    css: "text/css; charset=utf-8",
    svg: "image/svg+xml",
  };

  test.each([...served, ...foreign])("%s", async (name) => {
    const file = await open(`/console/${name}`);
    expect(file.status).toBe(200);
    expect(file.headers.get("content-type")).toBe(types[name.split(".")[1] as keyof typeof types]);
    expect(file.headers.get("x-content-type-options")).toBe("nosniff");
    expect(file.headers.get("referrer-policy")).toBe("no-referrer");
    expect(file.headers.get("cache-control")).toBe("no-cache");
    expect((await file.text()).length).toBeGreaterThan(100);
  });

  /** Paths of what a module imports: at once, and when it is needed. */
  function listImports(name: string): { readonly atOnce: string[]; readonly later: string[] } {
    if (foreign.includes(name)) return { atOnce: [], later: [] };
    const text = readFileSync(new URL(name, folder), "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
    const find = (pattern: RegExp) =>
      [...text.matchAll(pattern)].map(([, target]) => posix.join(posix.dirname(name), target ?? ""));
    return {
      atOnce: find(/^(?:import|export)[^"';]*? from "([^"]+)";/gm),
      later: find(/\bimport\("([^"]+)"\)/g),
    };
  }

  test("import only served files", () => {
    const modules = served.filter((name) => name.endsWith(".js"));
    expect(modules).toContain("app.js");
    for (const name of modules) {
      const { atOnce, later } = listImports(name);
      for (const target of [...atOnce, ...later]) expect([...served, ...foreign], name).toContain(target);
    }
  });

  test("that the first view needs are all preloaded by the page, and no others", async () => {
    const html = await (await open("/")).text();
    const preloaded = [...html.matchAll(/modulepreload" href="\/console\/([^"]+)"/g)].map(
      ([, name]) => name ?? "",
    );
    const needed = new Set<string>();
    const collect = (name: string): void => {
      if (needed.has(name)) return;
      needed.add(name);
      listImports(name).atOnce.forEach(collect);
    };
    collect("app.js");
    collect("logs/logs.js");
    needed.delete("app.js");
    expect(preloaded.toSorted()).toEqual([...needed].toSorted());
  });

  test("never turn text into markup", () => {
    const markup =
      /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|eval\(/;
    for (const name of served.filter((one) => one.endsWith(".js"))) {
      expect(readFileSync(new URL(name, folder), "utf8"), name).not.toMatch(markup);
    }
  });

  test("are not sent again to a browser that has them", async () => {
    const first = await open("/console/app.js");
    const tag = first.headers.get("etag") ?? "";
    expect(tag).toMatch(/^W\/"[\w-]{27}"$/);
    const again = await open("/console/app.js", {
      "if-none-match": `"other", ${tag}`,
      "accept-encoding": "gzip",
    });
    expect([again.status, await again.text(), again.headers.get("etag")]).toEqual([304, "", tag]);
    expect(again.headers.get("content-security-policy")).toBe(first.headers.get("content-security-policy"));
    const statusFor = async (asked: string) =>
      (await open("/console/app.js", { "if-none-match": asked })).status;
    const strong = tag.replace("W/", "");
    for (const same of [strong, ` ${tag} ,"other"`, "*"])
      expect([same, await statusFor(same)]).toEqual([same, 304]);
    const others = ['"other"', `"${tag}`, `x${strong}`, strong.slice(0, -1), ""];
    for (const other of others) expect([other, await statusFor(other)]).toEqual([other, 200]);
  });

  test.each([
    "/console",
    "/console/",
    "/console/nope.js",
    "/console/index.html",
    "/console/uplot.d.ts",
    "/index.html",
    "/console/../pages.ts",
    "/console/..%2fpages.ts",
    "/console/%2e%2e/pages.ts",
    "/console/constructor",
    "//",
  ])("%s is none", async (path) => {
    const missing = await open(path);
    expect([missing.status, await missing.json()]).toEqual([404, { error: "Not found" }]);
  });
});
