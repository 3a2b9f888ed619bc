// The bill of materials of a release: every package that it holds, as CycloneDX. It has no time and no random number, so the same
// lock file makes the same document.
import { createHash } from "node:crypto";
import type { LockedPackage } from "./dependencies.ts";
import { readText } from "./program.ts";

interface Component {
  readonly "bom-ref": string;
  readonly purl: string;
  readonly name: string;
  readonly version: string;
}

export interface Sbom {
  readonly bomFormat: "CycloneDX";
  readonly specVersion: "1.6";
  readonly serialNumber: string;
  readonly version: 1;
  readonly metadata: object;
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** Describes a release with these packages inside. */
export function buildSbom(packages: readonly LockedPackage[]): Sbom {
  const { name, version, license, dependencies } = JSON.parse(readText("package.json"));
  const byRef = Map.groupBy(packages, toRef);
  const own = { path: "", name, version, license, dependencies } satisfies LockedPackage;
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    serialNumber: `urn:uuid:${toUuid(version + readText("package-lock.json"))}`,
    version: 1,
    metadata: { component: { type: "application", ...describeComponent(own) } },
    components: [...byRef.values()].map(([first, ...others]) => ({
      type: "library",
      ...describeComponent(first as LockedPackage),
      properties: [first, ...others].map((installed) => ({ name: "npm:path", value: installed?.path })),
    })),
    dependencies: [[own] as const, ...byRef.values()].map(([first]) => ({
      ref: toRef(first as LockedPackage),
      dependsOn: listDependencies(first as LockedPackage, packages)
        .map(toRef)
        .toSorted(),
    })),
  };
}

/** The package URL: `pkg:npm/%40scope/name@1.0.0`. */
const toRef = ({ name, version }: LockedPackage): string => `pkg:npm/${name.replace("@", "%40")}@${version}`;

function describeComponent(entry: LockedPackage) {
  const { name, version, license, integrity } = entry;
  const ref = toRef(entry);
  return {
    "bom-ref": ref,
    purl: ref,
    name,
    version,
    ...(license !== undefined && { licenses: [{ license: { id: license } }] }),
    ...(integrity !== undefined && { hashes: [describeHash(integrity)] }),
  };
}

function describeHash(integrity: string) {
  const [algorithm = "", sum = ""] = integrity.split("-");
  return {
    alg: algorithm.toUpperCase().replace("SHA", "SHA-"),
    content: Buffer.from(sum, "base64").toString("hex"),
  };
}

/** Lists what a package finds where Node looks: in its own folder, then in those above. */
function listDependencies(
  entry: LockedPackage,
  packages: readonly LockedPackage[],
): readonly LockedPackage[] {
  const places = new Map(packages.map((one) => [one.path, one]));
  return Object.keys(entry.dependencies ?? {}).flatMap((name) => {
    const found = listFolders(entry.path).map((folder) => places.get(`${folder}node_modules/${name}`));
    return found.find((one) => one !== undefined) ?? [];
  });
}

/** `a/node_modules/b` looks in itself, in `a` and at the top. */
function listFolders(path: string): readonly string[] {
  const parts = path.split(/\/?node_modules\//).filter((part) => part !== "");
  const folders = parts.map(
    (_, at) =>
      `${parts
        .slice(0, at + 1)
        .map((part) => `node_modules/${part}`)
        .join("/")}/`,
  );
  return ["", ...folders].toReversed();
}

function toUuid(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex");
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `5${hex.slice(13, 16)}`,
    `8${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join("-");
}
