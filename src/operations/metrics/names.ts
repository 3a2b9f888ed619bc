// `metrics/names` and `metrics/type_and_tags`: which metrics a site has, what they are, and by which tags they differ.
import * as z from "zod";
import { NotFound } from "../../core/errors.ts";
import type { MetricType } from "../../core/rows.ts";
import type { Operation } from "../runtime/operation.ts";
import { siteId } from "../runtime/request-body.ts";
import { findMetricsPart } from "./read-series.ts";
import { metricNames, metricType } from "./schema.ts";

const namesPath = z.object({ site_id: siteId });

export const names: Operation<z.output<typeof namesPath>, readonly string[]> = {
  name: "metrics.names",
  method: "GET",
  path: "/api/v2/metrics/names/{site_id}",
  access: "token",
  scope: "metrics",
  summary: "Every metric of a site",
  description: "A histogram or a summary is one metric.",
  request: namesPath,
  answer: metricNames,
  sites: ({ site_id }) => [site_id],
  mayBePartial: () => true,
  run: async ({ site_id }, { sites, signal }) => {
    const { store, match } = findMetricsPart(sites.get(site_id));
    return await store.names(match, signal);
  },
};

const metricPath = z.object({
  site_id: siteId,
  metric_name: z.string().meta({ description: "The metric's name.", examples: ["transaction_duration"] }),
});

interface TypeAndTags {
  readonly metric_type: MetricType;
  readonly available_tags: readonly (readonly string[])[];
}

export const typeAndTags: Operation<z.output<typeof metricPath>, TypeAndTags> = {
  name: "metrics.type_and_tags",
  method: "GET",
  path: "/api/v2/metrics/type_and_tags/{site_id}/{metric_name}",
  access: "token",
  scope: "metrics",
  summary: "What a metric is, and which tags it has",
  description: "404 for a metric that the site does not have.",
  request: metricPath,
  answer: metricType,
  sites: ({ site_id }) => [site_id],
  run: async ({ site_id, metric_name: metric }, { sites, signal }) => {
    const { store, match } = findMetricsPart(sites.get(site_id));
    const [type, keys] = await Promise.all([
      store.type(match, metric, signal),
      store.tagKeys(match, metric, signal),
    ]);
    if (type === undefined || keys === undefined) throw new NotFound();
    return { metric_type: type, available_tags: keys };
  },
};
