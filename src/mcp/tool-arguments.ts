// The arguments of tools: the request of an operation as its own schema has it, with the names that agents use for sites and
// ranges, and how an answer is paged.
import * as z from "zod";
import type { Site } from "../access/sites.ts";
import { NotFound } from "../core/errors.ts";
import {
  allTime,
  fromMillis,
  hour,
  type Instant,
  later,
  type Millis,
  parseInstant,
  printInstant,
} from "../core/time.ts";
import type { JsonSchema, OperationDescriptions } from "../operations/runtime/json-schema.ts";
import {
  createInvalidRequest,
  integer,
  optional,
  order,
  parseRequest,
} from "../operations/runtime/request-body.ts";

export type Args = Readonly<Record<string, unknown>>;

/** Of all arguments of a call, as JSON. */
const maxArgumentBytes = 65_536;

export const defaultPageSize = 50;
/** Of a page of an operation. */
export const maxReadRows = 10_000;
/** Up to the end of a page that has a number. */
const maxPageRows = maxReadRows - 1;

export const defaultCellChars = 2_000;
const maxOffset = 100_000_000;
/** What tools take beside their operations, and no operation checks. */
const extraArguments = {
  order: optional(order),
  query: optional(z.string()),
  longest_first: optional(z.boolean()),
  snapshots: optional(z.boolean()),
  number: optional(z.int()),
  digest: optional(z.string()),
};
const ownArguments = {
  app_name: optional(z.string()),
  app_environment: optional(z.string()),
  site_id: optional(z.string()),
  start: optional(z.string()),
  end: optional(z.string()),
  namespaces: optional(z.array(z.string())),
  cursor: optional(z.string()),
  page: optional(integer(1, maxPageRows)),
  per_page: optional(integer(1, 1_000)),
  max_characters: optional(integer(100, 10_000)),
  offset: optional(integer(0, maxOffset)),
};
const checkedArguments = z
  .object({ ...ownArguments, ...extraArguments })
  .refine(({ page = 1, per_page = defaultPageSize }) => page * per_page <= maxPageRows, {
    path: ["page"],
    message: `lies beyond ${maxPageRows} rows; use the cursor`,
  });
export type OwnArguments = z.output<typeof checkedArguments>;

/** What every tool takes beside its operation's request, as JSON Schema. */
const siteProperties: Readonly<Record<string, JsonSchema>> = {
  app_name: {
    type: "string",
    description: "The site, by its id or name. May be left out where there is only one.",
  },
  app_environment: { type: "string", description: "Its environment, where several sites have one name." },
};
const rangeProperties: Readonly<Record<string, JsonSchema>> = {
  start: {
    type: "string",
    description:
      "Begin of the range, ISO 8601 with a zone. Where a range is needed, the default is an hour before its end.",
  },
  end: { type: "string", description: "End of the range, ISO 8601 with a zone. The default is now." },
};
const pageProperties: Readonly<Record<string, JsonSchema>> = {
  cursor: { type: "string", description: "From the answer before, with the same arguments: the next page." },
  page: {
    type: "integer",
    minimum: 1,
    maximum: maxPageRows,
    description: "Instead of a cursor: the number of a page.",
  },
  per_page: {
    type: "integer",
    minimum: 1,
    maximum: 1_000,
    description: `Most rows of a page; ${defaultPageSize} by default.`,
  },
  max_characters: {
    type: "integer",
    minimum: 100,
    maximum: 10_000,
    description: `Longer texts within a row are cut at a mark; ${defaultCellChars} by default.`,
  },
  offset: {
    type: "integer",
    minimum: 0,
    maximum: maxOffset,
    description: "Where the shown part of longer texts begins, as the mark tells.",
  },
};
const namesOfOwn = new Set(Object.keys(ownArguments));

/** Keys of operations that tools fill in themselves. */
export const filledKeys: readonly string[] = [
  "site_id",
  "site_ids",
  "from",
  "to",
  "pagination",
  "use_expressions",
];

/**
 * The arguments of a tool: those of its operations unless `hasOnlyOwnArguments`, `extra` ones that no operation has, and those
 * that every tool takes.
 */
export function describeArguments(
  descriptions: OperationDescriptions,
  operations: readonly string[],
  hasOnlyOwnArguments: boolean,
  extra: Readonly<Record<string, JsonSchema>>,
  required: readonly string[],
): JsonSchema & { readonly $defs?: Readonly<Record<string, JsonSchema>> } {
  const own: Record<string, JsonSchema> = {};
  let hasRange = false;
  for (const { endpoint, request } of descriptions.operations) {
    if (!operations.includes(endpoint.name)) continue;
    hasRange ||= request.properties?.from !== undefined;
    for (const [key, schema] of Object.entries(request.properties ?? {})) {
      if (!filledKeys.includes(key) && !hasOnlyOwnArguments) own[key] = schema;
    }
  }
  const properties = {
    ...siteProperties,
    ...(hasRange ? rangeProperties : {}),
    ...own,
    ...extra,
    ...pageProperties,
  };
  const $defs = collectDefinitions(properties, descriptions);
  return {
    type: "object",
    properties,
    ...(required.length === 0 ? {} : { required }),
    ...(Object.keys($defs).length === 0 ? {} : { $defs }),
  };
}

