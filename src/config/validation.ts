// What is wrong with a configuration file, in our words: never with a value, which may be a secret.
import { z } from "zod";
import { calculateEditDistance } from "./edit-distance.ts";
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

// Shorter ones occur in every sentence and give nothing away.
const minRedactedLength = 4;

export function redactSecrets(message: string, secrets: Iterable<string>): string {
  let result = message;
  for (const secret of secrets)
    if (secret.length >= minRedactedLength) result = result.replaceAll(secret, "…");
  return result;
}
