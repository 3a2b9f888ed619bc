// The image of the Dockerfile, built without a Docker engine by buildah, on a base made of Debian and the Node of this checkout
// instead of the usual one. Its program runs as the image says: as a user without rights, on a file system that is read-only.
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cacheFolder } from "../../servers/distribution.ts";
import { askEveryRoute } from "../../support/demo-questions.ts";
import { measureSlowdown } from "../../support/machine.ts";

const base = "localhost/readout-test-base";
const image = "localhost/readout-test";
const env = { ...process.env, BUILDAH_ISOLATION: "chroot", STORAGE_DRIVER: "vfs" };
const buildah = (...args: string[]): string =>
  execFileSync("buildah", args, { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();

interface Inspected {
  readonly FromImageDigest: string;
  readonly OCIv1: { readonly config: Config };
}
interface Config {
  readonly User: string;
  readonly Entrypoint: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
  readonly Env: readonly string[];
  readonly WorkingDir: string;
}

let root: string;
let container: string | undefined;
let config: Config;
beforeAll(() => {
  buildBase();
  buildImage("first");
  container = buildah("from", `${image}:first`);
  root = buildah("mount", container);
  const inspected: Inspected = JSON.parse(buildah("inspect", container));
  config = inspected.OCIv1.config;
}, 900_000);
afterAll(() => {
  if (container !== undefined) buildah("rm", container);
});

/** Debian's packages are fetched once; npm asks the registry of the machine, with its certificates. */
function buildBase(): void {
  const debian = join(cacheFolder(), "debian-bookworm");
  if (!existsSync(debian)) {
    execFileSync("debootstrap", ["--variant=minbase", "bookworm", `${debian}.part`], { stdio: "ignore" });
    execFileSync("mv", [`${debian}.part`, debian]);
  }
  const draft = buildah("from", "scratch");
  buildah("add", "--quiet", draft, debian, "/");
  buildah("add", "--quiet", draft, process.execPath, "/usr/local/bin/node");
  const npm = realpathSync(execFileSync("sh", ["-c", "command -v npm"], { encoding: "utf8" }).trim());
  buildah("add", "--quiet", draft, dirname(dirname(npm)), "/usr/local/lib/node_modules/npm");
  const place = buildah("mount", draft);
  execFileSync("ln", ["-sf", "../lib/node_modules/npm/bin/npm-cli.js", join(place, "usr/local/bin/npm")]);
  const certificates = "/etc/ssl/certs/ca-certificates.crt";
  mkdirSync(join(place, "etc/ssl/certs"), { recursive: true });
  cpSync(certificates, join(place, certificates));
  const registry = execFileSync("npm", ["config", "get", "registry"], { encoding: "utf8" }).trim();
  mkdirSync(join(place, "usr/local/etc"), { recursive: true });
  writeFileSync(join(place, "usr/local/etc/npmrc"), `cafile=${certificates}\nregistry=${registry}\n`);
  buildah("commit", "--quiet", "--rm", draft, base);
}

/** As a release does: with the time of the commit, so that the same commit makes the same image. */
function buildImage(tag: string): void {
  const cache = execFileSync("npm", ["config", "get", "cache"], { encoding: "utf8" }).trim();
  const [time = "", revision = ""] = execFileSync("git", ["log", "-1", "--format=%ct %H"], {
    encoding: "utf8",
  })
    .trim()
    .split(" ");
  buildah(
    ...["bud", "--quiet", "--no-cache", "--timestamp", time, "--volume", `${cache}:/root/.npm`],
    ...["--build-arg", `NODE_IMAGE=${base}`, "--build-arg", `REVISION=${revision}`],
    ...["--tag", `${image}:${tag}`, "."],
  );
}

const digestOf = (tag: string): string =>
  buildah("inspect", "--format", "{{.FromImageDigest}}", `${image}:${tag}`);
const measure = (path: string): number =>
  Number(execFileSync("du", ["-sxm", path], { encoding: "utf8" }).split("\t")[0]);

describe("the image", () => {
  test("has the same digest when it is built again", { timeout: 600_000 }, () => {
    buildImage("second");
    expect(digestOf("second")).toMatch(/^sha256:/);
    expect(digestOf("second")).toBe(digestOf("first"));
  });

  test("adds at most 120 MB to its base, and nothing that only developers read", () => {
    const added = measure(join(root, "app"));
    expect(added).toBeGreaterThan(20);
    expect(added).toBeLessThanOrEqual(120);
    const unread = execFileSync("find", [join(root, "app"), "-name", "*.map", "-o", "-name", "*.d.ts"], {
      encoding: "utf8",
    });
    expect(unread).toBe("");
    for (const tool of ["vitest", "rolldown"])
      expect(existsSync(join(root, "app/node_modules", tool))).toBe(false);
    expect(existsSync(join(root, "build"))).toBe(false);
  });

  test("says what it is, and runs without rights", () => {
    expect(config.User).toBe("1000:1000");
    expect(config.Labels["org.opencontainers.image.version"]).toBe(
      JSON.parse(execFileSync("cat", ["package.json"], { encoding: "utf8" })).version,
    );
    expect(config.Labels["org.opencontainers.image.revision"]).toMatch(/^[0-9a-f]{40}$/);
  });
});

describe("the program of the image", () => {
  test("answers all routes, on a read-only file system, as a user without rights", async () => {
    const { address, stop } = await startProgram("demo", "--port", "0", "--token", "t");
    try {
      expect(await askEveryRoute(address, "t")).toEqual([]);
    } finally {
      stop();
    }
  });

  test("answers within 1.5 s of its start on an idle machine, on a read-only file system", async () => {
    const slowdown = measureSlowdown();
    const bound = 1_500 * slowdown;
    const times: number[] = [];
    // The best of three: another program may take the processor away from one. The first reads the files from the disk.
    for (let attempt = 0; attempt < 3 && !times.some((time) => time < bound); attempt += 1) {
      const begun = performance.now();
      const { address, stop } = await startProgram("demo", "--port", "0", "--token", "t");
      try {
        expect((await fetch(`${address}/livez`)).status).toBe(200);
        times.push(performance.now() - begun);
      } finally {
        stop();
      }
    }
    expect(Math.min(...times), `${times.join()} ms, on a machine slower by ${slowdown}`).toBeLessThan(bound);
  });

  test("finds the configuration where its command says, and answers what is wrong with it", () => {
    const folder = mkdtempSync(join(tmpdir(), "readout-image-"));
    writeFileSync(join(folder, "readout.yaml"), "sites: {}\n");
    chmodSync(folder, 0o755);
    const call = () =>
      execFileSync("unshare", enter(["check", "--config", "/mnt/readout.yaml"], folder), { stdio: "pipe" });
    try {
      expect(call).toThrow(/tokens|sites|backends/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

/** The arguments of `unshare` that run the program of the image in its own read-only file system. */
function enter(args: readonly string[], folder?: string): string[] {
  const command = [...config.Entrypoint, ...args].map((word) => `'${word}'`).join(" ");
  const variables = config.Env.map((variable) => `'${variable}'`).join(" ");
  const script = [
    `mount --bind '${root}' '${root}'`,
    ...(folder === undefined ? [] : [`mount --bind '${folder}' '${root}/mnt'`]),
    `mount -o remount,ro,bind '${root}'`,
    `mount -t proc proc '${root}/proc'`,
    `exec chroot --userspec=${config.User} '${root}' /usr/bin/env -i ${variables} ${command}`,
  ].join(" && ");
  return ["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script];
}

interface Running {
  readonly address: string;
  readonly stop: () => void;
}

async function startProgram(...args: string[]): Promise<Running> {
  const program = spawn("unshare", enter(args), { stdio: ["ignore", "pipe", "pipe"], detached: true });
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let printed = "";
  for (const stream of [program.stdout, program.stderr])
    stream.on("data", (data: Buffer) => {
      printed += data.toString();
      const [address] = /http:\/\/127\.0\.0\.1:\d+/.exec(printed) ?? [];
      if (address !== undefined) resolve(address);
    });
  program.on("exit", (code) => reject(new Error(`exit code ${code}: ${printed}`)));
  const address = await promise;
  // All of its group: the program has changed its user, and does not end with its parent any more.
  return { address, stop: () => void (program.pid !== undefined && process.kill(-program.pid, "SIGKILL")) };
}
