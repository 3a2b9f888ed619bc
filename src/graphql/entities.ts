// What a gateway that composes subgraphs (Federation 2) asks for: objects by their keys, and the schema with those keys. A
// key passes the same site check, scope and tenant filter as the operation that answers its rows; one that may not be seen is
// null exactly as one that is not there. The keys of one request that are of one site and kind are asked for together.
import { extendSchema, GraphQLError, type GraphQLSchema, isUnionType, parse } from "graphql";
import { earlier, later, parseInstant } from "../core/time.ts";
import {
  prepareDeploys,
  prepareLinesByKey,
  preparePodLines,
  preparePodsNow,
} from "../operations/entity-operations.ts";
import type { Row } from "../operations/link-operations.ts";
import { createInvalidRequest } from "../operations/runtime/request-body.ts";
import type { Resolvers, Session } from "../operations/runtime/session.ts";
import { prepareLinkedSpans } from "../operations/trace-links.ts";
import {
  buildTraceRef,
  checkBetween,
  loadBatched,
  type MarkedRow,
  readSite,
  setResolvers,
  toInstant,
} from "./links.ts";
import { entityKeys, printSubgraph } from "./subgraph.ts";

const typeDefs = /* GraphQL */ `
  extend type Query {
    "A pod, as it is at the last full minute; null if it does not exist, or if the namespace or the name is null."
    pod("Its site." site_id: String!, "Its Kubernetes namespace." namespace: String, "Its name." name: String): Pod
    "For gateways that compose subgraphs: this one, with its keys."
    _service: _Service!
    "For gateways that compose subgraphs: objects by their keys; null for one that is not there."
    _entities("Each has \`__typename\` and the fields of a key." representations: [_Any!]!): [_Entity]!
  }
  "What a gateway asks a subgraph for first."
  type _Service {
    "The schema without the fields for existing clients, with the directives of Federation 2."
    sdl: String!
  }
  "The key of an object, with its \`__typename\`."
  scalar _Any
  "What has a key."
  union _Entity = Site | Trace | Pod | LogLine | Deploy
  "A pod of a site, at any time."
  type Pod {
    "Its site."
    site_id: String!
    "Its Kubernetes namespace."
    namespace: String!
    "Its name."
    name: String!
    "As it is at the last full minute; null when it is not there any more."
    row: PodsRow
    "The log lines that name it and no other namespace, newest first, up to now."
    log_lines(
      "How far back, from 1 to 1440."
      minutes: Int! = 60
      "At most this many, from 1 to 1000."
      limit: Int! = 100
    ): [LogLine!]
  }
  "A revision that appears in the requests of a site."
  type Deploy {
    "Its site."
    site_id: String!
    "The revision, as spans tell it."
    revision: String!
    "Statistics of its requests within the retention."
    stats: DeployStats!
  }
  extend type LogLine {
    "The site of its source."
    site_id: String!
  }
  extend type PodsRow {
    "The pod, whenever it is looked at."
    pod: Pod!
  }
`;

type EntityName = keyof typeof entityKeys;
type Key<Name extends EntityName> = Readonly<Record<(typeof entityKeys)[Name][number], string>>;

/** An object of the key; null where there is none. Rejects with 404 where it may not be seen. */
const entityFinders: {
  readonly [Name in EntityName]: (key: Key<Name>, session: Session) => Promise<object | null>;
} = {
  Site: async ({ id }, { sites }) => (sites.some((site) => site.id === id) ? { id } : null),
  Trace: async ({ site_id, trace_id }, session) => {
    const spans = await loadBatched(session, "Trace", site_id, trace_id, (ids) =>
      prepareLinkedSpans(site_id, ids),
    );
    return buildTrace(site_id, spans);
  },
  Pod: async (key, session) => {
    const row = await findPodRow(key, session);
    return row === null ? null : { ...key, row };
  },
  LogLine: async ({ site_id, source_id: source, timestamp, id }, session) => {
    const time = parseInstant(timestamp);
    if (time === undefined) return null;
    const key = { source, time, id };
    return takeFirst(
      await loadBatched(session, "LogLine", site_id, key, (keys) => prepareLinesByKey(site_id, keys)),
    );
  },
  Deploy: async ({ site_id, revision }, session) => {
    const stats = takeFirst(
      await loadBatched(session, "Deploy", site_id, revision, (revisions) =>
        prepareDeploys(site_id, revisions),
      ),
    );
    return stats && { site_id, revision, stats };
  },
};

/** Its lines are looked for within an hour of its spans, which have its id as it is compared. */
function buildTrace(site_id: string, spans: unknown): object | null {
  if (!Array.isArray(spans) || spans.length === 0) return null;
  const rows: readonly Row[] = spans;
  const start = rows.map(({ start_time }) => toInstant(start_time)).reduce(earlier);
  const end = rows.map(({ end_time }) => toInstant(end_time)).reduce(later);
  const trace = buildTraceRef({ site_id }, rows[0]?.trace_id, start, end);
  return trace && { ...trace, spans: rows };
}

