// What the metrics routes answer, for documentation. `timeseries.ts` and `list.ts` print it.
import * as z from "zod";
import { metricTypes } from "../../core/rows.ts";
import { metricFields, resolutions } from "../../metrics/measures.ts";
import { instantField, textField } from "../runtime/json-schema.ts";

const range = {
  resolution: z
    .enum(Object.keys(resolutions))
    .meta({ id: "Resolution", description: "The length of a bucket.", examples: ["HOURLY"] }),
  from: instantField("As asked.", "2026-01-31T12:00:00.000Z"),
  to: instantField("As asked.", "2026-01-31T13:00:00.000Z"),
};
const extreme = (which: string) =>
  z
    .number()
    .nullable()
    .meta({
      description: `The ${which} value over the range, in the metric's own unit; null without a point.`,
      examples: [4.55],
    });

const series = z
  .object({
    id: textField("Stable across requests and ranges.", "transaction_duration|namespace=web|mean"),
    name: textField("The metric.", "transaction_duration"),
    tags: z.record(z.string(), z.string()).meta({
      description: "The values of the tags that the selector names.",
      examples: [{ namespace: "web" }],
    }),
    field: z.enum(metricFields).meta({
      id: "MetricField",
      description: "What of a metric is asked for; each type of metric has its own.",
      examples: ["mean"],
    }),
    min: extreme("least"),
    max: extreme("greatest"),
    data: z
      .array(
        z
          .object({
            timestamp: instantField("The start of the bucket.", "2026-01-31T12:00:00.000Z"),
            value: z.number().meta({ description: "In the metric's own unit.", examples: [4.55] }),
          })
          .meta({ id: "Point", description: "The value of a bucket." }),
      )
      .meta({ description: "By time; empty buckets are left out unless they are to be drawn as 0." }),
  })
  .meta({ id: "Series", description: "The values of one combination of tags." });

export const timeseriesAnswer = z
  .object({ ...range, series: z.array(series).meta({ description: "By selector, then by id." }) })
  .meta({ id: "Timeseries", description: "Series of metrics over time." });

export const metricList = z
  .object({
    ...range,
    resolution: range.resolution
      .nullable()
      .meta({ description: "As asked; null for the range as one window." }),
    rows: z
      .array(
        z
          .object({
            id: textField("Stable across requests and ranges.", "|namespace=web"),
            group: z.record(z.string(), z.string()).meta({
              description: "What makes the row: `Name` for the metric, and the values of grouped tags.",
              examples: [{ namespace: "web" }],
            }),
            data: z.record(z.string(), z.number()).meta({
              description:
                "By the ids of the selectors, in the metrics' own units; one without a value is left out.",
              examples: [{ mean_ms: 4.55 }],
            }),
          })
          .meta({ id: "MetricRow", description: "The values of one group." }),
      )
      .meta({ description: "The largest value of the first selector first." }),
  })
  .meta({ id: "MetricList", description: "Values of metrics in groups." });

export const metricNames = z
  .array(z.string())
  .meta({ description: "Every name, sorted.", examples: [["error_rate", "transaction_duration"]] });

export const metricType = z
  .object({
    metric_type: z
      .enum(metricTypes)
      .meta({ id: "MetricType", description: "What a metric measures.", examples: ["measurement"] }),
    available_tags: z.array(z.array(z.string())).meta({
      description: "Each combination of tag keys that some series has; empty for an untagged metric.",
      examples: [[["namespace"], ["action", "namespace"]]],
    }),
  })
  .meta({ id: "MetricTypeAndTags", description: "What a metric is, and which tags it has." });

export const visualAnswer = z
  .object({
    id: textField("As asked.", "9Ubquyg0qqEEfpH6Xefmrg"),
    title: textField("The visual's title.", "Response times"),
    description: textField("What it shows.", "Of web requests"),
    type: textField("How it is meant to be drawn.", "timeseries"),
    ...timeseriesAnswer.shape,
    resolution: metricList.shape.resolution,
    series: timeseriesAnswer.shape.series.optional().meta({ description: "Of a visual over time." }),
    rows: metricList.shape.rows.optional().meta({ description: "Of a list or a table." }),
  })
  .meta({ id: "SavedVisual", description: "A published view of metrics." });
