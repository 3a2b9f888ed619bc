// `npm run --silent channel`: where the release of this version is shown, for the workflow. Only the newest version is the latest, on
// npm as on the forge: not one that comes before a release, and not a fix of an older one.
import { execFileSync } from "node:child_process";
import { pathToFileURL } from "node:url";
import manifest from "../package.json" with { type: "json" };
import { compareVersions } from "./compare-versions.ts";

interface Channel {
  /** The tag of the version on npm. */
  readonly npmTag: string;
  /** For `gh release create`. */
  readonly releaseFlag: string;
}

/** Chooses by the tags `v1.2.3` of the repository, with or without that of the version itself. */
export function chooseChannel(version: string, tags: readonly string[]): Channel {
  const versions = tags.filter((tag) => /^v\d+\.\d+\.\d+(-.+)?$/.test(tag)).map((tag) => tag.slice(1));
  const isPrerelease = version.includes("-");
  // A prerelease of the next version does not make the newest release an older one.
  const rivals = isPrerelease ? versions : versions.filter((other) => !other.includes("-"));
  const isNewest = rivals.every((other) => compareVersions(other, version) <= 0);
  const name = isPrerelease ? "next" : "latest";
  const [major, minor] = version.split(".");
  const npmTag = isNewest ? name : `${name}-${major}.${minor}`;
  if (isPrerelease) return { npmTag, releaseFlag: "--prerelease" };
  return { npmTag, releaseFlag: isNewest ? "--latest" : "--latest=false" };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const tags = execFileSync("git", ["tag", "--list", "v*"], { encoding: "utf8" }).split("\n");
  const { npmTag, releaseFlag } = chooseChannel(manifest.version, tags);
  process.stdout.write(`npm-tag=${npmTag}\nrelease-flag=${releaseFlag}\n`);
}
