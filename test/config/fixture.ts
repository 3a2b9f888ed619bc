// What the tests of the configuration share: kinds of backends, an environment and files that a configuration refers to.
import { parse as parseYaml } from "yaml";
import { z } from "zod";
import { type BackendKinds, type Config, parseConfig } from "../../src/config/config.ts";
import { ConfigError } from "../../src/core/errors.ts";

const elastic = z.strictObject({
  url: z.union([z.url(), z.array(z.url()).min(1)]),
  auth: z
    .union([
      z.strictObject({ username: z.string(), password: z.string().max(8) }),
      z.strictObject({ api_key: z.string() }),
    ])
    .optional(),
});
const quoting = z.looseObject({}).transform((value, context) => {
  context.issues.push({ code: "custom", message: `bad ${JSON.stringify(value)}`, input: value });
  return z.NEVER;
});
const layout = z.strictObject({ name: z.string(), at: z.literal("here") });
const parseLayout = (text: string) => layout.parse(parseYaml(text));
export const kinds: BackendKinds = new Map([
  [
    "elastic",
    {
      parseConfig: (value: unknown) => elastic.parse(value),
      layouts: {
        logs: { names: new Set(["ecs", "fluent-bit"]), parse: parseLayout },
        traces: { names: new Set(["otel"]), parse: parseLayout },
      },
      findTenantFilterFault: (where: string) => (where.includes("=") ? undefined : `no = in ${where}`),
    },
  ],
  ["prometheus", { parseConfig: (value: unknown) => z.strictObject({ url: z.url() }).parse(value) }],
  ["quoting", { parseConfig: (value: unknown) => quoting.parse(value) }],
]);
export const env = { SECRET: "hunter2!", EMPTY: "", ROWS: "12", TYPO: "top-secret-name" };
const files: Readonly<Record<string, string>> = {
  "conf/password": "from a file\n\n",
  "conf/windows": "crlf\r\n",
  "/run/secrets/x": "absolute",
  "conf/empty": "\n",
  "conf/latin": "s\uDC80cret\n",
  "conf/mine.yaml": "{ name: mine, at: here }",
  "conf/other.yaml": "{ at: there }",
  "conf/cut.yaml": "name: [",
};
export const readText = (path: string): string => {
  const text = files[path];
  if (text === undefined) throw Object.assign(new Error(`no ${path}`), { code: "ENOENT" });
  return text;
};
/** What of the surroundings a test replaces. */
type Over = { readonly readText?: (path: string) => string; readonly kinds?: BackendKinds };
export const parse = (text: string, over: Over = {}): Config =>
  parseConfig(text, "conf/r.yaml", { kinds, env, readText, ...over });

/** The issues of a file as `line path: message`. */
export function listIssues(text: string, over: Over = {}): readonly string[] {
  try {
    parse(text, over);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.issues.map(({ line, path, message }) => `${line} ${path}: ${message}`);
  }
  return [];
}

export const hash = "9F86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
export const minimal = "backends: {}\nsites: {}\n";
export const withBackend = (entry: string) => `backends:\n  elk: ${entry}\nsites: {}\n`;
