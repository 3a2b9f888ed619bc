// Building blocks of the schemas of configuration files, and messages in our own words. No message repeats a value, which
// may be a secret.
import { z } from "zod";
import { formatChoice, formatSuggestion } from "../core/suggestion.ts";
import { day, type Millis, parseDuration } from "../core/time.ts";
import { isMapping } from "./plain-values.ts";
import type { Path } from "./yaml/yaml.ts";

export type IssueReporter = (path: Path, message: string) => void;

/** What is wrong with a setting of a backend where only its use shows it, such as a file that it names. */
export class SettingError extends Error {
  override readonly name = "SettingError";
  /** Of the setting within those of the backend. */
  readonly path: Path;
  readonly reason: string;
  constructor(path: Path, reason: string) {
    super(`${path.join(".")}: ${reason}`);
    this.path = path;
    this.reason = reason;
  }
}

const emptyMessage = "must not be empty";

const typeNames: Readonly<Record<string, string>> = {
  string: "text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "keys with values",
  record: "keys with values",
};

/**
 * The message where the schema has none of its own; undefined leaves it to Zod. Never holds the value. That for unknown keys has
 * a line for each; `reportIssue` separates them.
 */
export function explainIssue(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.input === undefined) return "is missing";
  if (issue.input === null) return "is empty";
  if (issue.code === "unrecognized_keys") {
    const known = issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : [];
    return issue.keys.map((key) => `unknown key${formatSuggestion(key, known)}`).join("\n");
  }
  if (issue.code === "invalid_union") return explainUnion(issue.errors);
  if (issue.code === "too_small" && issue.minimum === 1 && issue.origin !== "number") return emptyMessage;
  if (issue.code === "invalid_value") return formatChoice(issue.input, issue.values.map(String));
  if (issue.code !== "invalid_type") return undefined;
  const quotes = issue.expected === "string" && typeof issue.input !== "object" ? "; put it in quotes" : "";
  return `expected ${typeNames[issue.expected] ?? issue.expected}${quotes}`;
}

/** What each branch of a union expects in the place of the value. */
function explainUnion(branches: readonly (readonly z.core.$ZodIssue[])[]): string {
  const expected = branches
    .flat()
    .filter(({ path, message }) => path.length === 0 && message.startsWith("expected "))
    .map(({ message }) => message.replace(/^expected |;.*/g, ""));
  return `expected ${[...new Set(expected)].join(" or ")}`;
}

/** Parses the settings of a kind of backend. @throws {ZodError} all issues at once */
export function parseSettings<T extends z.ZodType>(settings: T, value: unknown): z.output<T> {
  return settings.parse(value, { error: explainIssue });
}

/** A text that `read` parses. Where that returns undefined, the issue is `message`. */
export function createTextSchema<T>(read: (text: string) => T | undefined, message: string) {
  return z
    .string({ error: (issue) => (issue.input == null ? undefined : message) })
    .transform((value, context) => {
      const result = read(value);
      if (result !== undefined) return result;
      context.issues.push({ code: "custom", message, input: undefined });
      return z.NEVER;
    });
}

export const text = z.string().min(1, emptyMessage);

/** The sites that somebody may read. */
export const grantedSites = z.union(
  [z.literal("*"), z.array(text).min(1, 'names no site; for all sites write "*"')],
  { error: ({ input }) => (input == null ? undefined : 'expected a list of sites, or "*" for all') },
);

/**
 * The name of a site or a backend: it appears in paths of the API, in messages and in queries. `.` and `..` are no parts of a path:
 * clients take them out of an address.
 */
