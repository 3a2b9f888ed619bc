// The schema of a visual file, and the directory as its files change.
import { mkdtempSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createMemoryMetrics } from "#resolvers/memory/stores/metric-store.ts";
import { createAuthenticator } from "#src/access/auth.ts";
import type { Site } from "#src/access/sites.ts";
import { run } from "#src/cli/new-visual.ts";
import { defaults } from "#src/config/schema.ts";
import { ConfigError } from "#src/core/errors.ts";
import { fromMillis } from "#src/core/time.ts";
import { operations } from "#src/operations/index.ts";
import { checkVisual } from "#src/operations/metrics/visuals.ts";
import { createServer, type ServedConfig } from "#src/server/server.ts";
import type { LogEvent } from "#src/store/backend.ts";
import type { MetricStore } from "#src/store/metrics.ts";
import { createTelemetry } from "#src/telemetry/telemetry.ts";
import { generateVisualId, readVisual } from "#src/visuals/visual.ts";
import { openVisualDirectory, type VisualDirectory } from "#src/visuals/visual-directory.ts";
import { createShell, toInstant } from "../support/fake-shell.ts";

const id = "AAAAAAAAAAAAAAAAAAAAAA";
const base = Date.UTC(2026, 0, 15, 10);
const good = `
id: ${id}
title: CPU
type: line
site: shop
range: 24h
select: [{ name: cpu, tags: {}, field: gauge }]
`;

describe("visual file", () => {
  const issuesOf = (text: string) => {
    try {
      readVisual(text, "cpu.yaml", checkVisual);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      return error.issues.map(({ path, message }) => `${path}: ${message}`);
    }
    return [];
  };

  test("parses title, type, site, range and query", () => {
    expect(readVisual(`${good}description: of all\nresolution: hourly\n`, "cpu.yaml", checkVisual)).toEqual({
      id,
      title: "CPU",
      description: "of all",
      type: "line",
      site: "shop",
      range: 86_400_000,
      query: { resolution: "hourly", select: [{ name: "cpu", tags: {}, field: "gauge" }] },
    });
  });

  test("parses a fixed range", () => {
    const fixed = good.replace("range: 24h", "from: '2026-01-01T00:00:00Z'\nto: '2026-01-02T00:00:00Z'");
    expect(readVisual(fixed, "cpu.yaml", checkVisual).range).toEqual({
      from: "2026-01-01T00:00:00Z",
      to: "2026-01-02T00:00:00Z",
    });
  });

  test.each([
    ["a short id", good.replace(id, "short"), ["id: expected an id as `readout visual new` makes it"]],
    ["no id", good.replace(/id: .*/, ""), [expect.stringMatching(/^id: /)]],
    ["a misspelt type", good.replace("line", "lines"), [expect.stringMatching(/did you mean "line"\?$/)]],
    ["another type", good.replace("line", "pie"), ["type: expected line, area, bar, number or table"]],
    ["another key", `${good}token: x\n`, [expect.stringContaining("token")]],
    ["no range", good.replace("range: 24h", ""), ["range: expected either `range`, or `from` and `to`"]],
    [
      "two ranges",
      `${good}from: '2026-01-01T00:00:00Z'\n`,
      ["range: expected either `range`, or `from` and `to`"],
    ],
    [
      "half a range",
      good.replace("range: 24h", "to: '2026-01-01T00:00:00Z'"),
      [expect.stringMatching(/^range: /)],
    ],
    ["no length", good.replace("24h", "0h"), ["range: expected a duration such as 90m, 24h or 7d"]],
    [
      "times that are none",
      good.replace("range: 24h", "from: '2026-02-30T00:00:00Z'\nto: yesterday"),
      [expect.stringMatching(/^from: /), expect.stringMatching(/^to: /)],
    ],
    [
      "a table without groups",
      good.replace("line", "table"),
      [expect.stringMatching(/^group_by: a table has rows/)],
    ],
    [
      "a line with groups",
      `${good}group_by: [Name]\n`,
      [expect.stringMatching(/^group_by: a line has series/)],
    ],
    ["no selectors", good.replace(/select.*/, ""), [expect.stringMatching(/^select: is required/)]],
    [
      "a wrong field",
      good.replace("gauge", "gouge"),
      [expect.stringMatching(/^select\.0\.field: expected /)],
    ],
    [
      "a wrong resolution",
      `${good}resolution: SECONDLY\n`,
      [expect.stringMatching(/^resolution: expected /)],
    ],
    [
      "an end before its beginning",
      good.replace("range: 24h", "from: '2026-01-02T00:00:00Z'\nto: '2026-01-01T00:00:00Z'"),
      ["from: is later than to"],
    ],
    ["no YAML", "a: [", [expect.stringMatching(/^: /)]],
    ["an alias without an anchor", good.replace("CPU", "*cpu"), [expect.stringMatching(/^: an alias /)]],
    [
      "too many aliases",
      `${good}description: &a [1]\nb: [${"*a, ".repeat(101)}]\n`,
      [": too many or too deeply nested values"],
    ],
    ["a key twice", `${good}title: CPU\n`, [": duplicate key"]],
    ["nothing", "", [expect.stringMatching(/^: /)]],
    ["a list", "- 1", [expect.stringMatching(/^: /)]],
  ])("refuses %s with its path", (_, text, issues) => {
    expect(issuesOf(text)).toEqual(issues);
  });

  test("generates ids of 128 random bits", () => {
    const ids = Array.from({ length: 1_000 }, generateVisualId);
    expect(new Set(ids).size).toBe(1_000);
    for (const one of ids) expect(Buffer.from(one, "base64url")).toHaveLength(16);
  });
});

