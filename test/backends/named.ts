// The servers that a run names: all of them, or those in SERVERS ("es8,os2"). ADDRESSES ("es8=http://…,os2=http://…")
// uses servers that already run, as `npm run servers -- up es8 os2` leaves them.
import { inject } from "vitest";
import { type ServerName, serverNames, servers } from "../servers/servers.ts";

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
  readonly addresses: Partial<Record<ServerName, string>> | undefined;
} {
  const { SERVERS, ADDRESSES } = process.env;
  const pairs = ADDRESSES?.split(",").map((pair): [ServerName, string] => {
    const [name = "", url = ""] = pair.split("=");
    return [known(name), url];
  });
  const names = SERVERS?.split(",").map(known) ?? pairs?.map(([name]) => name) ?? serverNames;
  return { names, addresses: pairs && Object.fromEntries(pairs) };
}

function known(text: string): ServerName {
  const name = serverNames.find((candidate) => candidate === text);
  if (name === undefined)
    throw new Error(`no server is called "${text}"; known are ${serverNames.join(", ")}`);
  return name;
}

export function named(): NamedServer[] {
  return wantedServers().names.map((name) => {
    const url = inject("addresses")[name];
    if (url === undefined) throw new Error(`${name} is named, but has no address`);
    const { product, version } = servers[name];
    return { name, product, version, url };
  });
}
