// Reads request bodies: zod finds all that is wrong at once, and every word a client can see about it is chosen here.
// A schema that transforms carries in its `meta` what the wire side of it looks like, which zod cannot know.
import * as z from "zod";
import { type Issue, Unprocessable } from "../errors.ts";
import { type Instant, inclusiveEnd, parseInstant } from "../time.ts";

/** A time of a request, with its text: whether a bound takes in its whole millisecond depends on its digits. */
export interface RequestTime {
  readonly instant: Instant;
  readonly text: string;
}

/** `null` in a body means absent (contract, "Everywhere"). */
export function optional<T extends z.ZodType>(schema: T) {
  return schema.nullish().transform((value) => value ?? undefined);
}

/** ISO 8601 as `parseInstant` takes it. */
export const time = z
  .string()
  .transform((text, context): RequestTime => {
    const instant = parseInstant(text);
    if (instant !== undefined) return { instant, text };
    context.addIssue({
      code: "custom",
      message: "expected an ISO 8601 time with a zone, such as 2026-01-31T12:00:00.000Z",
    });
    return z.NEVER;
  })
  .meta({ format: "date-time" });

export const siteId = z.string().meta({
  description:
    "The site to query. One that the token may not see is answered as one that does not exist: 404.",
  examples: ["demo-shop"],
});
export const from = time.meta({ description: "Range start, inclusive.", examples: ["2026-01-31T12:00:00Z"] });
export const to = time.meta({ description: "Range end, inclusive.", examples: ["2026-01-31T13:00:00Z"] });

/** `from` after `to` is an error, also where only one digit below the millisecond makes it so. */
export function checkRange({
  value: { from, to },
  issues,
}: z.core.ParsePayload<{ from?: RequestTime | undefined; to?: RequestTime | undefined }>): void {
  if (from === undefined || to === undefined || from.instant <= inclusiveEnd(to.text, to.instant)) return;
  issues.push({ code: "custom", path: ["from"], message: "is later than to", input: from.text });
}

/** One of the words, in any case, as the specification spells it. */
export function word<const W extends string>(...words: readonly [W, ...W[]]) {
  return z
    .string()
    .transform((text, context): W => {
      const found = words.find((candidate) => candidate.toLowerCase() === text.toLowerCase());
      if (found !== undefined) return found;
      context.addIssue({ code: "custom", message: `expected ${words.join(" or ")}` });
      return z.NEVER;
    })
    .meta({ enum: [...words] });
}

export const order = word("ASC", "DESC").meta({
  id: "Order",
  description: "Oldest (or least) or newest (or greatest) first.",
  examples: ["DESC"],
});

export function integer(least: number, most: number) {
  const message = `expected a whole number from ${least} to ${most}`;
  return z
    .number()
    .refine((value) => Number.isInteger(value) && value >= least && value <= most, { message })
    .meta({ type: "integer", minimum: least, maximum: most });
}

/** @throws {Unprocessable} `invalid_request` with every issue of the body */
export function parseRequest<T extends z.ZodType>(schema: T, raw: unknown): z.output<T> {
  const result = schema.safeParse(raw, { error: describe });
  if (result.success) return result.data;
  throw invalidRequest(result.error.issues.map(({ path, message }) => ({ path: path.join("."), message })));
}

export function invalidRequest(issues: readonly Issue[]): Unprocessable<"invalid_request"> {
  const told = issues.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  return new Unprocessable("invalid_request", `The request is not valid: ${told.join("; ")}`, { issues });
}

const articles: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  boolean: "true or false",
  array: "an array",
  object: "an object",
};

function describe(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === "invalid_type") {
    const expected = `expected ${articles[issue.expected] ?? issue.expected}`;
    return issue.input === undefined || issue.input === null ? `is required: ${expected}` : expected;
  }
  if (issue.code === "too_small" && issue.origin === "array") return `expected at least ${issue.minimum}`;
  return undefined;
}
