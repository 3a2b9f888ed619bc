// What existing clients ask the same origin for beside the routes, under the names, arguments and nullability that they know:
// apps, their incidents, samples, log lines, metrics and markers. An app is a site. There is one organization, so any slug
// names it. What cannot be known here is null or empty as its type allows, so that every document of theirs validates.
import type { GraphQLSchema } from "graphql";
import type { Site } from "../../access/sites.ts";
import { prepareNamespaces, type RequestedRange } from "../../operations/incident-operations.ts";
import type { Context, Resolvers, Session } from "../../operations/runtime/session.ts";
import { absentTypes } from "./absent-types.ts";
import { appTypes } from "./app-types.ts";
import { type BackReference, refuseBelowRows } from "./batches.ts";
import { dataTypes } from "./data-types.ts";
import {
  findIncident,
  type IncidentArguments,
  incidentResolvers,
  readBacktrace,
  readIncidentPage,
  searchSamples,
} from "./incident-fields.ts";
import { incidentTypes } from "./incident-types.ts";
import { logResolvers, plainLogFields } from "./log-fields.ts";
import { logbookTypes } from "./logbook-types.ts";
import { type MarkerArguments, markerResolvers, readMarkers } from "./marker-fields.ts";
import { metricResolvers } from "./metric-fields.ts";
import { completeTypes, type PlainFields } from "./type-completion.ts";

export const clientTypes = `${appTypes}${incidentTypes}${dataTypes}${logbookTypes}${absentTypes}`;

interface App {
  readonly id: string;
  readonly name: string;
  readonly environment: string | undefined;
  readonly site: Site;
}

function toApp(site: Site): App {
  return { id: site.id, name: site.name ?? site.id, environment: site.environment, site };
}

interface NamespaceRow {
  readonly id: string;
  readonly name: string;
  readonly app: App;
}

function toOrganization(slug: string) {
  return { id: slug, slug, name: slug };
}

interface SearchArguments {
  readonly appId?: string | null;
  readonly namespace?: string | null;
  readonly query?: string | null;
  readonly sampleType?: "EXCEPTION" | "PERFORMANCE" | null;
  readonly timerange?: readonly (string | null)[] | null;
}

const maxFoundSamples = 25;

/** Samples of all sites, or of one. */
async function searchOrganization(args: SearchArguments, session: Session) {
  const { appId, namespace, sampleType, timerange } = args;
  const [start = undefined, end = undefined] = timerange ?? [];
  const range: RequestedRange = { start, end };
  const apps = session.sites
    .filter(({ id }) => appId === null || appId === undefined || id === appId)
    .map(toApp);
  const kinds = (["error", "action"] as const).filter(
    (kind) => (sampleType ?? "EXCEPTION") === (kind === "error" ? "EXCEPTION" : "PERFORMANCE"),
  );
  const query = {
    namespaces: namespace === null || namespace === undefined ? [] : [namespace],
    text: args.query ?? undefined,
    limit: maxFoundSamples,
  };
  const found = await Promise.all(
    apps.flatMap((app) => kinds.map((kind) => searchSamples(session, app, kind, range, query))),
  );
  return found.flat();
}

/** Fields that read a source, or lead to some that do: not at an app or organization that a row of theirs leads back to. */
function guardFields(fields: Resolvers[string]): Resolvers[string] {
  const guarded = Object.entries(fields ?? {}).map(([name, resolve]) => [
    name,
    async (parent: BackReference, args: unknown, context: Context) => {
      await refuseBelowRows(parent, name, context.readout);
      return await resolve(parent, args, context);
    },
  ]);
  return Object.fromEntries(guarded);
}

type Page = Awaited<ReturnType<typeof readIncidentPage>>;

