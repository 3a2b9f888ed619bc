// Requests signed for Amazon's services (Signature Version 4). The signer is that of the official OpenSearch client, so that one
// serves all three clients. Credentials come from Amazon's own library, which is large and loaded only where it is wanted.
import { createHash } from "node:crypto";
import { BackendError, toErrorMessage } from "../../src/core/errors.ts";
import {
  type Instant,
  type Millis,
  minute,
  printInstantToMilli,
  printMillis,
  toMillis,
} from "../../src/core/time.ts";
import { createRenewedValue, type LimitedValue, longestRenewal } from "./renewed-value.ts";

export interface AwsSettings {
  readonly region: string;
  /** OpenSearch Service, OpenSearch Serverless, or managed Prometheus. */
  readonly service: "es" | "aoss" | "aps";
  /** A role that is assumed with the credentials that are found. */
  readonly role?: string | undefined;
}

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
  /** Absent where they do not end. */
  readonly expiration?: Date | undefined;
}

/** A request as it goes over the wire. */
interface UnsignedRequest {
  readonly method: string;
  /** With the port, where it is not the scheme's own. */
  readonly host: string;
  /** With its query. */
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
}

/** An answer that refuses a request, read to its end. */
interface Refusal {
  readonly status: number;
  readonly text: string;
  /** The time at the source. */
  readonly date: string | undefined;
}

interface SignedRequest {
  /** The headers to be added. */
  readonly headers: Readonly<Record<string, string>>;
  readonly credentials: AwsCredentials;
}

export interface AwsLogin {
  /** The login of requests that are signed. */
  readonly aws: {
    /** @throws {BackendError} There are no credentials. */
    readonly sign: (request: UnsignedRequest, signal: AbortSignal) => Promise<SignedRequest>;
    /**
     * Whether to sign and send a refused request once more, with other credentials than it was signed with.
     * @throws {BackendError} The refusal is of a kind that one sentence explains.
     */
    readonly mayRetry: (refusal: Refusal, signed: SignedRequest, isLast: boolean) => boolean;
  };
}

type ReadCredentials = () => Promise<AwsCredentials>;

interface AwsLoginOptions {
  readonly backend: string;
  readonly settings: AwsSettings;
  readonly now: () => Instant;
  /** Instead of Amazon's library. */
  readonly loadCredentials?: (settings: AwsSettings) => Promise<ReadCredentials>;
}

/** How long before their end credentials are renewed, and how long those that do not end are kept. */
const renewedBefore: Millis = 5 * minute;
const keptFor: Millis = 5 * minute;

export function createAwsLogin(options: AwsLoginOptions): AwsLogin {
  const { backend, settings, now } = options;
  const clock = () => toMillis(now());
  const known = createRenewedValue({
    renew: () => renewCredentials(options, clock),
    createLateError: () => createCredentialsError(backend, new Error("nobody gave any in time")),
    clock,
  });
  return {
    aws: {
      sign: async (request, signal) => {
        const credentials = await known.read(signal);
        const hash = createHash("sha256")
          .update(request.body ?? "")
          .digest("hex");
        const headers = { ...request.headers, "x-amz-content-sha256": hash };
        const signed = await signRequest({ ...request, headers }, settings, credentials, now());
        return { headers: signed, credentials };
      },
      mayRetry: (refusal, { credentials }, isLast) => {
        const kind = classifyRefusal(refusal.text);
        if (kind === undefined) return false;
        if (kind === "credentials" && !isLast) {
          known.discard(credentials);
          return true;
        }
        const message = explainRefusal(kind, refusal, settings, clock());
        throw new BackendError(backend, "denied", message, { status: refusal.status });
      },
    },
  };
}

/**
 * The headers that sign a request. All headers of the request are signed, and `host` is; not what a client adds by itself, such
 * as the length of the body, which is signed by its hash.
 */
export async function signRequest(
  { method, host, path, headers, body }: UnsignedRequest,
  { region, service }: Pick<AwsSettings, "region"> & { readonly service: string },
  { accessKeyId, secretAccessKey, sessionToken }: AwsCredentials,
  at: Instant,
): Promise<Readonly<Record<string, string>>> {
  const { default: aws4 } = await import("aws4");
  const time = printInstantToMilli(at).replace(/[-:]|\.\d+/g, "");
  const isTyped = Object.keys(headers ?? {}).some((name) => name.toLowerCase() === "content-type");
  const request = {
    method,
    host,
    path,
    region,
    service,
    headers: { ...headers, Host: host, "X-Amz-Date": time },
    ...(body !== undefined && { body }),
    extraHeadersToIgnore: { "content-length": true, ...(!isTyped && { "content-type": true }) },
  };
  const signed = Object.entries(aws4.sign(request, { accessKeyId, secretAccessKey, sessionToken }).headers);
  return Object.fromEntries(
    signed
      .map(([name, value]) => [name.toLowerCase(), value])
      .filter(([name = ""]) => /^(?:authorization$|x-amz-)/.test(name)),
  );
}

