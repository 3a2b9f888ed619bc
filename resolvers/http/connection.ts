// The connection settings that all kinds of HTTP backends share (TLS, headers, timeout, credentials), and their parsing.
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { parseNumeral } from "../../src/config/validation.ts";
import { day, parseDuration } from "../../src/core/time.ts";
import type { IO } from "../../src/store/backend.ts";

const text = z.string().min(1, "must not be empty");
const logins = {
  basic: z.strictObject({ username: z.string(), password: z.string() }),
  bearer: z.strictObject({ bearer: text }),
  api_key: z.strictObject({ api_key: text }),
};
export const basicOrBearer = buildLoginUnion(
  [logins.basic, logins.bearer],
  "expected { username, password } or { bearer }",
);
export const anyLogin = buildLoginUnion(
  [logins.basic, logins.api_key, logins.bearer],
  "expected { username, password }, { bearer } or { api_key }",
);

/** An empty value fits no form in particular, so its error names all of them. */
function buildLoginUnion<const Forms extends readonly z.ZodType[]>(forms: Forms, error: string) {
  const form = z.union(forms, { error });
  return z.custom<z.input<typeof form>>((value) => !isDeepStrictEqual(value, {}), { error }).pipe(form);
}

const minAnswerBytes = 1_048_576;

/**
 * The part of a settings schema about the connection. `tls` names PEM files, `timeout` is the default for one request, and a
 * response over `answer_bytes` is an error instead of being held in memory.
 */
export function createConnectionSchema(timeout: `${number}s`) {
  return {
    tls: z
      .strictObject({
        ca: z.string().optional(),
        cert: z.string().optional(),
        key: z.string().optional(),
      })
      .optional(),
    headers: z.record(z.string(), z.string()).default({}),
    timeout: z
      .string()
      .refine(isTimeout, `expected a duration such as ${timeout}, at most 1d`)
      .default(timeout),
    answer_bytes: z
      .preprocess(
        parseNumeral,
        z.int().min(minAnswerBytes, `expected a whole number from ${minAnswerBytes} up`),
      )
      .default(268_435_456),
  };
}

/** At most a day: a timer overflows after 24 days and then fires at once. */
function isTimeout(text: string): boolean {
  const length = parseDuration(text);
  return length !== undefined && length > 0 && length <= day;
}

/** Certificates and keys, as paths in the settings or as the contents of those files. */
export interface Tls {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** Reads the files that are named. Throws what the file system throws. */
export function readTls(paths: Tls | undefined, io: Pick<IO, "readText">): Tls | undefined {
  const read = (path: string | undefined) => (path === undefined ? undefined : io.readText(path));
  return paths && { ca: read(paths.ca), cert: read(paths.cert), key: read(paths.key) };
}

/** A copy without undefined members, for clients that treat an undefined option as set. */
export function omitUndefined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, part]) => part !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
