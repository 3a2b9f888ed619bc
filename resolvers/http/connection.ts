// The connection settings that all kinds of HTTP backends share (TLS, headers, timeout, credentials), and their parsing.
import { createSecureContext } from "node:tls";
import { z } from "zod";
import { toMapping } from "../../src/config/plain-values.ts";
import {
  acrossKeys,
  chooseSchema,
  createTextSchema,
  headersSchema,
  headerValue,
  httpUrl,
  parseNumeral,
  SettingError,
} from "../../src/config/validation.ts";
import { formatErrorCode } from "../../src/core/errors.ts";
import { parseCertificates } from "../../src/core/pem.ts";
import { day, type Millis, parseDuration } from "../../src/core/time.ts";
import type { IO } from "../../src/store/backend.ts";
import { type AwsLogin, type AwsSettings, createAwsLogin } from "./aws.ts";
import { type AccessTokens, createAccessTokens } from "./oauth2.ts";

const text = z.string().min(1, "must not be empty");
const region = text.regex(/^[a-z0-9-]*$/, "expected the name of a region, such as eu-central-1");
/** RFC 7617 has no way to write a login that holds one of these characters. */
const password = z.string().regex(/^\P{Cc}*$/u, "must not hold a line break or another control character");
const username = password.regex(/^[^:]*$/, "must not hold a colon, which would end it");
/** Every form of login. A backend kind takes some of them. */
export const logins = {
  basic: z.strictObject({ username, password }),
  bearer: z.strictObject({ bearer: headerValue }),
  api_key: z.strictObject({ api_key: headerValue }),
  oauth2: z.strictObject({
    oauth2: z.strictObject({
      token_url: httpUrl,
      client_id: text,
      client_secret: text,
      scopes: z.array(text).default([]),
    }),
  }),
  aws: <const Services extends readonly AwsSettings["service"][]>(...services: Services) =>
    z.strictObject({
      aws: z.strictObject({ region, service: z.enum(services), role: text.optional() }),
    }),
};

/** The form whose keys are there. Where they are of no form or of several, the error names all forms. */
export function chooseLogin<const Forms extends readonly z.ZodObject[]>(forms: Forms, error: string) {
  const none = z.never({ error: ({ input }) => (input == null ? undefined : error) });
  return chooseSchema((value): Forms[number] | typeof none => {
    const keys = Object.keys(toMapping(value));
    const [form, ...others] = forms.filter(({ shape }) => keys.some((key) => Object.hasOwn(shape, key)));
    return form === undefined || others.length > 0 ? none : form;
  });
}

/** As the settings of `oauth2` are written. */
type OAuth2Login = z.output<(typeof logins)["oauth2"]>;

/** As the settings of `aws` are written. */
type WrittenAwsLogin = { readonly aws: AwsSettings };

/** A login whose tokens or credentials are asked for, made ready to do so; any other as it is. */
export function openLogin<Login extends object>(
  backend: string,
  login: Login | OAuth2Login | WrittenAwsLogin | undefined,
  { now }: Pick<IO, "now">,
): Exclude<Login, OAuth2Login | WrittenAwsLogin> | AccessTokenLogin | AwsLogin | undefined {
  if (login === undefined) return undefined;
  if (isAws(login)) return createAwsLogin({ backend, settings: login.aws, now });
  if (!isOAuth2(login)) return login as Exclude<Login, OAuth2Login | WrittenAwsLogin>;
  const { token_url: tokenUrl, client_id: clientId, client_secret: clientSecret, scopes } = login.oauth2;
  return { tokens: createAccessTokens(backend, { tokenUrl, clientId, clientSecret, scopes }) };
}

/** A login that is sent as it is written. */
export type FixedLogin =
  | { readonly username: string; readonly password: string }
  | { readonly bearer: string }
  | { readonly api_key: string };

export function buildAuthorization(login: FixedLogin): { readonly authorization: string } {
  if ("api_key" in login) return { authorization: `ApiKey ${login.api_key}` };
  if ("bearer" in login) return { authorization: `Bearer ${login.bearer}` };
  const { username, password } = login;
  return { authorization: `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}` };
}

export interface AccessTokenLogin {
  readonly tokens: AccessTokens;
}

function isOAuth2(login: object): login is OAuth2Login {
  return "oauth2" in login;
}

function isAws(login: object): login is WrittenAwsLogin {
  return "aws" in login;
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
        ca: text.optional(),
        cert: text.optional(),
        key: text.optional(),
      })
      .refine(({ cert, key }) => cert === undefined || key !== undefined, {
        path: ["cert"],
        error: "stands beside `key` only",
        ...acrossKeys,
      })
      .refine(({ cert, key }) => key === undefined || cert !== undefined, {
        path: ["key"],
        error: "stands beside `cert` only",
        ...acrossKeys,
      })
      .optional(),
    headers: headersSchema,
    timeout: z
      .string()
      .pipe(createTextSchema(parseTimeout, `expected a duration such as ${timeout}, at most 1d`))
      .prefault(timeout),
    answer_bytes: z
      .preprocess(
        parseNumeral,
        z.int().min(minAnswerBytes, `expected a whole number from ${minAnswerBytes} up`),
      )
      .default(268_435_456),
  };
}

/** At most a day: a timer overflows after 24 days and then fires at once. */
function parseTimeout(text: string): Millis | undefined {
  const length = parseDuration(text);
  return length !== undefined && length > 0 && length <= day ? length : undefined;
}

/** Certificates and keys, as paths in the settings or as the contents of those files. */
export interface Tls {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/**
 * Reads the files that are named. A certificate has to be in `ca`: without any, node would trust all public authorities.
 * @throws {SettingError} where a file cannot be read or holds something else
 */
export function readTls(paths: Tls | undefined, io: Pick<IO, "readText">): Tls | undefined {
  if (paths === undefined) return undefined;
  const read = (name: keyof Tls) => {
    const path = paths[name];
    if (path === undefined) return undefined;
    try {
      return io.readText(path);
    } catch (error) {
      throw new SettingError(["tls", name], `${path} cannot be read${formatErrorCode(error)}`);
    }
  };
  const tls = { ca: read("ca"), cert: read("cert"), key: read("key") };
  const { ca, cert, key } = tls;
  if (ca !== undefined) checkFile("ca", paths, () => parseCertificates(ca));
  if (cert !== undefined) checkFile("cert", paths, () => parseCertificates(cert));
  if (key !== undefined) checkFile("key", paths, () => createSecureContext({ key }));
  if (cert !== undefined && key !== undefined)
    checkFile("key", paths, () => createSecureContext({ cert, key }), ", or is not the key of tls.cert");
  return tls;
}

/** @throws {SettingError} */
function checkFile(name: keyof Tls, paths: Tls, check: () => unknown, also = ""): void {
  try {
    check();
  } catch (error) {
    const expected = name === "key" ? "private key" : "certificate";
    const code = formatErrorCode(error);
    throw new SettingError(["tls", name], `${paths[name]} has no ${expected} that can be used${code}${also}`);
  }
}

/** A copy without undefined members, for clients that treat an undefined option as set. */
export function omitUndefined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, part]) => part !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>;
  };
}