async function findPodRow(
  { site_id, namespace, name: pod }: Key<"Pod">,
  session: Session,
): Promise<object | null> {
  const question = { pod, namespace };
  return takeFirst(
    await loadBatched(session, "Pod", site_id, question, (pods) => preparePodsNow(site_id, pods)),
  );
}

function takeFirst(rows: unknown): object | null {
  const [first] = Array.isArray(rows) ? rows : [];
  return first ?? null;
}

/** Null also for what may not be seen, as for what is not there. */
async function hideForbidden<Found>(found: Promise<Found>): Promise<Found | null> {
  try {
    return await found;
  } catch (error) {
    if (error instanceof GraphQLError && error.extensions.status === 404) return null;
    throw error;
  }
}

async function resolveRepresentation(representation: unknown, session: Session): Promise<object | null> {
  const { __typename: name, ...given } = toRow(representation);
  if (!isEntityName(name)) return refuse(session, "__typename", "expected a type that has a key");
  const fields: readonly string[] = entityKeys[name];
  const missing = fields.find((field) => typeof given[field] !== "string");
  if (missing !== undefined) return refuse(session, missing, `expected a text, a part of the key of ${name}`);
  const key = Object.fromEntries(fields.map((field) => [field, given[field]]));
  // Each field of its key has been looked at.
  const find = entityFinders[name] as (key: unknown, session: Session) => Promise<object | null>;
  const found = await hideForbidden(find(key, session));
  return found && { ...found, __typename: name };
}

function toRow(value: unknown): Row {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function isEntityName(name: unknown): name is EntityName {
  return typeof name === "string" && Object.hasOwn(entityKeys, name);
}

/** @throws {GraphQLError} `invalid_request` */
function refuse(session: Session, path: string, message: string): Promise<never> {
  return session.runLink("_entities", () => {
    throw createInvalidRequest([{ path: ["representations", path].filter(Boolean).join("."), message }]);
  });
}

/** They come in variables, which the bounds of a document do not count; each that fails is an error of its own. */
const maxRepresentations = 1_000;
/** How many a request has asked for so far, by all its aliases. */
const askedFor = new WeakMap<Session, number>();

interface PodArguments {
  readonly site_id: string;
  readonly namespace?: string | null;
  readonly name?: string | null;
}

const resolvers: Resolvers = {
  Query: {
    _service: () => ({}),
    pod: (_, { site_id, namespace, name }: PodArguments, { readout }) =>
      typeof namespace === "string" && typeof name === "string"
        ? hideForbidden(entityFinders.Pod({ site_id, namespace, name }, readout))
        : null,
    // One that fails is an error of its own, and the others keep their answers. Errors are returned as values: for a
    // row that rejects, the compiler appends a null to the list.
    _entities: async (
      _,
      { representations }: { readonly representations: readonly unknown[] },
      { readout },
    ) => {
      askedFor.set(readout, (askedFor.get(readout) ?? 0) + representations.length);
      // By now all aliases are counted: Mesh answers one that comes before the refused one as a failure of its own.
      await undefined;
      if ((askedFor.get(readout) ?? 0) > maxRepresentations)
        return refuse(readout, "", `expected at most ${maxRepresentations} in a request`);
      return Promise.all(
        representations.map((one) => resolveRepresentation(one, readout).catch((error: unknown) => error)),
      );
    },
  },
  Pod: {
    row: (pod: Key<"Pod"> & { readonly row?: object }, _, { readout }) => pod.row ?? findPodRow(pod, readout),
    log_lines: (
      { site_id, namespace, name: pod }: Key<"Pod">,
      { minutes, limit }: { readonly minutes: number; readonly limit: number },
      { readout },
    ) =>
      loadBatched(readout, `Pod.log_lines ${minutes} ${limit}`, site_id, { pod, namespace }, (pods) => {
        checkBetween("minutes", minutes, 1_440);
        checkBetween("limit", limit, 1_000);
        return preparePodLines(site_id, minutes, limit, pods);
      }),
  },
  LogLine: { site_id: readSite },
  PodsRow: {
    pod: (row: MarkedRow) => ({
      site_id: readSite(row),
      namespace: String(row.pod_namespace),
      name: String(row.pod_name),
    }),
  },
};

/** The schema with what gateways ask for. */
export function addEntities(schema: GraphQLSchema): GraphQLSchema {
  const extended = extendSchema(schema, parse(typeDefs));
  setResolvers(extended, { ...resolvers, _Service: { sdl: () => printSubgraph(extended) } });
  const union = extended.getType("_Entity");
  if (!isUnionType(union)) throw new Error("the schema has no union of entities");
  union.resolveType = ({ __typename }) => __typename;
  return extended;
}
