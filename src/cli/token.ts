// `readout token new`: prints a new token, once. The configuration gets only its hash.
import { parseArgs } from "node:util";
import { generateToken, hashToken } from "../access/auth.ts";
import { configuredName } from "../config/validation.ts";
import { printText } from "../config/yaml/print-yaml.ts";
import { toErrorMessage } from "../core/errors.ts";
import { type Scope, scopes } from "../core/scopes.ts";
import { parseInstant, printNanos } from "../core/time.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout token new --user USER --site SITE [--site SITE …] [--scope SCOPE …] [--expires TIME]

  --user USER     whom the token is for
  --site SITE     a site it may read; repeat it for more; "*" is all sites
  --scope SCOPE   what it may be used for; repeat it for more: ${scopes.slice(0, 5).join(", ")},
                  ${scopes.slice(5).join(", ")}; without it everything
  --expires TIME  ISO 8601 with a zone, such as 2027-01-01T00:00:00Z; without it the token does not expire
`;

export const choices = { "--scope": scopes };

/** Prints a new token and its entry for readout.yaml. Exit code 2 for wrong arguments, else 0. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  const parsed = readArguments(args, shell);
  if (typeof parsed === "string") return printUsageError(parsed, usage, shell);
  const token = generateToken();
  const { user, sites, scopes, expires } = parsed;
  // In quotes, because a user may be called `null`, and a hash may be all digits.
  const fields = [
    `user: ${printText(user)}`,
    `sha256: ${printText(hashToken(token))}`,
    `sites: ${sites === "*" ? '"*"' : `[${sites.map(printText).join(", ")}]`}`,
    ...(scopes.length === 0 ? [] : [`scopes: [${scopes.join(", ")}]`]),
    ...(expires === undefined ? [] : [`expires: ${expires}`]),
  ];
  shell.out(
    `Token (shown this once; whoever holds it reads as ${user}):\n\n  ${token}\n\n` +
      `Entry for readout.yaml, under tokens:\n\n  - { ${fields.join(", ")} }\n`,
  );
  return exitCodes.done;
}

interface TokenArguments {
  readonly user: string;
  readonly sites: readonly string[] | "*";
  /** None: all of them. */
  readonly scopes: readonly Scope[];
  readonly expires: string | undefined;
}

/** Returns the arguments, or what is wrong with them. */
function readArguments([verb, ...args]: readonly string[], shell: Shell): TokenArguments | string {
  if (verb !== "new")
    return verb === undefined
      ? "token: missing subcommand (expected `new`)"
      : `token: unknown command "${verb}"`;
  try {
    const { values } = parseArgs({
      args,
      options: {
        user: { type: "string" },
        site: { type: "string", multiple: true },
        scope: { type: "string", multiple: true },
        expires: { type: "string" },
      },
    });
    const { user = "", site: sites = [], scope: wanted = [], expires } = values;
    if (user.trim() === "") return "token new: --user is missing";
    if (sites.length === 0 || sites.includes("")) return "token new: --site is missing";
    const misnamed = sites.find((site) => !configuredName.safeParse(site).success);
    if (misnamed !== undefined) return `token new: --site "${misnamed}" can be the name of no site`;
    if (sites.includes("*") && sites.length > 1)
      return 'token new: --site "*" is all sites: give no other site';
    const unknown = wanted.find((name) => !scopes.some((scope) => scope === name));
    if (unknown !== undefined) {
      return `token new: --scope ${unknown} is unknown; expected ${scopes.join(", ")}`;
    }
    const instant = expires === undefined ? undefined : parseInstant(expires);
    if (expires !== undefined && instant === undefined) {
      return "token new: --expires is not an ISO 8601 time with a zone, such as 2027-01-01T00:00:00Z";
    }
    if (instant !== undefined && instant <= shell.now()) return "token new: --expires is in the past";
    return {
      user,
      sites: sites[0] === "*" ? "*" : [...new Set(sites)],
      scopes: scopes.filter((scope) => wanted.includes(scope)),
      expires: instant && printNanos(instant).replace(/\.?0+Z$/, "Z"),
    };
  } catch (error) {
    return `token new: ${toErrorMessage(error)}`;
  }
}