describe("visual directory", () => {
  let folder: string;
  let gallery: VisualDirectory | undefined;
  let logged: LogEvent[];
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "readout-visuals-"));
    logged = [];
  });
  afterEach(() => {
    gallery?.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const write = (file: string, text: string) => writeFileSync(join(folder, file), text);
  const open = async (over: object = {}) => {
    const log = (event: LogEvent) => logged.push(event);
    gallery = await openVisualDirectory({
      folder: () => folder,
      check: checkVisual,
      log,
      deadline: () => 60_000,
      interval: 5,
      ...over,
    });
    return gallery;
  };
  const other = "BBBBBBBBBBBBBBBBBBBBBB";

  test("finds visuals by their exact id only", async () => {
    write("cpu.yaml", good);
    write("notes.txt", good.replace(id, other));
    write(".hidden.yaml", good.replace(id, other));
    const { find } = await open();
    expect(find(id)?.title).toBe("CPU");
    for (const near of ["", id.slice(1), `${id}A`, id.toLowerCase(), other, "{id}", "..", `${id}/`]) {
      expect(find(near), near).toBeUndefined();
    }
  });

  test("picks up new, changed, renamed and deleted files", async () => {
    const { find } = await open();
    expect(find(id)).toBeUndefined();
    write("cpu.yaml", good);
    await expect.poll(() => find(id)?.title).toBe("CPU");
    write("cpu.yaml", good.replace("CPU", "Processor time"));
    await expect.poll(() => find(id)?.title).toBe("Processor time");
    renameSync(join(folder, "cpu.yaml"), join(folder, "OTHER.YML"));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(find(id)?.title).toBe("Processor time");
    unlinkSync(join(folder, "OTHER.YML"));
    await expect.poll(() => find(id)).toBeUndefined();
    rmSync(folder, { recursive: true });
    await expect.poll(() => logged.map(({ message }) => message)).toEqual(["visuals cannot be read"]);
  });

  test("logs an invalid file once and publishes the others", async () => {
    write("a.yaml", good);
    write("b.yaml", good.replace(id, other).replace("gauge", "gouge"));
    const { find } = await open();
    expect(find(id)).toBeDefined();
    expect(find(other)).toBeUndefined();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(logged).toEqual([
      expect.objectContaining({
        message: "visual not published",
        file: join(folder, "b.yaml"),
        reason: expect.stringContaining("b.yaml: select.0.field"),
      }),
    ]);
    write("b.yaml", good.replace(id, other));
    await expect.poll(() => find(other)).toBeDefined();
  });

  test("publishes the first of two files with one id and logs the second", async () => {
    write("a.yaml", good);
    write("b.yaml", good.replace("CPU", "Copy"));
    const { find } = await open();
    expect(find(id)?.title).toBe("CPU");
    expect(logged).toEqual([
      expect.objectContaining({
        file: join(folder, "b.yaml"),
        reason: `${join(folder, "b.yaml")}: another file has its id`,
      }),
    ]);
    expect(JSON.stringify(logged)).not.toContain(id);
  });

  test("shares one computation between concurrent requests and does not cache a failure", async () => {
    write("a.yaml", good);
    const { find, createAnswerCache } = await open({ cacheFor: 3_600_000 });
    const share = createAnswerCache();
    const visual = find(id);
    if (visual === undefined) throw new Error("not published");
    let computed = 0;
    const compute = async () => {
      computed += 1;
      await new Promise((resolve) => setTimeout(resolve, 10));
      if (computed === 1) throw new Error("source is down");
      return ["{}"];
    };
    const first = await Promise.allSettled([share(visual, compute), share(visual, compute)]);
    expect([computed, ...first.map(({ status }) => status)]).toEqual([1, "rejected", "rejected"]);
    const [a, b] = await Promise.all([share(visual, compute), share(visual, compute)]);
    expect(a).toBe(b);
    expect(await share(visual, compute)).toBe(a);
    expect(computed).toBe(2);
  });

  test("fails all waiting requests with a timeout when the computation is too slow", async () => {
    write("a.yaml", good);
    const { find, createAnswerCache } = await open({ deadline: () => 10 });
    const share = createAnswerCache();
    const visual = find(id);
    if (visual === undefined) throw new Error("not published");
    const compute = (signal: AbortSignal) =>
      new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const late = { name: "BackendError", failure: "timeout", limit: "deadline" };
    await expect(share(visual, compute)).rejects.toMatchObject(late);
  });

  test("caches an answer and computes it again after expiry", async () => {
    write("a.yaml", good);
    const { find, createAnswerCache } = await open({ cacheFor: 1 });
    const share = createAnswerCache();
    const visual = find(id);
    if (visual === undefined) throw new Error("not published");
    const compute = async () => ["{}"];
    const first = await share(visual, compute);
    await expect.poll(() => share(visual, compute)).not.toBe(first);
  });

  test("shares no answer between configurations, and the old one lives until its computation is over", async () => {
    write("cpu.yaml", good);
    const visuals = await open({ cacheFor: 3_600_000 });
    const begun = Promise.withResolvers<void>();
    const gate = Promise.withResolvers<void>();
    const configure = (value: number, wait = async () => {}): ServedConfig => {
      const metrics = createMemoryMetrics("memory");
      metrics.append("cpu", "gauge", "value", { site: "shop" })(base, value);
      const store: MetricStore = {
        ...metrics,
        type: (...asked) => wait().then(() => metrics.type(...asked)),
      };
      const site: Site = {
        id: "shop",
        retention: 86_400_000,
        counterDefault: "cumulative",
        metrics: { backend: "memory", store, match: { site: "shop" } },
      };
      const authenticate = createAuthenticator([], () => fromMillis(base));
      return { authenticate, sites: new Map([["shop", site]]), limits: defaults.limits };
    };
    const slow = configure(1, () => {
      begun.resolve();
      return gate.promise;
    });
    const server = createServer({
      ...slow,
      operations,
      visuals,
      telemetry: createTelemetry({ write: () => {} }),
      now: () => fromMillis(base),
      loadGraphql: () => Promise.reject(new Error("not asked for")),
    });
    const path = `http://readout/api/v2/saved_visuals/${id}`;
    const ask = async () => (await (await server.fetch(path)).json()).series?.[0]?.data[0].value;

    const leaving = new AbortController();
    const left = server.fetch(path, { signal: leaving.signal });
    await begun.promise;
    leaving.abort();
    await left.catch(() => {});
    let isOver = false;
    const reloaded = server.reload(configure(2)).then(() => {
      isOver = true;
    });
    expect(await ask()).toBe(2);
    expect(isOver).toBe(false);
    gate.resolve();
    await reloaded;
    await server.reload(configure(3));
    expect(await ask()).toBe(3);
  });

  test("logs a missing folder with its name and the reason", async () => {
    rmSync(folder, { recursive: true });
    await open();
    expect(logged).toEqual([
      expect.objectContaining({ reason: `${folder}: the folder cannot be read (ENOENT)` }),
    ]);
  });

  test.each(["line", "area", "bar", "number", "table"])(
    "`visual new` writes a %s file that is valid without edits",
    async (type) => {
      const shell = createShell({ now: toInstant("2026-01-01T00:00:00Z") });
      const args = ["new", "--site", "shop", "--title", 'CPU: "größe"', "--type", type, "--folder", folder];
      expect(await run(args, shell)).toBe(0);
      const [, made = ""] = /saved_visuals\/(\S+)\n/.exec(shell.printed()) ?? [];
      const { find } = await open();
      expect(logged).toEqual([]);
      expect(find(made)).toMatchObject({ title: 'CPU: "größe"', type, site: "shop" });
      // An existing file is never overwritten.
      expect(await run(args, shell)).toBe(1);
      expect(shell.complained()).toContain("cannot be written");
    },
  );

  test("`visual new` exits with code 2 on wrong arguments", async () => {
    for (const args of [
      [],
      ["old"],
      ["new"],
      ["new", "--site", "s"],
      ["new", "--site", "s", "--title", "t", "--type", "pie"],
      ["new", "--nope"],
    ]) {
      const shell = createShell({ now: toInstant("2026-01-01T00:00:00Z") });
      expect(await run(args, shell), args.join(" ")).toBe(2);
      expect(shell.complained()).toContain("Usage: readout visual new");
    }
  });
});