/**
 * A query of `URLSearchParams`, also behind its path, in the encoding of signatures: Amazon verifies a `+` as a plus, and some
 * verify the query as it comes, others as they would encode it.
 */
export function encodeForSignature(pathOrQuery: string): string {
  return pathOrQuery.replaceAll("+", "%20").replaceAll("*", "%2A").replaceAll("%7E", "~");
}

async function renewCredentials(
  { backend, settings, loadCredentials = loadFromSdk }: AwsLoginOptions,
  clock: () => Millis,
): Promise<LimitedValue<AwsCredentials>> {
  try {
    const read = await loadCredentials(settings);
    const value = await waitAtMost(read(), longestRenewal);
    const now = clock();
    const expiresAt = value.expiration?.getTime() ?? Number.POSITIVE_INFINITY;
    const left = expiresAt - now;
    const renewAt = now + Math.min(keptFor, Math.max(left - renewedBefore, left / 2));
    return { value, renewAt, expiresAt };
  } catch (error) {
    throw createCredentialsError(backend, error);
  }
}

function createCredentialsError(backend: string, cause: unknown): BackendError {
  const message = `no credentials for AWS: ${toErrorMessage(cause).slice(0, 300)}`;
  // 401 for the guard, which then asks less and less often.
  return new BackendError(backend, "denied", message, { cause, status: 401 });
}

function waitAtMost<T>(promise: Promise<T>, limit: Millis): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`nobody gave any within ${limit} ms`)), limit);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** What is used of Amazon's library. */
interface CredentialProviders {
  readonly fromNodeProviderChain: (options: object) => ReadCredentials;
  readonly fromTemporaryCredentials: (options: object) => ReadCredentials;
}
const sdkName: string = "@aws-sdk/credential-providers";

/** From the environment, the shared files, a container, a web identity or the instance, in the order of the library. */
async function loadFromSdk({ region, role }: AwsSettings): Promise<ReadCredentials> {
  let sdk: CredentialProviders;
  try {
    sdk = await import(sdkName);
  } catch {
    throw new Error(`the package ${sdkName} is not installed beside Readout: npm install ${sdkName}`);
  }
  const clientConfig = { region };
  const own = sdk.fromNodeProviderChain({ clientConfig });
  if (role === undefined) return own;
  const params = { RoleArn: role, RoleSessionName: "readout" };
  return sdk.fromTemporaryCredentials({ masterCredentials: own, params, clientConfig });
}

type RefusalKind = "clock" | "credentials" | "signature";

const refusalPatterns: readonly (readonly [RefusalKind, RegExp])[] = [
  ["clock", /signature expired|signature not yet current|RequestTimeTooSkewed|RequestExpired/i],
  [
    "credentials",
    /ExpiredToken|security token included in the request is (?:expired|invalid)|UnrecognizedClient|InvalidClientTokenId|InvalidAccessKeyId/i,
  ],
  [
    "signature",
    /signature we calculated does not match|SignatureDoesNotMatch|InvalidSignature|credential should be scoped/i,
  ],
];

function classifyRefusal(text: string): RefusalKind | undefined {
  return refusalPatterns.find(([, pattern]) => pattern.test(text))?.[0];
}

function explainRefusal(
  kind: RefusalKind,
  { date }: Refusal,
  { region, service }: AwsSettings,
  now: Millis,
): string {
  switch (kind) {
    case "clock": {
      const theirs = date === undefined ? Number.NaN : Date.parse(date);
      const seconds = Math.round((now - theirs) / 1_000);
      const off = Number.isNaN(theirs)
        ? "is wrong"
        : `is ${Math.abs(seconds)} s ${seconds < 0 ? "behind" : "ahead"}`;
      return `AWS refuses the signature for its time: the clock of this machine ${off} (${printMillis(now)})`;
    }
    case "credentials":
      return "AWS refuses the credentials: they have expired or were withdrawn, and there are no others";
    case "signature":
      return `AWS refuses the signature: the secret key does not fit the access key, or region ${region} or service ${service} is wrong`;
    default:
      return kind satisfies never;
  }
}

/**
 * Sends a signed request, once more where its credentials were withdrawn. `readRefusal` reads an answer of status 401 or 403
 * to its end, and is undefined for any other.
 * @throws {BackendError}
 */
export async function sendSigned<Response, Refused extends Refusal>(
  { aws }: AwsLogin,
  request: UnsignedRequest,
  signal: AbortSignal,
  send: (headers: Readonly<Record<string, string>>) => Promise<Response>,
  readRefusal: (response: Response) => Promise<Refused> | undefined,
): Promise<Response | Refused> {
  const first = await aws.sign(request, signal);
  const response = await send(first.headers);
  const refusal = await readRefusal(response);
  if (refusal === undefined) return response;
  if (!aws.mayRetry(refusal, first, false)) return refusal;
  const second = await aws.sign(request, signal);
  const other = await send(second.headers);
  const again = await readRefusal(other);
  if (again === undefined) return other;
  aws.mayRetry(again, second, true);
  return again;
}
