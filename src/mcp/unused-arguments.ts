// Which arguments of a call have no effect. An agent takes each of them for a filter, so that its answer has to name those that
// are none.
import * as z from "zod";
import type { Endpoint } from "../operations/runtime/operation.ts";
import { type Args, filledKeys } from "./tool-arguments.ts";
import type { Tool, ToolPlan } from "./tools.ts";

const siteKeys: readonly string[] = ["app_name", "app_environment", "site_id"];
const pageKeys: readonly string[] = ["per_page", "max_characters", "offset", "cursor"];

const maxNamed = 20;
const maxKeyChars = 100;

/** Undefined where all have an effect. */
export function describeUnused(
  args: Args,
  isUsed: (key: string) => boolean,
  call = "this call",
): string | undefined {
  const unused = Object.keys(args).filter((key) => !isUsed(key));
  if (unused.length === 0) return undefined;
  const named = unused.slice(0, maxNamed).map((key) => key.slice(0, maxKeyChars));
  const more = unused.length > named.length ? ` and ${unused.length - named.length} more` : "";
  return `These arguments have no effect on ${call}: ${named.join(", ")}${more}.`;
}

/** Of `explain`, whose answer is one row. */
export function isUsedByExplain(key: string): boolean {
  return ["tool", "arguments", "max_characters", "offset"].includes(key);
}

/** Of a tool without an operation, or with `range` where it has one. */
export function createToolCheck(tool: Tool, args: Args, range?: Args): (key: string) => boolean {
  const isAboutSite = tool.isAboutSite === true || range !== undefined;
  return (key) =>
    isPageKey(key, args) ||
    (isAboutSite && siteKeys.includes(key)) ||
    (range !== undefined && isRangeKey(key, args, range)) ||
    Object.hasOwn(tool.extra ?? {}, key);
}

/** Of a tool whose operation is planned, with the range of the plan. */
export function createPlanCheck(
  tool: Tool,
  { request, pages, unused = [] }: ToolPlan,
  endpoint: Endpoint,
  args: Args,
): (key: string) => boolean {
  const shape: Args = endpoint.request instanceof z.ZodObject ? endpoint.request.shape : {};
  return (key) => {
    if (isPageKey(key, args) || siteKeys.includes(key)) return true;
    if (["start", "end", "from", "to"].includes(key))
      return Object.hasOwn(shape, "from") && isRangeKey(key, args, request);
    if (Object.hasOwn(tool.extra ?? {}, key)) return !unused.includes(key);
    if (key === "pagination" && pages !== undefined) return false;
    // What a tool fills in itself has no effect where it differs.
    return Object.hasOwn(shape, key) && (!filledKeys.includes(key) || request[key] === args[key]);
  };
}

/** A number of a page has no effect beside a cursor. */
function isPageKey(key: string, { cursor }: Args): boolean {
  return pageKeys.includes(key) || (key === "page" && cursor === undefined);
}

function isRangeKey(key: string, args: Args, { from, to }: Args): boolean {
  if (key === "start" || key === "from") return args[key] === from;
  return (key === "end" || key === "to") && args[key] === to;
}
