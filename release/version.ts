// Part of `npm version minor`, which has written the new version to package.json and makes the commit and the tag: the changelog
// of the version, the version wherever else it stands, and what later versions are tested to read of it.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { parse } from "yaml";
import { closeUnreleased } from "./changelog.ts";
import { compareVersions } from "./compare-versions.ts";
import { listUpgradeFixture } from "./upgrade-fixture.ts";

/** Each names the version of the program. */
const files = [
  "Dockerfile",
  "deploy/helm/readout/Chart.yaml",
  "deploy/kubernetes/readout.yaml",
  "docs/how-to/install.md",
] as const;

const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly version: string };
const chart = parse(readFileSync("deploy/helm/readout/Chart.yaml", "utf8")) as { readonly version: string };
const today = new Date().toISOString().slice(0, 10);
// Fails before anything is written.
const changelog = closeUnreleased(readFileSync("CHANGELOG.md", "utf8"), version, today);
const replaced = files.map((file) => {
  const before = readFileSync(file, "utf8");
  const after = before.replaceAll(chart.version, version);
  if (after === before) throw new Error(`${file} does not name ${chart.version}`);
  return [file, after] as const;
});
const fixtures = "test/upgrade";
const earlier = readdirSync(fixtures).filter((name) => /^\d/.test(name));
const latest = earlier.toSorted(compareVersions).at(-1);
const made = listUpgradeFixture(version, readFileSync(`${fixtures}/${latest}/spool.sql`, "utf8")).map(
  ([file, text]) => [`${fixtures}/${version}/${file}`, text] as const,
);
for (const [file, text] of [["CHANGELOG.md", changelog] as const, ...replaced, ...made]) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
