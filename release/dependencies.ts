// The packages that the program runs with, as `package-lock.json` fixes them, and the files of them that it may read.
import { cpSync } from "node:fs";
import { join } from "node:path";
import { readText, root } from "./program.ts";

/** An installed package of the lock file. */
export interface LockedPackage {
  /** Where it is installed: `node_modules/a/node_modules/b`. */
  readonly path: string;
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  /** A checksum of its tarball, such as `sha512-…` in base64. */
  readonly integrity?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

type LockEntry = Omit<LockedPackage, "path" | "name"> & { readonly name?: string; readonly dev?: boolean };

/** Lists the packages that production needs, in the order of the lock file. */
export function listProductionPackages(): readonly LockedPackage[] {
  const lock = JSON.parse(readText("package-lock.json")) as { readonly packages: Record<string, LockEntry> };
  return Object.entries(lock.packages)
    .filter(([path, entry]) => path !== "" && entry.dev !== true)
    .map(([path, { dev: _, ...entry }]) => ({ ...entry, path, name: entry.name ?? toPackageName(path) }));
}

/** The name under which a package is imported from its place. */
export function toPackageName(path: string): string {
  return path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
}

/**
 * What Node never reads of a package, by the name of it: another form of its code, made for browsers or bundlers, and
 * translations and tables that nothing here asks for. Each file costs time at an installation.
 */
const neverRead: Readonly<Record<string, RegExp>> = {
  "@opentelemetry/api": /^build\/(?:esm|esnext)(?:\/|$)/,
  "@opentelemetry/core": /^build\/(?:esm|esnext)(?:\/|$)/,
  "apache-arrow": /\.mjs$/,
  "caniuse-lite": /^data\/(?:features|regions)(?:\/|$)/,
  cronstrue: /^locales(?:\/|$)/,
  dayjs: /^(?:esm|locale)(?:\/|$)/,
  yaml: /^browser(?:\/|$)/,
  zod: /\.cjs$/,
};

/** Copies the packages, without what only their developers and their compilers read: half of their files. */
export function copyDependencies(target: string): void {
  for (const { path, name } of listProductionPackages()) {
    cpSync(join(root, path), join(target, path), {
      recursive: true,
      filter: (file) => isNeeded(file.slice(join(root, path).length + 1), name),
    });
  }
}

/** Whether a file of a package may be read when the program runs, or states its licence. */
export function isNeeded(path: string, name: string): boolean {
  if (neverRead[name]?.test(path)) return false;
  const isUnread =
    /(?:^|\/)(?:node_modules|\.[^/]+|test|tests|__tests__|benchmarks?|examples?|docs)(?:\/|$)/.test(path) ||
    /\.(?:map|ts|mts|cts|flow|md|markdown|html|sh|zip|yml|header|tsbuildinfo)$/.test(path);
  const isLicence = /(?:^|\/)(?:licen[cs]e|notice|copying)[^/]*$/i.test(path) && !/\.(?:map|ts)$/.test(path);
  return !isUnread || isLicence;
}
