// The bodies of the trace listings and of trace details, as schemas.
import * as z from "zod";
import { normaliseId } from "../../tracing/spans/span-ids.ts";
import {
  checkRange,
  from,
  integer,
  keyword,
  optional,
  order,
  type RequestTime,
  textList,
  time,
  to,
} from "../runtime/request-body.ts";

export const siteIds = textList(1)
  // A site that is named often is read once.
  .transform((ids): readonly string[] => [...new Set(ids)])
  .meta({
    items: { type: "string" },
    description: "The sites to query; one that the token may not see makes the whole request a 404.",
    examples: [["demo-shop"]],
  });

export const traceId = z
  .string()
  .transform((text) => normaliseId(text, 32))
  .meta({
    description: "Identifier of the trace in hex digits of either case, zeros on the left or not.",
    examples: ["5b8efff798038103d269b633813fc60c"],
  });

const nonNegative = z.number().min(0, { message: "expected 0 or more" });

/** Where a listing goes on. */
interface ListingCursor {
  readonly by: "time" | "duration";
  readonly time?: RequestTime | undefined;
  /** Milliseconds. */
  readonly duration?: number | undefined;
}

export const cursor = z
  .union(
    [
      keyword("Time", "Duration").transform(
        (by): ListingCursor => ({ by: by === "Time" ? "time" : "duration" }),
      ),
      z
        .object({ time: optional(time), duration: z.union([nonNegative, z.null()]).optional() })
        .transform((object): ListingCursor => {
          const { time: after, duration } = object;
          if (typeof duration === "number") return { by: "duration", duration };
          // With both, `null` means absent for either.
          return { by: duration === null && !("time" in object) ? "duration" : "time", time: after };
        }),
    ],
    { error: 'expected "Time", "Duration", { "time": … } or { "duration": … }' },
  )
  .meta({ id: "TraceCursor", description: "The order of a listing, and where the previous page ended." });

const optionalCursor = optional(cursor).meta({
  description:
    'What the listing is ordered by: `"Time"` or `"Duration"`. To go on behind a row, `{ "time": … }` or `{ "duration": … }` with its value; null is the first page.',
  examples: [{ time: null }],
});

export const perPage = integer(1, 10_000).meta({
  description:
    "Rows of a page; more come only to complete a millisecond or a duration, fewer only at the end.",
  examples: [25],
});

export const pagination = z
  .object({
    per_page: perPage,
    order: optional(order).meta({ description: "The default is DESC." }),
    cursor: optionalCursor,
  })
  .meta({ id: "TracePagination", description: "Which page of a listing of traces." });

const filterFields = {
  site_ids: siteIds,
  digests: optional(textList()).meta({
    description: "Digests of actions or errors, any of them; an empty list filters nothing.",
    examples: [[]],
  }),
  action_name: optional(z.string()).meta({ description: "The action's name.", examples: ["GET /checkout"] }),
  namespace: optional(z.string()).meta({ description: "The namespace.", examples: ["web"] }),
  query: optional(z.string()).meta({
    description:
      "Terms with `=`, `!=`, `:`, `!:` over `tag.<name>`, `revision`, `trace_id`, `span_id`, `site_id`, `namespace` and `action_name`; a bare word is looked for in the action's name and the tags' values.",
    examples: ["tag.region=eu-west"],
  }),
  duration: optional(nonNegative).meta({
    description: "Least duration of the request.",
    "x-unit": "ms",
    examples: [100],
  }),
  duration_ms: optional(nonNegative).meta({
    description: "The same under another name; `duration` wins.",
    "x-unit": "ms",
    examples: [100],
  }),
  from: optional(from).meta({
    description: "Range start, inclusive. The default is the sites' retention bound.",
  }),
  to: optional(to).meta({ description: "Range end, inclusive. The default is now." }),
  ttl: optional(nonNegative).meta({
    description: "How far back requests are looked for, together with `from`.",
    "x-unit": "s",
    examples: [86_400],
  }),
};

/** Spec, "TracesQuery". */
export const listingBody = z
  .object({
    ...filterFields,
    pagination: pagination.meta({ description: "The size, the order and the position of the page." }),
  })
  .check(checkRange)
  .meta({
    examples: [
      { site_ids: ["demo-shop"], pagination: { per_page: 25, order: "DESC", cursor: { time: null } } },
      {
        site_ids: ["demo-shop", "demo-blog"],
        namespace: "web",
        duration: 100,
        pagination: { per_page: 10, order: "DESC", cursor: "Duration" },
      },
    ],
  });

/** On detail routes it chooses one trace, by its id or as the first of a listing. */
export const detailBody = z
  .object({
    ...filterFields,
    trace_id: optional(traceId),
    pagination: optional(
      pagination.extend({ per_page: optional(perPage) }).meta({
        id: "TraceChoice",
        description: "The order in which the first trace is chosen.",
      }),
    ).meta({ description: "Which trace is the first." }),
  })
  .check(checkRange)
  .meta({ examples: [{ site_ids: ["demo-shop"], namespace: "web" }] });

/** What both bodies come to. */
export type TracesQuery = Omit<z.output<typeof detailBody>, "trace_id"> & {
  readonly trace_id?: string | undefined;
};
