// Building blocks of the schemas of configuration files, and messages in our own words. No message repeats a value, which
// may be a secret.
import { z } from "zod";
import { day, type Millis, parseDuration } from "../core/time.ts";
import type { Path } from "./yaml.ts";

export type IssueReporter = (path: Path, message: string) => void;

const typeNames: Readonly<Record<string, string>> = {
  string: "text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "keys with values",
  record: "keys with values",
};

/** Our words for what the schema has no words of its own for. Never with the value. */
export function explainIssue(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.input === undefined) return "is missing";
  if (issue.input === null) return "is empty";
  if (issue.code !== "invalid_type") return undefined;
  const quotes = issue.expected === "string" && typeof issue.input !== "object" ? "; put it in quotes" : "";
  return `expected ${typeNames[issue.expected] ?? issue.expected}${quotes}`;
}

/** An object without other keys. Its message has one line for each unknown key; `reportIssue` takes them apart. */
export function strictObject<Shape extends z.core.$ZodLooseShape>(shape: Shape) {
  const known = Object.keys(shape);
  return z.strictObject(shape, {
    error: (issue) =>
      issue.code === "unrecognized_keys"
        ? issue.keys.map((key) => `unknown key${formatSuggestion(key, known)}`).join("\n")
        : undefined,
  });
}

/** The settings of a kind of backend, as all that is wrong with them is told. @throws {ZodError} */
export function parseSettings<T extends z.ZodType>(settings: T, value: unknown): z.output<T> {
  return settings.parse(value, { error: explainIssue });
}

/** Text that `read` turns into something; undefined is `message`. */
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

export const text = z.string().min(1, "must not be empty");

// Names appear in paths of the API, in messages and in queries.
export const namedRecord = <Value extends z.ZodType>(value: Value) =>
  z.record(z.string().regex(/^[^\s/$,{}"\\]+$/, 'a name holds no space and none of / $ , { } " \\'), value);

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

/** The number that a text spells in digits, with or without a fraction; anything else as it is, for a schema to judge. */
export function parseNumeral(value: unknown): unknown {
  return typeof value === "string" && /^\d{1,15}(?:\.\d{1,15})?$/.test(value) ? Number(value) : value;
}

/** Clients differ in what they make of the other parts of an address, and some drop them in silence. */
export const httpUrl = z
  .url({
    protocol: /^https?$/,
    error: ({ input }) => (input == null ? undefined : "expected an http:// or https:// address"),
  })
  .refine((text) => {
    const { username, password } = URL.parse(text) ?? { username: "", password: "" };
    return username === "" && password === "";
  }, "expected an address without user and password: they are given apart from it")
  .refine(
    (text) => !/[?#]/.test(text),
    "expected an address without a query and a fragment: they would not be sent",
  );

/** Reports a schema's issue, also of a backend's kind, under the paths of the file. */
export function reportIssue(issue: z.core.$ZodIssue, prefix: Path, report: IssueReporter): void {
  const path = [...prefix, ...issue.path.map(String)];
  if (issue.code === "unrecognized_keys") {
    const messages = issue.message.split("\n");
    for (const [index, key] of issue.keys.entries()) {
      // A schema without words of ours says it in one sentence for all keys; then the key's path says enough.
      const own = messages.length === issue.keys.length && messages[index]?.startsWith("unknown key");
      report([...path, key], own ? (messages[index] ?? "") : "unknown key");
    }
  } else if (issue.code === "invalid_union") {
    // The branch that got furthest is the one that was meant, or of several the one with the least to mend.
    const depth = (branch: readonly z.core.$ZodIssue[]) => Math.max(...branch.map((one) => one.path.length));
    const meant = issue.errors.filter((branch) =>
      branch.some(
        (one) => one.path.length > 0 || (one.code !== "invalid_type" && one.code !== "invalid_value"),
      ),
    );
    const branch = meant.toSorted((a, b) => depth(b) - depth(a) || a.length - b.length)[0];
    if (branch === undefined) report(path, issue.message);
    else for (const inner of branch) reportIssue(inner, path, report);
  } else if (issue.code === "invalid_key") {
    report(path, issue.issues[0]?.message ?? issue.message);
  } else {
    const missing = issue.code === "invalid_type" && issue.message.endsWith("received undefined");
    report(path, missing ? "is missing" : issue.message);
  }
}

/** `; did you mean "x"?` for a known word at most two edits away, else the known words if there are a few. */
export function formatSuggestion(word: string, known: readonly string[]): string {
  const near = known
    .map((candidate) => ({ candidate, distance: calculateEditDistance(word, candidate) }))
    .filter(({ candidate, distance }) => distance <= 2 && distance < Math.min(word.length, candidate.length))
    .toSorted((a, b) => a.distance - b.distance)[0];
  if (near !== undefined) return `; did you mean "${near.candidate}"?`;
  return known.length > 0 && known.length <= 16 ? `; known here: ${known.join(", ")}` : "";
}

/** Letters to add, drop or change (Levenshtein); 3 stands for all that is farther in length. */
function calculateEditDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3;
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (const [index, letter] of [...a].entries()) {
    const next = [index + 1];
    for (const [column, other] of [...b].entries()) {
      const replaced = (row[column] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (row[column + 1] ?? 0) + 1, (next[column] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

// Shorter ones occur in every sentence and give nothing away.
const minRedactedLength = 4;

export function redactSecrets(message: string, secrets: Iterable<string>): string {
  let result = message;
  for (const secret of secrets)
    if (secret.length >= minRedactedLength) result = result.replaceAll(secret, "…");
  return result;
}
