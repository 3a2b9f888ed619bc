// The servers that a run names: all five, or those in SERVERS (comma separated). A server that is named must answer.
// ADDRESSES ("es8=http://…,os2=http://…") uses servers that already run.
import {
  type Running,
  type ServerName,
  serverNames,
  servers,
  start as startServer,
} from "../servers/servers.ts";

export interface NamedServer {
  readonly name: ServerName;
  readonly product: "elasticsearch" | "opensearch";
  readonly version: string;
  readonly url: () => Promise<string>;
}

const running = new Map<ServerName, Promise<Running>>();
const given = new Map(
  (process.env.ADDRESSES ?? "").split(",").map((pair) => pair.split("=") as [string, string]),
);

export function named(): NamedServer[] {
  const wanted = process.env.SERVERS?.split(",") ?? (process.env.ADDRESSES ? [...given.keys()] : serverNames);
  return wanted.map((text) => {
    const name = serverNames.find((known) => known === text);
    if (name === undefined)
      throw new Error(`no server is called ${text}; known are ${serverNames.join(", ")}`);
    const { product, version } = servers[name];
    return { name, product, version, url: () => address(name) };
  });
}

async function address(name: ServerName): Promise<string> {
  const known = given.get(name);
  if (known !== undefined) return known;
  const found = running.get(name) ?? startServer(name);
  running.set(name, found);
  return (await found).url;
}

/** Ends every server that this process started. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running.values()].map(async (server) => (await server).stop()));
  running.clear();
}
