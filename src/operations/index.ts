// Every endpoint. The router, the metric labels and the tests walk this list; nothing else knows a route.
import { testCron } from "./check_ins.ts";
import { lines } from "./logs.ts";
import { auth } from "./misc.ts";
import { type Endpoint, endpoint } from "./operation.ts";

export const operations: readonly Endpoint[] = [endpoint(lines), endpoint(auth), endpoint(testCron)];
