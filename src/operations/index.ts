// Every endpoint. The router, the metric labels and the tests walk this list; nothing else knows a route.
import { actionEdges, actions, siteEdges, slowEventActions, slowEvents } from "./analytics.ts";
import { testCron } from "./check_ins.ts";
import { deployStats } from "./deploys.ts";
import { csv, ndjson } from "./export.ts";
import { nodes, pods, podsOverview } from "./kubernetes.ts";
import { errorTraces, performanceTraces } from "./listings.ts";
import { lines } from "./logs.ts";
import { list, names, timeseries, typeAndTags } from "./metrics.ts";
import { auth } from "./misc.ts";
import { type Endpoint, endpoint } from "./operation.ts";
import { tail } from "./tail.ts";
import { errorTrace, locator, performanceTrace, trace } from "./trace.ts";
import { savedVisual, savedVisualCsv } from "./visuals.ts";

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
