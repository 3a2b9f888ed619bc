// What a metrics request may say: the bodies of `metrics/timeseries` and `metrics/list`. Their words are taken in any case
// and in the spellings that clients use, and read into those of the specification.
import * as z from "zod";
import { printInstant, type TimeRange, toInclusiveEnd } from "../../core/time.ts";
import { aggregations, metricFields, type Resolution, resolutions } from "../../metrics/measures.ts";
import {
  addIssues,
  checkRange,
  exampleRange,
  from,
  keyword,
  maxIssues,
  optional,
  type RequestTime,
  siteId,
  to,
} from "../runtime/request-body.ts";

const maxSelectors = 1_000;
const tooManySelectors = `expected at most ${maxSelectors}`;

/** A field's name as the specification spells it; `p_50` is read too, and refused once the metric's type is known. */
const field = z
  .string()
  .transform((text, context): string => {
    const name = text.toLowerCase().replace(/^p_?(?=\d+$)/, "p_");
    if (/^p_\d+$/.test(name) || metricFields.some((known) => known === name)) return name;
    context.addIssue({ code: "custom", message: `expected ${metricFields.join(", ")}` });
    return z.NEVER;
  })
  .meta({
    id: "MetricField",
    enum: [...metricFields],
    description: "What of a metric is asked for; each type of metric has its own.",
    examples: ["mean"],
  });

const aggregation = z
  .string()
  .transform((text) => (text.toLowerCase() === "average" ? "avg" : text))
  .pipe(keyword(...aggregations))
  .meta({
    id: "Aggregation",
    enum: [...aggregations],
    description: "How the values of a bucket, or of buckets, become one.",
    examples: ["avg"],
  });

const [finest, ...coarser] = Object.keys(resolutions).filter(
  (name): name is Resolution => name in resolutions,
);
const resolution = keyword(finest ?? "MINUTELY", ...coarser).meta({
  id: "Resolution",
  description: "The length of a bucket.",
  examples: ["HOURLY"],
});

/** In one pattern: each costs a source that matches by regular expressions for every value that it tries. */
const maxWildcards = 100;

/** Of one selector. */
const maxTags = 100;

/** Read by hand, because a schema of records leaves the key `__proto__` out, and a filter with it. */
const tags = z
  .unknown()
  .transform((value, context): Readonly<Record<string, string>> => {
    // Counted first: to list many takes long.
    if (countTags(value) > maxTags) {
      context.addIssue({ code: "custom", message: `expected at most ${maxTags} tags` });
      return z.NEVER;
    }
    const members = listTags(value);
    if (members === undefined) {
      const required = value === undefined || value === null ? "is required: " : "";
      context.addIssue({ code: "custom", message: `${required}expected an object` });
      return z.NEVER;
    }
    const entries: [string, string][] = [];
    const first: { at: string; message: string }[] = [];
    let count = 0;
    const report = (at: string, message: string) => {
      count += 1;
      if (count <= maxIssues) first.push({ at, message });
    };
    const seen = new Set<string>();
    for (const [key, pattern] of members) {
      if (pattern === null) continue;
      if (seen.has(key)) report(key, "is there twice");
      seen.add(key);
      if (typeof pattern !== "string") report(key, "expected a string");
      else if (key === "") report(key, "a tag's key must not be empty");
      else if (pattern.split("*").length > maxWildcards + 1)
        report(key, `expected at most ${maxWildcards} wildcards`);
      else entries.push([key, pattern]);
    }
    addIssues(context, first, count);
    return Object.fromEntries(entries);
  })
  .meta({
    type: "object",
    additionalProperties: { anyOf: [{ type: "string" }, { type: "null" }] },
    description:
      "Tag keys with their values. `*` alone means that the series has the tag, inside text it is a wildcard; a key with null counts as absent; `{}` is one series over all.",
    examples: [{ hostname: "*" }],
  });

function countTags(value: unknown): number {
  if (typeof value !== "object" || value === null) return 0;
  return Array.isArray(value) ? value.length : Object.keys(value).length;
}

/** The members of an object of tags, or of the list of `{ key, value }` that some clients send. Undefined for anything else. */
function listTags(value: unknown): readonly (readonly [key: string, pattern: unknown])[] | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (!Array.isArray(value)) return Object.entries(value);
  const members: [string, unknown][] = [];
  for (const tag of value as readonly unknown[]) {
    if (typeof tag !== "object" || tag === null || !("key" in tag) || typeof tag.key !== "string")
      return undefined;
    members.push([tag.key, "value" in tag ? tag.value : null]);
  }
  return members;
}

const limit = optional(
  z
    .number()
    .refine((value) => Number.isInteger(value) && value >= 1, {
      message: "expected a whole number from 1 up",
    })
    .meta({ type: "integer", minimum: 1 }),
).meta({ examples: [10] });

