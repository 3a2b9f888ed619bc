// Opens backends for commands that end. Their calls return or throw what goes wrong, and the commands print it, so nothing
// is logged or counted.
import type { Config } from "../../config/config.ts";
import { SettingError } from "../../config/validation.ts";
import { type LocatedIssue, resolveBeside } from "../../config/yaml/yaml.ts";
import { BackendError, toErrorMessage } from "../../core/errors.ts";
import type { Backend, IO } from "../../store/backend.ts";
import { createKindLookup } from "./backend-kinds.ts";
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
    recordRequest: () => undefined,
    recordCacheLookup: () => undefined,
    rollupBytes: 0,
    metricCacheBytes: 0,
    readText: (path) => shell.readText(resolveBeside(file, path)),
  };
  return (
    entry && createKindLookup(file, shell).get(entry.kind)?.create(name, entry.settings, io, entry.layouts)
  );
}

/** Why a backend cannot be opened, at the setting that is to blame where that is known. */
export function toBackendIssue(name: string, error: unknown): LocatedIssue {
  return error instanceof SettingError
    ? { path: ["backends", name, ...error.path], message: error.reason }
    : { path: ["backends", name], message: describeError(error) };
}

/** Describes a failure for operators: on one line, and without a password in a URL. */
export function describeError(error: unknown): string {
  const message = toErrorMessage(error)
    .trim()
    .replaceAll(/\s*\n\s*/g, " ");
  const safe = message.replaceAll(/\/\/[^/@\s]+@/g, "//…@");
  const advice = error instanceof BackendError && advices.find(([sign]) => sign.test(safe))?.[1];
  return advice ? `${safe} (${advice})` : safe;
}

/** What to change in the file, by the message of a client or server. */
const advices: readonly (readonly [RegExp, string])[] = [
  [
    /unable to (?:verify the first|get (?:local )?issuer) certificate|self-signed certificate/,
    "name the CA that signed its certificate: tls.ca, of init --elastic-ca or --prometheus-ca",
  ],
  [/match certificate's altnames/, "name it in url as its certificate does"],
  [/wrong version number|packet length too long/, "it speaks no TLS: begin url with http://"],
  [
    /other side closed|socket hang up|ECONNRESET|certificate required/,
    "if it speaks TLS, begin url with https://; if it wants a certificate, name tls.cert and tls.key",
  ],
  [/^status 401\b/, "auth is missing or wrong"],
];
