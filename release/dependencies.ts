// The packages that the program runs with, as `package-lock.json` fixes them.
import { readText } from "./program.ts";

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
