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
  if (version.includes("-")) return { npmTag: "next", releaseFlag: "--prerelease" };
  const released = tags.filter((tag) => /^v\d+\.\d+\.\d+$/.test(tag)).map((tag) => tag.slice(1));
  if (released.every((other) => compareVersions(other, version) <= 0))
    return { npmTag: "latest", releaseFlag: "--latest" };
  const [major, minor] = version.split(".");
  return { npmTag: `latest-${major}.${minor}`, releaseFlag: "--latest=false" };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const tags = execFileSync("git", ["tag", "--list", "v*"], { encoding: "utf8" }).split("\n");
  const { npmTag, releaseFlag } = chooseChannel(manifest.version, tags);
  process.stdout.write(`npm-tag=${npmTag}\nrelease-flag=${releaseFlag}\n`);
}