const selector = z
  .object({
    name: z.string().meta({ description: "The metric's name.", examples: ["transaction_duration"] }),
    tags,
    field,
    aggregation: optional(aggregation).meta({
      description: "The default depends on the type of the metric.",
    }),
    draw_null_as_zero: optional(z.boolean()).meta({
      description: "Fills empty buckets of series that have a value with 0.",
      examples: [false],
    }),
  })
  .meta({ id: "TimeseriesSelector", description: "Series of a metric." });
export type Selector = z.output<typeof selector>;

const common = { site_id: siteId, from, to };
export const timeseriesBody = z
  .object({
    ...common,
    resolution: optional(resolution).meta({ description: "The default has at most about 400 points." }),
    limit: limit.meta({ description: "Most series, in the order of the selectors, then of their ids." }),
    select: z
      .array(selector)
      .min(1)
      .max(maxSelectors, tooManySelectors)
      .meta({ description: "What is asked for." }),
  })
  .check(checkRange)
  .meta({
    examples: [
      {
        ...exampleRange,
        resolution: "MINUTELY",
        select: [{ name: "transaction_duration", tags: { namespace: "*" }, field: "mean" }],
      },
    ],
  });
export type TimeseriesRequest = z.output<typeof timeseriesBody>;

/** `"Name"` or `{"Tag": "hostname"}`, both words in any case. */
const grouping = z
  .unknown()
  .transform((value, context): { readonly tag: string | undefined } => {
    if (typeof value === "string" && value.toLowerCase() === "name") return { tag: undefined };
    if (typeof value === "object" && value !== null) {
      const [entry, ...others] = Object.entries(value);
      if (entry?.[0].toLowerCase() === "tag" && typeof entry[1] === "string" && others.length === 0) {
        return { tag: entry[1] };
      }
    }
    context.addIssue({ code: "custom", message: 'expected "Name" or {"Tag": "<key>"}' });
    return z.NEVER;
  })
  .meta({
    id: "GroupBy",
    anyOf: [
      { type: "string", enum: ["Name"] },
      { type: "object", properties: { Tag: { type: "string" } }, required: ["Tag"] },
    ],
    description: 'A row for each metric\'s name (`"Name"`) or each value of a tag (`{ "Tag": "hostname" }`).',
  });

export const listBody = z
  .object({
    ...common,
    resolution: optional(resolution).meta({
      description: "Values per bucket are combined by the aggregation; without it the range is one window.",
    }),
    limit: limit.meta({ description: "Most rows: those with the largest value of the first selector." }),
    select: z
      .array(
        selector
          .extend({
            id: z
              .string()
              .meta({ description: "Names the value in each row's `data`.", examples: ["mean_ms"] }),
          })
          .meta({ id: "ListSelector", description: "A value of each row." }),
      )
      .min(1)
      .max(maxSelectors, tooManySelectors)
      .meta({ description: "What is asked for." }),
    group_by: z
      .array(grouping)
      .max(maxSelectors, tooManySelectors)
      .meta({ description: "What makes a row.", examples: [[{ Tag: "hostname" }]] }),
  })
  .check(checkRange)
  .check(({ value, issues }) => {
    const seen = new Map<string, number>();
    for (const [index, { id }] of value.select.entries()) {
      const first = seen.get(id);
      if (first === undefined) seen.set(id, index);
      else issues.push(createIssue(["select", index, "id"], `is the id of select.${first} too`, id));
    }
    const byName = value.group_by.some(({ tag }) => tag === undefined);
    for (const [index, { tag }] of value.group_by.entries()) {
      if (!byName || tag !== "Name") continue;
      issues.push(
        createIssue(["group_by", index], 'a tag "Name" cannot stand beside the metric\'s name', tag),
      );
    }
  })
  .meta({
    examples: [
      {
        ...exampleRange,
        select: [{ id: "mean_ms", name: "transaction_duration", tags: { namespace: "*" }, field: "mean" }],
        group_by: [{ Tag: "namespace" }],
        limit: 10,
      },
    ],
  });
export type ListRequest = z.output<typeof listBody>;

function createIssue(path: PropertyKey[], message: string, input: unknown): z.core.$ZodRawIssue {
  return { code: "custom", path, message, input };
}

/** `to` takes in its whole millisecond, unless it is finer. */
export function toTimeRange({
  from,
  to,
}: {
  readonly from: RequestTime;
  readonly to: RequestTime;
}): TimeRange {
  return { from: from.instant, to: toInclusiveEnd(to.instant) };
}

/** The range as an answer repeats it. */
export function printRange({ from, to }: { readonly from: RequestTime; readonly to: RequestTime }): string {
  return `"from":"${printInstant(from.instant)}","to":"${printInstant(to.instant)}"`;
}
