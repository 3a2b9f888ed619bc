// Reads request bodies: zod finds all that is wrong at once, and every word a client can see about it is chosen here.
// A schema that transforms carries in its `meta` what the wire side of it looks like, which zod cannot know.
import * as z from "zod";
import { type Issue, Unprocessable } from "../../core/errors.ts";
import { type Instant, parseInstant, toInclusiveEnd } from "../../core/time.ts";

/** A time of a request, with its text as the audit log has it. */
export interface RequestTime {
  readonly instant: Instant;
  readonly text: string;
}

/** `null` in a body means absent. */
export function optional<T extends z.ZodType>(schema: T) {
  return schema.nullish().transform((value) => value ?? undefined);
}

const expectedTime = "expected an ISO 8601 time with a zone, such as 2026-01-31T12:00:00.000Z";

/** ISO 8601 as `parseInstant` takes it; numbers are told so too, which some clients send as times. */
export const time = z
  .string({ error: ({ input }) => (isAbsent(input) ? `is required: ${expectedTime}` : expectedTime) })
  .transform((text, context): RequestTime => {
    const instant = parseInstant(text);
    if (instant !== undefined) return { instant, text };
    context.addIssue({ code: "custom", message: expectedTime });
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
/** What examples of ranges ask for. */
export const exampleRange = {
  site_id: "demo-shop",
  from: "2026-01-31T12:00:00Z",
  to: "2026-01-31T13:00:00Z",
};

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;
/** Whether it is a `RequestTime`, and not what a client has sent in its place. */
const isTime = (value: unknown): boolean => isObject(value) && typeof value.instant === "bigint";

/**
 * A first bound after the last is an error, also where only one digit below the millisecond makes it so. Told beside whatever
 * else is wrong, as soon as these two could be read.
 */
export function createRangeCheck<First extends string, Last extends string>(first: First, last: Last) {
  return z.refine<Readonly<Partial<Record<First | Last, RequestTime | undefined>>>>(
    ({ [first]: from, [last]: to }) =>
      from === undefined || to === undefined || from.instant <= toInclusiveEnd(to.instant),
    {
      path: [first],
      message: `is later than ${last}`,
      when: ({ value }) => isObject(value) && isTime(value[first]) && isTime(value[last]),
    },
  );
}

export const checkRange = createRangeCheck("from", "to");

/**
 * Of what is wrong with the members of a value that is read by hand: the first, as many as can be told, and how many there
 * are in all.
 */
export function addIssues(
  context: z.RefinementCtx,
  first: readonly { readonly at: string | number; readonly message: string }[],
  count: number,
): void {
  const last = first.length - 1;
  for (const [index, { at, message }] of first.entries()) {
    const params = index === last ? { untold: count - first.length } : {};
    context.addIssue({ code: "custom", path: [at], message, params });
  }
}

/** Many times as many sites, sources or digests as one request is about. */
const maxTexts = 10_000;

/** A list of texts, read by hand: half a million numbers fit into a body, and zod would make an issue of each. */
export function textList(least: 0 | 1 = 0) {
  return z
    .array(z.unknown())
    .min(least)
    .transform((values, context): readonly string[] => {
      if (values.length > maxTexts) {
        context.addIssue({ code: "custom", message: `expected at most ${maxTexts}` });
        return z.NEVER;
      }
      const read = values.filter((value) => typeof value === "string");
      const count = values.length - read.length;
      const first: { at: number; message: string }[] = [];
      for (let at = 0; first.length < Math.min(count, maxIssues); at += 1) {
        const value = values[at];
        if (typeof value !== "string") first.push({ at, message: describeExpectedText(value) });
      }
      addIssues(context, first, count);
      return read;
    })
    .meta({ items: { type: "string" } });
}

/** One of the words, in any case, as the specification spells it. */
export function keyword<const W extends string>(...words: readonly [W, ...W[]]) {
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

export const orders = ["ASC", "DESC"] as const;

export const order = keyword(...orders).meta({
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

/** More would make the answer many times as large as the request. */
export const maxIssues = 100;

/** @throws {Unprocessable} `invalid_request` with the issues of the body, all at once */
export function parseRequest<T extends z.ZodType>(schema: T, raw: unknown): z.output<T> {
  const result = schema.safeParse(raw, { error: describeIssue });
  if (result.success) return result.data;
  const { issues } = result.error;
  let count = issues.length;
  for (const issue of issues) if (issue.code === "custom") count += Number(issue.params?.untold ?? 0);
  const told = issues.slice(0, maxIssues);
  throw createInvalidRequest(
    told.map(({ path, message }) => ({ path: path.join("."), message })),
    count,
  );
}

/** The first of `count` issues. */
export function createInvalidRequest(
  all: readonly Issue[],
  count = all.length,
): Unprocessable<"invalid_request"> {
  const issues = all.slice(0, maxIssues);
  const told = issues.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  const more = count > issues.length ? `; and ${count - issues.length} more` : "";
  return new Unprocessable("invalid_request", `The request is not valid: ${told.join("; ")}${more}`, {
    issues,
  });
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}

const expectedTypes: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  boolean: "true or false",
  array: "an array",
  object: "an object",
};

function describeExpectedText(value: unknown): string {
  return value === null ? "is required: expected a string" : "expected a string";
}

function describeIssue(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === "invalid_type") {
    const expected = `expected ${expectedTypes[issue.expected] ?? issue.expected}`;
    return isAbsent(issue.input) ? `is required: ${expected}` : expected;
  }
  if (issue.code === "too_small" && issue.origin === "array") return `expected at least ${issue.minimum}`;
  return undefined;
}