/**
 * The definitions referred to, also indirectly. A filter may refer to what rows alone have otherwise.
 * @throws {Error} a reference to no definition, which is a mistake of ours
 */
function collectDefinitions(
  properties: Readonly<Record<string, JsonSchema>>,
  { inputs, outputs }: OperationDescriptions,
): Readonly<Record<string, JsonSchema>> {
  const found: Record<string, JsonSchema> = {};
  const visit = (text: string) => {
    for (const [, id = ""] of text.matchAll(/"#\/\$defs\/([^"]+)"/g)) {
      if (found[id] !== undefined) continue;
      const definition = inputs.get(id) ?? outputs.get(id);
      if (definition === undefined) throw new Error(`no schema has the id ${id}`);
      found[id] = definition;
      visit(JSON.stringify(definition));
    }
  };
  visit(JSON.stringify(properties));
  return found;
}

/** @throws {Unprocessable} `invalid_request` */
export function parseOwnArguments(args: Args): OwnArguments {
  const bytes = Buffer.byteLength(JSON.stringify(args));
  if (bytes <= maxArgumentBytes) return parseRequest(checkedArguments, args);
  const message = `have ${bytes} bytes; expected at most ${maxArgumentBytes}`;
  throw createInvalidRequest([{ path: "arguments", message }]);
}

/** What is left of the arguments for the operation. */
export function omitOwnArguments(args: Args): Args {
  return Object.fromEntries(Object.entries(args).filter(([key]) => !namesOfOwn.has(key)));
}

/**
 * The site that is meant, among those that the token may see: by its id, else by its name and environment in any case.
 * @throws {NotFound} where there is none @throws {Unprocessable} where several are meant
 */
export function selectSite(
  { site_id, app_name, app_environment }: OwnArguments,
  sites: readonly Site[],
): Site {
  const wanted = site_id ?? app_name;
  const named = wanted === undefined ? sites : findByName(wanted, sites);
  const [site, ...others] =
    app_environment === undefined ? named : chooseByEnvironment(app_environment, named);
  if (site !== undefined && others.length === 0) return site;
  if (wanted === undefined && site !== undefined)
    throw createInvalidRequest([
      {
        path: "app_name",
        message: "is required, since the token may see several sites; get_applications lists them",
      },
    ]);
  if (site === undefined) throw new NotFound();
  throw createInvalidRequest([
    {
      path: "app_environment",
      message: `is required, since several sites have the name ${JSON.stringify(wanted)}`,
    },
  ]);
}

/** The sites of an environment; where there is none, those whose environment the configuration does not say. */
function chooseByEnvironment(wanted: string, sites: readonly Site[]): readonly Site[] {
  const found = sites.filter(({ environment }) => equalsIgnoringCase(environment ?? "", wanted));
  return found.length > 0 ? found : sites.filter(({ environment }) => environment === undefined);
}

function findByName(wanted: string, sites: readonly Site[]): readonly Site[] {
  const byId = sites.filter(({ id }) => id === wanted);
  return byId.length > 0
    ? byId
    : sites.filter(({ id, name = id }) => equalsIgnoringCase(id, wanted) || equalsIgnoringCase(name, wanted));
}

function equalsIgnoringCase(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}

/**
 * The range of a request, of all its pages. Where it has to have a begin, that is an hour before its end; else it begins with
 * the retention, as it was on the first page.
 */
export function completeRange(
  { start, end }: OwnArguments,
  args: Args,
  isRequired: boolean,
  now: string,
  retention: Millis | undefined,
): Args {
  const to = end ?? args.to ?? now;
  const from = start ?? args.from;
  if (from !== undefined && from !== null) return { from, to };
  const last = parseInstant(String(to));
  // What is no time is refused as the end of the range.
  if (isRequired) return { from: last === undefined ? to : printInstant(shiftBack(last, hour)), to };
  const present = parseInstant(now);
  if (retention === undefined || present === undefined || last === undefined) return { to };
  const first = later(allTime.from, shiftBack(present, retention));
  // A range that ends before the retention has no rows, and a begin of its own would be later than its end.
  return last < first ? { to } : { from: printInstant(first), to };
}

function shiftBack(instant: Instant, length: Millis): Instant {
  return (instant - fromMillis(length)) as Instant;
}
