// The console as it is served: its own files and no others, and nothing in them that the policy would have to allow.
import { readdirSync, readFileSync } from "node:fs";
import { afterAll, describe, expect, test } from "vitest";
import { createDemo } from "../support/demo-server.ts";

const demo = await createDemo();
afterAll(() => demo.close());
const folder = new URL("../../src/console/", import.meta.url);
const open = (path: string, headers: Record<string, string> = {}) =>
  demo.server.fetch(`http://readout${path}`, { headers });
const served = readdirSync(folder).filter((name) => /\.(js|css|svg)$/.test(name));

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

describe("the console's files", () => {
  const types = {
    js: "text/javascript; charset=utf-8",
    css: "text/css; charset=utf-8",
    svg: "image/svg+xml",
  };

  test.each([...served, "uplot.js", "uplot.css", "normalise.js"])("%s", async (name) => {
    const file = await open(`/console/${name}`);
    expect(file.status).toBe(200);
    expect(file.headers.get("content-type")).toBe(types[name.split(".")[1] as keyof typeof types]);
    expect(file.headers.get("x-content-type-options")).toBe("nosniff");
    expect(file.headers.get("referrer-policy")).toBe("no-referrer");
    expect(file.headers.get("cache-control")).toBe("no-cache");
    expect((await file.text()).length).toBeGreaterThan(100);
  });

  test("import only served files", () => {
    const modules = served.filter((name) => name.endsWith(".js"));
    expect(modules).toContain("app.js");
    for (const name of modules) {
      const text = readFileSync(new URL(name, folder), "utf8");
      const imported = [...text.matchAll(/^(?:import|export)[^"';]*? from "([^"]+)";/gm)].map(
        ([, target]) => target,
      );
      for (const target of imported) {
        expect(target, name).toMatch(/^\.\/\w+\.js$/);
        expect([...served, "uplot.js", "normalise.js"], name).toContain(target?.slice(2));
      }
    }
  });

  test("are all preloaded by the page", async () => {
    const html = await (await open("/")).text();
    const preloaded = [...html.matchAll(/modulepreload" href="\/console\/([^"]+)"/g)].map(
      ([, name]) => name ?? "",
    );
    const modules = [...served, "uplot.js", "normalise.js"].filter(
      (name) => name.endsWith(".js") && name !== "app.js",
    );
    expect(preloaded.toSorted()).toEqual(modules.toSorted());
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
    ...[
      "/console",
      "/console/",
      "/console/nope.js",
      "/console/index.html",
      "/console/uplot.d.ts",
      "/index.html",
    ],
    ...[
      "/console/../pages.ts",
      "/console/..%2fpages.ts",
      "/console/%2e%2e/pages.ts",
      "/console/constructor",
      "//",
    ],
  ])("%s is none", async (path) => {
    const missing = await open(path);
    expect([missing.status, await missing.json()]).toEqual([404, { error: "Not found" }]);
  });
});
