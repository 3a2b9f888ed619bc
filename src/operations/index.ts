// Every endpoint. The router, the metric labels and the tests walk this list; nothing else knows a route.
import { nodes, pods, podsOverview } from "./kubernetes.ts";
import { lines } from "./logs.ts";
import { list, names, timeseries, typeAndTags } from "./metrics.ts";
import { auth } from "./misc.ts";
import { type Endpoint, endpoint } from "./operation.ts";

export const operations: readonly Endpoint[] = [
  endpoint(lines),
  endpoint(timeseries),
  endpoint(list),
  endpoint(names),
  endpoint(typeAndTags),
  endpoint(nodes),
  endpoint(pods),
  endpoint(podsOverview),
  endpoint(auth),
];
