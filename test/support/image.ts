// The image of the Dockerfile, built without a Docker engine by buildah, on a base made of Debian and the Node of this checkout
// instead of the usual one. Its program runs as the image says: as a user without rights, on a file system that is read-only.
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { cacheFolder } from "../servers/distribution.ts";

const base = "localhost/readout-test-base";
const name = "localhost/readout-test";
const env = { ...process.env, BUILDAH_ISOLATION: "chroot", STORAGE_DRIVER: "vfs" };
const buildah = (...args: string[]): string =>
  execFileSync("buildah", args, { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();

interface ImageConfig {
  readonly User: string;
  readonly Entrypoint: readonly string[];
  readonly Labels: Readonly<Record<string, string>>;
  readonly Env: readonly string[];
}

export interface Image {
  readonly config: ImageConfig;
  /** The folder where its file system is mounted. */
  readonly root: string;
  readonly digest: string;
  close(): void;
}

/** Builds the image, and mounts it. */
export function openImage(): Image {
  buildBase();
  const digest = buildImage("first");
  const container = buildah("from", `${name}:first`);
  const root = buildah("mount", container);
  const inspected: { readonly OCIv1: { readonly config: ImageConfig } } = JSON.parse(
    buildah("inspect", container),
  );
  return { config: inspected.OCIv1.config, root, digest, close: () => void buildah("rm", container) };
}

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

/** Builds it as a release does, with the time of the commit, so that the same commit makes the same image. Returns its digest. */
export function buildImage(tag: string, checkout = "."): string {
  const cache = execFileSync("npm", ["config", "get", "cache"], { encoding: "utf8" }).trim();
  const [time = "", revision = ""] = execFileSync("git", ["log", "-1", "--format=%ct %H"], {
    encoding: "utf8",
  })
    .trim()
    .split(" ");
  buildah(
    "bud",
    "--quiet",
    "--no-cache",
    "--timestamp",
    time,
    "--volume",
    `${cache}:/root/.npm`,
    "--build-arg",
    `NODE_IMAGE=${base}`,
    "--build-arg",
    `REVISION=${revision}`,
    "--tag",
    `${name}:${tag}`,
    checkout,
  );
  return buildah("inspect", "--format", "{{.FromImageDigest}}", `${name}:${tag}`);
}

/** Returns the arguments of `unshare` that run the program of the image in its own read-only file system. */
export function buildUnshareArguments(
  { config, root }: Image,
  args: readonly string[],
  folder?: string,
): string[] {
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

/** Starts the program of the image. @throws what it printed, where it ends before it listens */
export async function startImage(image: Image, ...args: string[]): Promise<Running> {
  const program = spawn("unshare", buildUnshareArguments(image, args), {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
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