const resolvers: Resolvers = {
  Query: {
    app: (_: unknown, { id }: { readonly id: string }, { readout }: Context) => {
      const site = readout.sites.find((one) => one.id === id);
      return site && toApp(site);
    },
    viewer: (_: unknown, __: unknown, { readout }: Context) => ({ id: readout.user, name: readout.user }),
    organization: (_: unknown, { slug }: { readonly slug: string }) => toOrganization(slug),
  },
  Viewer: {
    organizations: () => [toOrganization("readout")],
    apps: (_: unknown, __: unknown, { readout }: Context) => readout.sites.map(toApp),
  },
  Organization: guardFields({
    apps: (_: unknown, __: unknown, { readout }: Context) => readout.sites.map(toApp),
    search: (_: unknown, args: SearchArguments, { readout }: Context) => searchOrganization(args, readout),
  }),
  App: {
    status: () => "active",
    organization: () => ({ ...toOrganization("readout"), isBackReference: true }),
    ...guardFields({
      logs: ({ site }: App) => ({ site }),
      metrics: ({ site }: App) => ({ site }),
      exceptionIncidents: async (app: App, args: IncidentArguments, { readout }: Context) =>
        (await readIncidentPage(readout, app, ["error"], args)).rows,
      performanceIncidents: async (app: App, args: IncidentArguments, { readout }: Context) =>
        (await readIncidentPage(readout, app, ["action"], args)).rows,
      incidents: async (app: App, args: IncidentArguments, { readout }: Context) =>
        (await readIncidentPage(readout, app, ["error", "action"], args)).rows,
      paginatedExceptionIncidents: (app: App, args: IncidentArguments, { readout }: Context) =>
        readIncidentPage(readout, app, ["error"], args),
      paginatedPerformanceIncidents: (app: App, args: IncidentArguments, { readout }: Context) =>
        readIncidentPage(readout, app, ["action"], args),
      incident: (
        app: App,
        { incidentNumber: number }: { readonly incidentNumber: number },
        { readout }: Context,
      ) => findIncident(readout, app, { number }),
      incidentByDigest: (app: App, { digest }: { readonly digest: string }, { readout }: Context) =>
        findIncident(readout, app, { digest }),
      backtrace: (app: App, { id }: { readonly id: string }, { readout }: Context) =>
        readBacktrace(readout, app, id),
      deployMarkers: (app: App, args: MarkerArguments, { readout }: Context) =>
        readMarkers(readout, app, args),
      markers: (app: App, args: MarkerArguments, { readout }: Context) =>
        readMarkers(readout, app, args, "markers"),
      marker: async (app: App, { id }: { readonly id: string }, { readout }: Context) => {
        const [marker = null] = await readMarkers(readout, app, { revisions: [id], limit: 1 });
        return marker;
      },
      namespaces: async (
        app: App,
        { namespaces }: { readonly namespaces?: readonly (string | null)[] | null },
        { readout }: Context,
      ) => {
        const names = await readout.runLink("App.namespaces", () => prepareNamespaces(app.id));
        const wanted = (namespaces ?? []).filter((name) => name !== null);
        const chosen = wanted.length === 0 ? names : names.filter((name) => wanted.includes(name));
        return chosen.map((name): NamespaceRow => ({ id: name, name, app }));
      },
    }),
  },
  Namespace: {
    deployMarkers: (
      { app, name }: NamespaceRow,
      { limit }: { readonly limit?: number | null },
      { readout }: Context,
    ) => readMarkers(readout, app, { namespaces: [name], limit: limit ?? null }, "ofNamespace"),
  },
  PaginatedExceptionIncidents: { total: ({ total }: Page) => total() },
  PaginatedPerformanceIncidents: { total: ({ total }: Page) => total() },
  ...incidentResolvers,
  ...logResolvers,
  ...metricResolvers,
  ...markerResolvers,
};

const plainFields: PlainFields = { ...plainLogFields, KeyStringValue: ["key", "value"] };

/** Gives the types of `clientTypes`, by which the schema has been extended, their answers and their words. */
export function completeClientTypes(schema: GraphQLSchema): void {
  completeTypes(schema, clientTypes, resolvers, plainFields);
}
