// `readout init` without a network but loopback: the command, its file, and every way in which none is written.
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseConfig } from "#src/config/config.ts";
import { openFakePrometheus } from "../support/prometheus/scripted-server.ts";
import { openScriptedSource, sendJson } from "../support/scripted-http-source.ts";

import { fakes, folder, init, prepareInitTests, ref, serve, world, written } from "./init-harness.ts";

prepareInitTests();

describe("readout init", () => {
  test("writes a file, prints its token once, and checks it", async () => {
    const { url } = await serve(["filebeat-2026.11.20", "filebeat-2026.11.21"], ["logs-app-default"]);
    const { code, out, err } = await init(["--elastic", url, "--user", "ana"]);
    expect([code, err]).toEqual([0, ""]);
    expect(readdirSync(folder)).toEqual(["r.yaml"]);
    const [, token = ""] = /\n {2}(rdt_\S{43})\n/.exec(out) ?? [];
    expect(token).not.toBe("");
    expect(out.split(token)).toHaveLength(2);
    expect(written()).not.toContain(token);
    expect(written()).toContain('filebeat: { index: "filebeat-*", layout: ecs }');
    expect(written()).toContain('app: { index: "logs-app-default", layout: ecs }');
    expect(out).toMatch(/whoever holds it reads as ana.*Tokens {4}1.*0 problems/s);
  });

  test("prints commands that read what it has written, and run no other package", async () => {
    const { url } = await serve(["filebeat-2026.11.20"]);
    for (const [name, word] of [
      ["other.yaml", join(folder, "other.yaml")],
      ["it's mine.yaml", `'${join(folder, "it'\\''s mine.yaml")}'`],
    ] as const) {
      const { out } = await init(["--out", join(folder, name), "--elastic", url]);
      expect(out).toContain(
        `then \`npx --no-install readout serve --config ${word}\`. What \`npx --no-install readout check --config ${word}\` says`,
      );
    }
  });

  test("proposes a few patterns for hundreds of indices and reads mappings by pattern", async () => {
    const names = Array.from({ length: 400 }, (_, at) => `tenant${at % 40}-app-2026.11.${10 + (at % 20)}`);
    const fake = await serve(names);
    const { code } = await init(["--elastic", fake.url]);
    expect(code).toBe(0);
    expect(written().match(/index:/g)?.length).toBe(40);
    expect(fake.requests.filter(({ path }) => /tenant\d+-app-2026/.test(path))).toEqual([]);
  });

  test("omits and names what it may not read; --index helps where it may not list", async () => {
    const { url } = await serve(["open-2026.11.20", "secret-2026.11.20"], [], /^\/secret/);
    const { code, out } = await init(["--elastic", url]);
    expect(code).toBe(0);
    expect(out).toContain("secret-*: its mapping may not be read (it needs view_index_metadata, ");
    expect(written()).not.toMatch(/^[^#]*secret/m);
    const closed = await serve(["open-2026.11.20"], [], /^\/_resolve/);
    const blind = await init(["--elastic", closed.url, "--force"]);
    expect(blind.out).toContain("may not be listed: name those that may be read with --index");
    await init(["--elastic", closed.url, "--force", "--index", "open-*"]);
    expect(written()).toContain('open: { index: "open-*", layout: ecs }');
  });

  test("proposes one site over several clusters", async () => {
    const [old, next] = await Promise.all([
      serve(["app-2026.11.20", "nginx-2026.11.20"]),
      serve(["app-2026.11.21", "audit-2026.11.21"]),
    ]);
    const { code, out } = await init(["--elastic", old.url, "--elastic", next.url]);
    expect(code, out).toBe(0);
    const { backends, sites } = parseConfig(written(), "r.yaml", world);
    expect(Object.keys(backends)).toEqual(["elk", "elk-2"]);
    const place = (backend: string, index: string) => ({ backend, index, layout: "ecs" });
    expect(sites.main?.logs).toEqual({
      sources: {
        app: { backends: [place("elk", "app-*"), place("elk-2", "app-*")] },
        nginx: place("elk", "nginx-*"),
        audit: place("elk-2", "audit-*"),
      },
    });
    expect((await init(["--elastic", old.url, "--elastic", old.url, "--force"])).code).toBe(2);
  });

  test("keeps an existing file without --force", async () => {
    const { url } = await serve(["app-2026.11.20"]);
    writeFileSync(join(folder, "r.yaml"), "mine\n");
    const kept = await init(["--elastic", url]);
    expect([kept.code, written()]).toEqual([1, "mine\n"]);
    expect(kept.err).toMatch(/r\.yaml is there already; --force replaces it/);
    expect((await init(["--elastic", url, "--force"])).code).toBe(0);
    expect(written()).toContain("app-*");
    expect(readdirSync(folder)).toEqual(["r.yaml"]);
  });

  test("sends credentials and writes only references to them", async () => {
    const seen: (string | undefined)[] = [];
    const fake = await serve(["app-2026.11.20"]);
    const watched = await openScriptedSource((response, request, body) => {
      seen.push(request.headers.authorization);
      void fetch(fake.url + (request.url ?? ""), {
        method: request.method ?? "GET",
        ...(body && { body }),
      }).then(async (answer) => sendJson(response, await answer.text(), answer.status));
    });
    fakes.push(watched);
    const env = { ELASTIC_USERNAME: "elastic", ELASTIC_PASSWORD: "hunter2", OTHER: "s3cret" };
    const { code, out } = await init(["--elastic", watched.url], env);
    expect([code, new Set(seen)]).toEqual([0, new Set([`Basic ${btoa("elastic:hunter2")}`])]);
    expect(written()).toContain(
      `auth: { username: "${ref("ELASTIC_USERNAME")}", password: "${ref("ELASTIC_PASSWORD")}" }`,
    );
    seen.length = 0;
    await init(["--elastic", watched.url, "--force", "--elastic-api-key", ref("OTHER")], env);
    expect(new Set(seen)).toEqual(new Set(["ApiKey s3cret"]));
    expect(written()).toContain(`auth: { api_key: "${ref("OTHER")}" }`);
    expect(written() + out).not.toMatch(/hunter2|s3cret/);
  });

  test.each<[string, string[], RegExp]>([
    ["nothing to look at", [], /--elastic, --prometheus or both/],
    ["no address", ["--elastic", "localhost:9200"], /--elastic: expected an http/],
    [
      "a password in the address",
      ["--elastic", "http://u:hunter2@h"],
      /--elastic: expected an address without user and password/,
    ],
    ["a query in the address", ["--prometheus", "http://h/?a=1"], /--prometheus: .*without a query/],
    ["a literal", ["--elastic", "http://h", "--elastic-api-key", "hunter2"], /expected a reference/],
    ["half of a pair", ["--elastic", "http://h", "--elastic-username", "u"], /belong together/],
    [
      "two ways",
      ["--elastic", "http://h", "--elastic-api-key", ref("A"), "--elastic-bearer", ref("B")],
      /one way to authenticate/,
    ],
    ...[
      ["a slash", "http://h", "http://h/"],
      ["a path's slash", "https://h/es", "https://h/es/"],
      ["the default port", "http://h", "http://h:80"],
      ["upper case", "https://h:9200", "HTTPS://H:9200"],
    ].map(([what = "", ...both]): [string, string[], RegExp] => [
      `one cluster in two spellings, by ${what}`,
      both.flatMap((url) => ["--elastic", url]),
      /--elastic: one address is there twice/,
    ]),
    ["a site that is no name", ["--elastic", "http://h", "--site", "a b"], /--site/],
    ["a word too many", ["--elastic", "http://h", "x"], /x/],
  ])("refuses wrong arguments: %s", async (_, args, complaint) => {
    const { code, out, err } = await init(args);
    expect([code, out, readdirSync(folder)]).toEqual([2, "", []]);
    expect(err).toMatch(complaint);
    expect(err).not.toContain("hunter2");
  });

  test("writes nothing when a source is unreachable, refuses, is another product, or is slow", async () => {
    const { url } = await serve(["app-2026.11.20"]);
    const refusing = await openScriptedSource((response) => sendJson(response, { error: "no" }, 401));
    const strange = await openScriptedSource((response) => response.end("<html>"));
    const silent = await openScriptedSource(() => {});
    fakes.push(refusing, strange, silent);
    const gone = await openScriptedSource(() => {});
    await gone.close();
    for (const [args, complaint] of [
      [["--elastic", url, "--prometheus", gone.url], /^--prometheus http\S+: unreachable: /],
      [["--elastic", gone.url], /^--elastic http\S+: unreachable: /],
      [["--elastic", refusing.url], /^--elastic http\S+: denied: /],
      [
        ["--elastic", strange.url],
        /^--elastic http\S+: malformed: GET \/ was answered with status 200 by something else/,
      ],
      [["--prometheus", strange.url], /^--prometheus http\S+: malformed: /],
      [["--elastic", silent.url], /^--elastic http\S+: it takes too long: /],
    ] as const) {
      const { code, out, err } = await init(args, {}, args[1] === silent.url ? 200 : undefined);
      expect([args, code, out, readdirSync(folder)]).toEqual([args, 1, "", []]);
      expect(err).toMatch(complaint);
      expect(err).toMatch(/\nNothing was written\.\n$/);
    }
  });

  test("reports a variable that is not set and a folder that does not exist", async () => {
    const unset = await init(["--elastic", "http://h", "--elastic-api-key", ref("NO_SUCH")]);
    expect([unset.code, readdirSync(folder)]).toEqual([1, []]);
    expect(unset.err).toContain("NO_SUCH");
    const { url } = await serve(["app-2026.11.20"]);
    const nowhere = await init(["--elastic", url, "--out", join(folder, "a/b/r.yaml")]);
    expect([nowhere.code, nowhere.err, readdirSync(folder)]).toEqual([
      1,
      `${join(folder, "a/b/r.yaml")}: cannot be written (ENOENT)\n`,
      [],
    ]);
  });

  test("writes a file for Prometheus alone", async () => {
    const fake = await openFakePrometheus({});
    fakes.push(fake);
    const { code, out } = await init(["--prometheus", fake.url]);
    expect(out).toContain("Its sites:\n  main:");
    expect(code).toBe(0);
    expect(written()).not.toContain("elastic");
  });

  test("writes a file for several Prometheus servers", async () => {
    const servers = await Promise.all([openFakePrometheus({}), openFakePrometheus({})]);
    fakes.push(...servers);
    const { code } = await init(servers.flatMap(({ url }) => ["--prometheus", url]));
    expect(code).toBe(0);
    for (const [at, { url }] of servers.entries())
      expect(written()).toContain(`  prom${at === 0 ? "" : "-2"}:\n    kind: prometheus\n    url: "${url}"`);
  });
});