export const configuredName = z
  .string()
  .regex(/^[^\s/$,{}"\\]+$/, 'a name holds no space and none of / $ , { } " \\')
  .regex(/^(?!\.\.?$)/, "a name is neither . nor ..");

/** A map whose keys are such names. */
export const namedRecord = <Value extends z.ZodType>(value: Value) => z.record(configuredName, value);

/** A value that is parsed by one of several schemas, which its form decides. Its issues are those of that schema alone. */
export function chooseSchema<T extends z.ZodType>(choose: (value: unknown) => T) {
  return z.unknown().transform((value, context): z.output<T> => {
    const result = choose(value).safeParse(value, { error: explainIssue });
    if (result.success) return result.data;
    context.issues.push(
      ...result.error.issues.map((issue) => ({ ...issue, input: value }) as z.core.$ZodRawIssue),
    );
    return z.NEVER;
  });
}

/**
 * Of a check across the keys of a map: it runs where some of them are wrong too, so that all issues are told at once. A value
 * that is wrong is then of any type.
 */
export const acrossKeys = { when: ({ value }: { readonly value: unknown }) => isMapping(value) };

/** A part of a site in one backend, or a list of such parts. */
export const oneOrSeveral = <T extends z.ZodType>(part: T) => {
  const list = z.array(part).min(1, "names no backend");
  return chooseSchema((value): T | typeof list => (Array.isArray(value) ? list : part));
};

export const duration = (most: Millis) =>
  createTextSchema(
    (value) => {
      const length = parseDuration(value);
      return length !== undefined && length > 0 && length <= most ? length : undefined;
    },
    `expected a duration such as 250ms, 10s or 30d, at most ${most / day}d`,
  );

export const count = (least: number, message = `expected a whole number from ${least} up`) =>
  z.preprocess(
    parseNumeral,
    z.int({ error: (issue) => (issue.input == null ? undefined : message) }).min(least, message),
  );

/** Parses a number that came as text, as `${NAME}` always does. Returns anything else unchanged, for the schema to judge. */
export function parseNumeral(value: unknown): unknown {
  return typeof value === "string" && /^\d{1,15}(?:\.\d{1,15})?$/.test(value) ? Number(value) : value;
}

/** Scheme, host and port, as a browser writes them. A host of a URL may hold `;`, which would end it in a header. */
export const originSchema = createTextSchema((value) => {
  const origin = value.toLowerCase();
  return /^[\w.:/[\]-]+$/.test(origin) && URL.parse(origin)?.origin === origin ? origin : undefined;
}, "expected an origin without a path, such as https://agents.example.com");

/** An HTTP address. Other parts of a URL are refused, because clients treat them differently or drop them silently. */
export const httpUrl = z
  .url({
    protocol: /^https?$/,
    error: ({ input }) => (input == null ? undefined : "expected an http:// or https:// address"),
  })
  .refine((text) => {
    const { username, password } = URL.parse(text) ?? { username: "", password: "" };
    return username === "" && password === "";
  }, "expected an address without user and password: they have keys of their own")
  .refine(
    (text) => !/[?#]/.test(text),
    "expected an address without a query and a fragment: they would not be sent",
  );

/** A receiver of OTLP over HTTP. Other programs are told the address of each signal, with its path. */
export const collectorUrl = httpUrl.refine(
  (text) => !/\/v1\/(?:traces|logs|metrics)\/*$/.test(text),
  "expected the address without /v1/…, which is added, such as http://collector:4318",
);

/** A secret that is read from a file may end in a line break too many, or begin with a byte order mark. */
export const headerValue = text.regex(/^[\t\x20-\x7e\x80-\xff]*$/, "expected what may stand in a header");

/** Headers that a client sends by itself, and with which it refuses to send a request. */
const ownHeaders = /^(?:content-length|expect|keep-alive|transfer-encoding|upgrade)$/i;

export const headersSchema = z
  .record(
    z
      .string()
      .regex(/^[\w!#$%&'*+.^`|~-]+$/, "no name of a header")
      .refine((name) => !ownHeaders.test(name), "a header that is no setting: the connection decides it"),
    headerValue,
  )
  .default({});

/** Reports an issue of a schema with `prefix` before its path; an issue of a union or of unknown keys becomes several. */
export function reportIssue(issue: z.core.$ZodIssue, prefix: Path, report: IssueReporter): void {
  const path = [...prefix, ...issue.path.map(String)];
  if (issue.code === "unrecognized_keys") reportUnknownKeys(issue, path, report);
  else if (issue.code === "invalid_union") reportUnion(issue, path, report);
  else if (issue.code === "invalid_key") report(path, issue.issues[0]?.message ?? issue.message);
  else {
    const isMissing = issue.code === "invalid_type" && issue.message.endsWith("received undefined");
    report(path, isMissing ? "is missing" : issue.message);
  }
}

function reportUnknownKeys(issue: z.core.$ZodIssueUnrecognizedKeys, path: Path, report: IssueReporter): void {
  const messages = issue.message.split("\n");
  // Zod's own message is one sentence for all keys; then the key's path says enough.
  const isOwn = messages.length === issue.keys.length;
  for (const [index, key] of issue.keys.entries()) {
    const message = messages[index];
    report([...path, key], isOwn && message?.startsWith("unknown key") ? message : "unknown key");
  }
}

/** Reports the branch that is most likely meant: the deepest one, or of several the one with the fewest issues. */
function reportUnion(issue: z.core.$ZodIssueInvalidUnion, path: Path, report: IssueReporter): void {
  const depth = (branch: readonly z.core.$ZodIssue[]) => Math.max(...branch.map((one) => one.path.length));
  const entered = issue.errors.filter((branch) =>
    branch.some(
      (one) => one.path.length > 0 || (one.code !== "invalid_type" && one.code !== "invalid_value"),
    ),
  );
  const branch = entered.toSorted((a, b) => depth(b) - depth(a) || a.length - b.length)[0];
  if (branch === undefined) report(path, issue.message);
  else for (const inner of branch) reportIssue(inner, path, report);
}

// Shorter texts occur in any sentence and reveal nothing.
const minRedactedLength = 4;

export function redactSecrets(message: string, secrets: Iterable<string>): string {
  let result = message;
  for (const secret of secrets)
    if (secret.length >= minRedactedLength) result = result.replaceAll(secret, "…");
  return result;
}
