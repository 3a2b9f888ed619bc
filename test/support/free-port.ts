// A port of the loopback interface that no program listens on.
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";

/** Of a moment ago: another program may have taken it since. */
export async function findFreePort(): Promise<number> {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  listener.close();
  await once(listener, "close");
  return port;
}
