// What a metrics request may say: the bodies of `metrics/timeseries` and `metrics/list`. Their words are taken in any case
// and in the spellings that clients use, and read into those of the specification.
import * as z from "zod";
import { aggregations, fields, type Resolution, resolutions } from "../metrics.ts";
import { inclusiveEnd, type TimeRange } from "../time.ts";
import { optional, type RequestTime, time, word } from "./request.ts";

const mostSelectors = 1_000;
const tooMany = `expected at most ${mostSelectors}`;

/** A field's name as the specification spells it; `p_50` is read too, and refused once the metric's type is known. */
const field = z.string().transform((text, context): string => {
  const name = text.toLowerCase().replace(/^p_?(?=\d+$)/, "p_");
  if (/^p_\d+$/.test(name) || fields.some((known) => known === name)) return name;
  context.addIssue({ code: "custom", message: `expected ${fields.join(", ")}` });
  return z.NEVER;
});

const aggregation = z
  .string()
  .transform((text) => (text.toLowerCase() === "average" ? "avg" : text))
  .pipe(word(...aggregations));

const [finest, ...coarser] = Object.keys(resolutions).filter(
  (name): name is Resolution => name in resolutions,
);
const resolution = word(finest ?? "MINUTELY", ...coarser);

/** Read by hand, because a schema of records leaves the key `__proto__` out, and a filter with it. */
const tags = z.unknown().transform((value, context): Readonly<Record<string, string>> => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    const required = value === undefined || value === null ? "is required: " : "";
    context.addIssue({ code: "custom", message: `${required}expected an object` });
    return z.NEVER;
  }
  const entries: [string, string][] = [];
  for (const [key, pattern] of Object.entries(value)) {
    if (typeof pattern === "string" && key !== "") entries.push([key, pattern]);
    else if (pattern !== null) {
      const message = key === "" ? "a tag's key must not be empty" : "expected a string";
      context.addIssue({ code: "custom", path: [key], message });
    }
  }
  return Object.fromEntries(entries);
});

const limit = optional(
  z.number().refine((value) => Number.isInteger(value) && value >= 1, {
    message: "expected a whole number from 1 up",
  }),
);

const selector = z.object({
  name: z.string(),
  tags,
  field,
  aggregation: optional(aggregation),
  draw_null_as_zero: optional(z.boolean()),
});
export type Selector = z.output<typeof selector>;

const common = { site_id: z.string(), from: time, to: time, resolution: optional(resolution), limit };
export const timeseriesBody = z
  .object({ ...common, select: z.array(selector).min(1).max(mostSelectors, tooMany) })
  .check(({ value, issues }) => {
    issues.push(...rangeIssues(value));
  });
export type TimeseriesRequest = z.output<typeof timeseriesBody>;

/** `"Name"` or `{"Tag": "hostname"}`, both words in any case. */
const grouping = z.unknown().transform((value, context): { readonly tag: string | undefined } => {
  if (typeof value === "string" && value.toLowerCase() === "name") return { tag: undefined };
  if (typeof value === "object" && value !== null) {
    const [entry, ...others] = Object.entries(value);
    if (entry?.[0].toLowerCase() === "tag" && typeof entry[1] === "string" && others.length === 0) {
      return { tag: entry[1] };
    }
  }
  context.addIssue({ code: "custom", message: 'expected "Name" or {"Tag": "<key>"}' });
  return z.NEVER;
});

export const listBody = z
  .object({
    ...common,
    select: z
      .array(selector.extend({ id: z.string() }))
      .min(1)
      .max(mostSelectors, tooMany),
    group_by: z.array(grouping),
  })
  .check(({ value, issues }) => {
    issues.push(...rangeIssues(value));
    const seen = new Map<string, number>();
    for (const [index, { id }] of value.select.entries()) {
      const first = seen.get(id);
      if (first === undefined) seen.set(id, index);
      else issues.push(issue(["select", index, "id"], `is the id of select.${first} too`, id));
    }
    const byName = value.group_by.some(({ tag }) => tag === undefined);
    for (const [index, { tag }] of value.group_by.entries()) {
      if (!byName || tag !== "Name") continue;
      issues.push(issue(["group_by", index], 'a tag "Name" cannot stand beside the metric\'s name', tag));
    }
  });
export type ListRequest = z.output<typeof listBody>;

function rangeIssues({ from, to }: { readonly from: RequestTime; readonly to: RequestTime }) {
  return from.instant <= inclusiveEnd(to.text, to.instant)
    ? []
    : [issue(["from"], "is later than to", from.text)];
}

function issue(path: PropertyKey[], message: string, input: unknown): z.core.$ZodRawIssue {
  return { code: "custom", path, message, input };
}

/** `to` takes in its whole millisecond, unless it is finer. */
export function rangeOf({ from, to }: { readonly from: RequestTime; readonly to: RequestTime }): TimeRange {
  return { from: from.instant, to: inclusiveEnd(to.text, to.instant) };
}
