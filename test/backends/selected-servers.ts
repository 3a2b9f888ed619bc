// The servers that a run names: all of them, or those in SERVERS ("es8,prom3"). ADDRESSES ("es8=http://…,os2=http://…")
// uses servers that already run, as `npm run servers -- up es8 os2` leaves them. A Prometheus, and a VictoriaMetrics, is
// started by its suite, since it is filled with what the suite asks for.
import { describe, inject } from "vitest";
import { type PrometheusName, prometheusNames, prometheusServers } from "../servers/prometheus.ts";
import { type ServerName, serverNames, servers } from "../servers/servers.ts";
import { victoriaMetrics } from "../servers/victoria-metrics.ts";

export type { ServerName };

export interface NamedServer {
  readonly name: ServerName;
  readonly product: "elasticsearch" | "opensearch";
  readonly version: string;
  readonly url: string;
}

/** `addresses` where they are given from outside. */
export function wantedServers(): {
  readonly names: readonly ServerName[];
  readonly prometheus: readonly PrometheusName[];
  readonly victoriaMetrics: readonly "vm"[];
  readonly addresses: Partial<Record<ServerName, string>> | undefined;
} {
  const { SERVERS, ADDRESSES } = process.env;
  const pairs = ADDRESSES?.split(",").map((pair) => pair.split("="));
  const wanted = SERVERS?.split(",") ?? pairs?.map(([name = ""]) => name);
  const unknown = wanted?.find((name) => !all.some((known) => known === name));
  if (unknown !== undefined) throw new Error(`no server is called "${unknown}"; known are ${all.join(", ")}`);
  return {
    names: serverNames.filter((name) => wanted?.includes(name) ?? true),
    prometheus: prometheusNames.filter((name) => wanted?.includes(name) ?? true),
    victoriaMetrics: wanted?.includes("vm") === false ? [] : ["vm"],
    addresses: pairs && Object.fromEntries(pairs),
  };
}

const all: readonly string[] = [...serverNames, ...prometheusNames, "vm"];

export function named(): NamedServer[] {
  return wantedServers().names.map((name) => {
    const url = inject("addresses")[name];
    if (url === undefined) throw new Error(`${name} is named, but has no address`);
    const { product, version } = servers[name];
    return { name, product, version, url };
  });
}

/** The same tests on each server, side by side: they wait for different programs. */
export function onServers(define: (server: NamedServer) => void, servers = named()): void {
  for (const server of servers) {
    describe.concurrent(server.name, () => {
      describe.sequential(`${server.product} ${server.version}`, () => define(server));
    });
  }
}

/** Whether the run has less time. */
export const isShort = process.env.PAIRS === "once";

/**
 * The servers that a layout's suite runs on: all of its own, or with PAIRS=once only one, by turns, for a run that has less
 * time.
 */
export function chosen(servers: readonly ServerName[], turn: number): readonly ServerName[] {
  return isShort ? servers.toSpliced(0, turn % servers.length).slice(0, 1) : servers;
}

export function namedPrometheus(): readonly { readonly name: PrometheusName; readonly version: string }[] {
  return wantedServers().prometheus.map((name) => ({ name, version: prometheusServers[name].version }));
}

/** The servers of Prometheus' API: those, and VictoriaMetrics. */
export function namedMetricServers(): readonly MetricServer[] {
  const own = wantedServers().victoriaMetrics.map((name) => ({ name, version: victoriaMetrics.version }));
  return [...namedPrometheus(), ...own];
}

export interface MetricServer {
  readonly name: PrometheusName | "vm";
  readonly version: string;
}

/** What the distributions of Elasticsearch lack that the tests run on; the module of data streams is not among theirs. */
export const withoutDataStreams: Partial<
  Record<ServerName, { readonly templates: boolean; readonly failure: RegExp }>
> = {
  es7: { templates: false, failure: /unknown field \[data_stream\]/ },
  es8: { templates: true, failure: /Incorrect HTTP method/ },
  es9: { templates: true, failure: /no handler found/ },
};
