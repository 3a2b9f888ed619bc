// The test servers by hand:
//   node test/servers/cli.ts up es8 os2      start, print the addresses, stay until Ctrl-C
//   node test/servers/cli.ts download [es8]  only fill the cache, with all servers when none is named
//   node test/servers/cli.ts list            the servers and what they need

import { cacheFolder } from "./distribution.ts";
import {
  findPrometheus,
  type PrometheusName,
  prometheusNames,
  prometheusServers,
  type RunningPrometheus,
  startPrometheus,
} from "./prometheus.ts";
import { downloadServer, type Running, type ServerName, serverNames, servers, start } from "./servers.ts";
import {
  findVictoriaMetrics,
  type RunningVictoriaMetrics,
  startVictoriaMetrics,
  victoriaMetrics,
} from "./victoria-metrics.ts";

type Name = ServerName | PrometheusName | "vm";
const names: readonly Name[] = [...serverNames, ...prometheusNames, "vm"];

const usage = `usage: node test/servers/cli.ts up NAME... | download [NAME...] | list
names: ${names.join(" ")}`;

class Usage extends Error {}

async function runCommand([command, ...args]: readonly string[]): Promise<void> {
  if (command === "list" && args.length === 0) return list();
  if (command === "download") return downloadAll(parseNames(args));
  if (command === "up" && args.length > 0) return startAll(parseNames(args));
  throw new Usage(usage);
}

function parseNames(args: readonly string[]): readonly Name[] {
  const known = names.filter((name) => args.includes(name));
  const unknown = args.filter((arg) => !known.some((name) => name === arg));
  if (unknown.length > 0) throw new Usage(`unknown: ${unknown.join(" ")}\n${usage}`);
  return known;
}

function isPrometheus(name: Name): name is PrometheusName {
  return prometheusNames.some((known) => known === name);
}

function list(): void {
  for (const name of serverNames) {
    const { product, version, java } = servers[name];
    console.log(`${name}  ${product.padEnd(13)}  ${version.padEnd(8)}  Java ${java.from} to ${java.to}`);
  }
  for (const name of prometheusNames) {
    const { product, version } = prometheusServers[name];
    console.log(
      `${name}  ${product.padEnd(13)}  ${version.padEnd(8)}  ${name === "prom3" ? "Go" : "Debian's prometheus"}`,
    );
  }
  console.log(`vm    VictoriaMetrics  ${victoriaMetrics.version}  Go`);
  console.log(`cache: ${cacheFolder()}`);
}

async function downloadAll(wanted: readonly Name[]): Promise<void> {
  for (const name of wanted.length > 0 ? wanted : names) {
    console.log(`${name}  ${await download(name)}`);
  }
}

async function download(name: Name): Promise<string> {
  if (name === "vm") return findVictoriaMetrics();
  return isPrometheus(name) ? (await findPrometheus(name)).program : downloadServer(name);
}

function startServer(name: Name, signal: AbortSignal): Promise<Started> {
  if (name === "vm") return startVictoriaMetrics(signal);
  return isPrometheus(name) ? startPrometheus(name, "", signal) : start(name, signal);
}

type Started = Running | RunningPrometheus | RunningVictoriaMetrics;

async function startAll(names: readonly Name[]): Promise<void> {
  const ending = new AbortController();
  const interrupted = awaitInterruption();
  void interrupted.then(() => ending.abort());
  const running: Started[] = [];
  const starts = names.map(async (name) => {
    const server = await startServer(name, ending.signal);
    running.push(server);
    console.log(`${name}  ${server.url}  ${server.product} ${server.version}`);
  });
  try {
    await Promise.all(starts);
    console.log("Ctrl-C ends them.");
    await interrupted;
  } catch (error) {
    if (!ending.signal.aborted) throw error;
  } finally {
    ending.abort();
    await Promise.allSettled(starts); // one that failed must not leave the others half started
    await Promise.all(running.map((server) => server.stop()));
  }
}

/** The first Ctrl-C ends in order, a second one at once: the guards then clean up. */
function awaitInterruption(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
  });
}

try {
  await runCommand(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = error instanceof Usage ? 2 : 1;
}
