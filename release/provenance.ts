// The provenance statement of a release (in-toto, SLSA): which files were made, from which commit and lock file, by whom. It is
// not signed here: the release workflow signs it where it has the keys.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { readText, root } from "./program.ts";

export type Env = Readonly<Record<string, string | undefined>>;

/** Describes files by their paths. `env` is that of the workflow, or of a person's shell. */
export function buildProvenance(files: readonly string[], env: Env): object {
  const commit = env.GITHUB_SHA ?? readCommit();
  const repository = readRepository(env);
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: files.map((file) => ({ name: basename(file), digest: { sha256: hash(readFileSync(file)) } })),
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType:
          repository === undefined
            ? "https://docs.npmjs.com/cli/v11/commands/npm-run"
            : "https://github.com/actions/runner",
        externalParameters: { command: "npm run package" },
        resolvedDependencies: [
          ...(commit === undefined
            ? []
            : [{ uri: `git+${repository ?? "file:checkout"}`, digest: { gitCommit: commit } }]),
          { uri: "file:package-lock.json", digest: { sha256: hash(readText("package-lock.json")) } },
        ],
      },
      runDetails: {
        builder: {
          id:
            repository === undefined
              ? "https://localhost/"
              : `${repository}/actions/runs/${env.GITHUB_RUN_ID}`,
        },
        ...(env.GITHUB_RUN_ID !== undefined && { metadata: { invocationId: env.GITHUB_RUN_ID } }),
      },
    },
  };
}

/** The address of the workflow's repository; undefined on a person's machine. */
export function readRepository(env: Env): string | undefined {
  return env.GITHUB_REPOSITORY && `${env.GITHUB_SERVER_URL}/${env.GITHUB_REPOSITORY}`;
}

/** In the form that `sha256sum --check` reads. */
export function printChecksums(files: readonly string[]): string {
  return files.map((file) => `${hash(readFileSync(file))}  ${basename(file)}\n`).join("");
}

const hash = (content: string | Uint8Array): string => createHash("sha256").update(content).digest("hex");

/** Undefined outside of a checkout of git. */
function readCommit(): string | undefined {
  try {
    return execFileSync("git", ["rev-parse", "HEAD"], { cwd: root, encoding: "utf8", stdio: "pipe" }).trim();
  } catch {
    return undefined;
  }
}
