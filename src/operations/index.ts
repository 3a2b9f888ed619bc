// Every endpoint. The router, the metric labels and the tests walk this list; nothing else knows a route.

import { testCron } from "./check-ins.ts";
import { nodes, pods, podsOverview } from "./kubernetes/kubernetes.ts";
import { csv, ndjson } from "./logs/export.ts";
import { lines } from "./logs/lines.ts";
import { tail } from "./logs/tail-request.ts";
import { list, names, timeseries, typeAndTags } from "./metrics/metrics.ts";
import { savedVisual, savedVisualCsv } from "./metrics/visuals.ts";
import { type Endpoint, endpoint } from "./runtime/operation.ts";
import { auth } from "./token-check.ts";
import { deployStats } from "./traces/deploys.ts";
import { errorTraces, performanceTraces } from "./traces/listings.ts";
import { actionEdges, actions, siteEdges, slowEventActions, slowEvents } from "./traces/routes-analytics.ts";
import { errorTrace, locator, performanceTrace, trace } from "./traces/trace.ts";

export const operations: readonly Endpoint[] = [
  endpoint(lines, [tail, ndjson, csv]),
  endpoint(locator),
  endpoint(trace),
  endpoint(performanceTrace),
  endpoint(errorTrace),
  endpoint(performanceTraces),
  endpoint(errorTraces),
  endpoint(actions),
  endpoint(actionEdges),
  endpoint(siteEdges),
  endpoint(slowEvents),
  endpoint(slowEventActions),
  endpoint(deployStats),
  endpoint(testCron),
  endpoint(savedVisual),
  endpoint(savedVisualCsv),
  endpoint(timeseries),
  endpoint(list),
  endpoint(names),
  endpoint(typeAndTags),
  endpoint(nodes),
  endpoint(pods),
  endpoint(podsOverview),
  endpoint(auth),
];
