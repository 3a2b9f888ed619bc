// Starts the servers that a run names, all at once, and ends them after it. One that does not come up fails the run:
// a suite that is skipped silently reads like a passing one.
import type { TestProject } from "vitest/node";
import { findPrometheus } from "../servers/prometheus.ts";
import { downloadServer, type Running, start } from "../servers/servers.ts";
import { findVictoriaMetrics } from "../servers/victoria-metrics.ts";
import { type ServerName, wantedServers } from "./selected-servers.ts";

declare module "vitest" {
  interface ProvidedContext {
    addresses: Partial<Record<ServerName, string>>;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const { names, prometheus, victoriaMetrics, addresses } = wantedServers();
  for (const name of prometheus) await findPrometheus(name);
  if (victoriaMetrics.length > 0) await findVictoriaMetrics();
  if (addresses !== undefined) {
    project.provide("addresses", addresses);
    return async () => undefined;
  }
  for (const name of names) await downloadServer(name);
  const results = await Promise.allSettled(names.map((name) => start(name)));
  const running = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const stop = async (): Promise<void> => {
    await Promise.all(running.map((server: Running) => server.stop()));
  };
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) {
    await stop();
    throw failed.reason;
  }
  project.provide("addresses", Object.fromEntries(running.map(({ name, url }) => [name, url])));
  return stop;
}
