// Every endpoint. The router, the metric labels and the tests walk this list; nothing else knows a route.

import { testCron } from "./check-ins.ts";
import { errorSamples, markers, performanceSamples, sample, samples, tokenInfo } from "./client-routes.ts";
import { nodes, pods, podsOverview } from "./kubernetes/kubernetes.ts";
import { counts } from "./logs/counts.ts";
import { csv, ndjson } from "./logs/export.ts";
import { lines } from "./logs/lines.ts";
import { tail } from "./logs/tail-request.ts";
import { list } from "./metrics/list.ts";
import { names, typeAndTags } from "./metrics/names.ts";
import { timeseries } from "./metrics/timeseries.ts";
import { savedVisual, savedVisualCsv } from "./metrics/visuals.ts";
import { createEndpoint, type Endpoint } from "./runtime/operation.ts";
import { actionEdges, actions, siteEdges, slowEventActions, slowEvents } from "./traces/analytics.ts";
import { deployStats } from "./traces/deploys.ts";
import { errorTraces, performanceTraces } from "./traces/listings.ts";
import { errorTrace, locator, performanceTrace, trace } from "./traces/trace.ts";
import { auth, viewer, visualSite } from "./viewer.ts";

export const operations: readonly Endpoint[] = [
  createEndpoint(lines, [tail, ndjson, csv]),
  createEndpoint(counts),
  createEndpoint(locator),
  createEndpoint(trace),
  createEndpoint(performanceTrace),
  createEndpoint(errorTrace),
  createEndpoint(performanceTraces),
  createEndpoint(errorTraces),
  createEndpoint(actions),
  createEndpoint(actionEdges),
  createEndpoint(siteEdges),
  createEndpoint(slowEvents),
  createEndpoint(slowEventActions),
  createEndpoint(deployStats),
  createEndpoint(testCron),
  createEndpoint(savedVisual),
  createEndpoint(savedVisualCsv),
  createEndpoint(timeseries),
  createEndpoint(list),
  createEndpoint(names),
  createEndpoint(typeAndTags),
  createEndpoint(nodes),
  createEndpoint(pods),
  createEndpoint(podsOverview),
  createEndpoint(auth),
];

/** Routes of existing clients and of the console beside `/api/v2`, which are served and not documented by schemas. */
export const clientOperations: readonly Endpoint[] = [
  createEndpoint(markers),
  createEndpoint(samples),
  createEndpoint(errorSamples),
  createEndpoint(performanceSamples),
  createEndpoint(sample),
  createEndpoint(tokenInfo),
  createEndpoint(viewer),
  createEndpoint(visualSite),
];
