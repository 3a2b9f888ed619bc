// The backends of a command that ends: what fails comes back from the calls themselves and is told with them, so nothing
// is logged or counted beside.
import { type Config, resolveBeside } from "../config.ts";
import type { Backend, IO } from "../store.ts";
import type { Shell } from "./shell.ts";

/** Undefined for a name without a kind. Throws what the kind does when the settings cannot be used. */
export function openBackend(
  name: string,
  config: Pick<Config, "backends">,
  file: string,
  shell: Shell,
): Backend | undefined {
  const entry = config.backends[name];
  const io: IO = {
    now: () => shell.now(),
    log: () => undefined,
    requested: () => undefined,
    cache: () => undefined,
    readText: (path) => shell.readText(resolveBeside(file, path)),
  };
  return entry && shell.kinds.get(entry.kind)?.create(name, entry.settings, io);
}

/** What an operator may read of a failure: without line ends, and without a password in a URL. */
export function describeError(error: unknown): string {
  const message = (error instanceof Error ? error.message : String(error))
    .trim()
    .replaceAll(/\s*\n\s*/g, " ");
  return message.replaceAll(/\/\/[^/@\s]+@/g, "//…@");
}
