// Signing in at an identity provider: authorization code with PKCE, as a public client. What must outlive the way there and
// back lies in the session's storage until it is used once; the token itself lies in memory.
import { holdToken } from "../base/api.js";

/**
 * @typedef {{
 *   readonly issuer: string, readonly discovery: string, readonly clientId: string, readonly scope: string,
 *   readonly resource?: string,
 * }} Provider
 * @typedef {{ readonly redirectUri?: string, readonly providers: readonly Provider[] }} Settings
 * @typedef {{ readonly issuer: string, readonly state: string, readonly nonce: string, readonly verifier: string, readonly address: string }} Attempt
 */

/** How one attempt went that came back: where it began, and why there is no token. */
/** @typedef {{ readonly address: string, readonly reason?: string }} Outcome */

/** What the page of `take-answer.js` has left. */
const answerKey = "readout.sign-in.answer";
const attemptKey = "readout.sign-in.attempt";
/** The issuer whose token the server has taken in this tab. */
const issuerKey = "readout.sign-in.issuer";

const answerTimeout = 15_000;

/** @returns {Promise<Settings>} @throws {Error} */
export async function requestSettings() {
  const response = await fetch("/console/sign-in.json", {
    credentials: "omit",
    signal: AbortSignal.timeout(answerTimeout),
  });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

/**
 * Leaves the page for the provider, which sends people back to what is shown now.
 * @param {string} issuer
 * @returns {Promise<string | undefined>} why it cannot; undefined when the page is being left
 */
export async function beginSignIn(issuer) {
  try {
    const { provider, redirectUri } = await findProvider(issuer);
    const oauth = await loadProtocol();
    const server = await discover(provider);
    const attempt = {
      issuer,
      state: oauth.generateRandomState(),
      nonce: oauth.generateRandomNonce(),
      verifier: oauth.generateRandomCodeVerifier(),
      address: location.hash,
    };
    const target = readHttpUrl(server.authorization_endpoint);
    const asked = {
      client_id: provider.clientId,
      redirect_uri: redirectUri,
      response_type: "code",
      scope: provider.scope,
      state: attempt.state,
      nonce: attempt.nonce,
      code_challenge: await oauth.calculatePKCECodeChallenge(attempt.verifier),
      code_challenge_method: "S256",
      ...readResource(provider),
    };
    for (const [name, value] of Object.entries(asked)) target.searchParams.set(name, value);
    sessionStorage.setItem(attemptKey, JSON.stringify(attempt));
    location.assign(target);
    return undefined;
  } catch {
    return `${readHost(issuer)} does not answer as an identity provider. Try again later.`;
  }
}

/**
 * Takes what a provider has answered, and turns its code into a token, which is held. Neither can be used again.
 * @returns {Promise<Outcome | undefined>} undefined where nobody comes back from a provider
 */
export async function finishSignIn() {
  const answer = takeItem(answerKey);
  const written = takeItem(attemptKey);
  if (answer === undefined) return undefined;
  const stranger = "The answer belongs to no sign-in of this tab. Sign in again.";
  if (written === undefined) return { address: "", reason: stranger };
  /** @type {Attempt} */
  const attempt = JSON.parse(written);
  const { address, issuer } = attempt;
  try {
    holdToken(await redeemCode(attempt, new URLSearchParams(answer)));
    confirmable = issuer;
    return { address };
  } catch (error) {
    return { address, reason: await explainFailure(error, issuer) };
  }
}

/** The issuer of the token that is held, until the server has taken it once. */
let confirmable = "";

/** The server has taken the token: the tab may sign in there again without being asked. */
export function confirmSignIn() {
  if (confirmable !== "") sessionStorage.setItem(issuerKey, confirmable);
}

/** Neither this tab nor its next reload signs in without being asked. Returns where it would have. */
export function forgetSignIn() {
  confirmable = "";
  return takeItem(issuerKey);
}

/**
 * Signs in again where this tab is signed in. Once for each token that the server has taken, so that no refusal leads around.
 * @param {string} [reason] what to say where it is signed in nowhere
 * @returns {Promise<{ readonly isLeaving: boolean, readonly reason?: string | undefined }>}
 */
export async function renewSignIn(reason) {
  const issuer = forgetSignIn();
  if (issuer === undefined) return { isLeaving: false, reason };
  const failure = await beginSignIn(issuer);
  return { isLeaving: failure === undefined, reason: failure };
}

/** @param {Attempt} attempt @param {URLSearchParams} answer @returns {Promise<string>} the access token @throws {Error} */
async function redeemCode({ issuer, state, nonce, verifier }, answer) {
  const { provider, redirectUri } = await findProvider(issuer);
  const oauth = await loadProtocol();
  const server = await discover(provider);
  const client = { client_id: provider.clientId };
  const parameters = oauth.validateAuthResponse(server, client, answer, state);
  const response = await oauth.authorizationCodeGrantRequest(
    server,
    client,
    oauth.None(),
    parameters,
    redirectUri,
    verifier,
    {
      additionalParameters: readResource(provider),
      signal: AbortSignal.timeout(answerTimeout),
      // The configuration has such an issuer on this machine alone.
      [oauth.allowInsecureRequests]: issuer.startsWith("http:"),
    },
  );
  // The ID token comes from the provider itself, whose certificate the browser checks: its signature need not be checked as well
  // (OpenID Connect Core 1.0, section 3.1.3.7, step 6). Its issuer, client, times and nonce are. Who may see what is in the access
  // token, whose signature the server checks.
  const { access_token: token } = await oauth.processAuthorizationCodeResponse(server, client, response, {
    expectedNonce: nonce,
    requireIdToken: true,
  });
  return token;
}

/** @param {string} issuer @returns {Promise<{ readonly provider: Provider, readonly redirectUri: string }>} @throws {Error} */
async function findProvider(issuer) {
  const { redirectUri, providers } = await requestSettings();
  const provider = providers.find((one) => one.issuer === issuer);
  if (provider === undefined || redirectUri === undefined) throw new Error("no such provider");
  return { provider, redirectUri };
}

/** The package's own file: only those who sign in need it. */
const loadProtocol = () => import("./oauth4webapi.js");

/** @param {Provider} provider @throws {Error} */
async function discover({ issuer, discovery }) {
  const { processDiscoveryResponse } = await loadProtocol();
  const response = await fetch(discovery, {
    headers: { Accept: "application/json" },
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(answerTimeout),
  });
  return processDiscoveryResponse(new URL(issuer), response);
}

/** @param {Provider} provider @returns {Record<string, string>} */
function readResource({ resource }) {
  return resource === undefined ? {} : { resource };
}

/** @param {unknown} address @throws {Error} */
function readHttpUrl(address) {
  const url = new URL(String(address));
  if (!/^https?:$/.test(url.protocol)) throw new Error("no address to go to");
  return url;
}

/** Words of the provider's are not shown: whoever sends people here may have written them. @param {unknown} error @param {string} issuer */
async function explainFailure(error, issuer) {
  const { AuthorizationResponseError } = await loadProtocol();
  const host = readHost(issuer);
  if (error instanceof AuthorizationResponseError) return `${host} has refused to sign you in.`;
  const isUnreachable = error instanceof TypeError || error instanceof DOMException;
  if (isUnreachable) return `${host} does not answer. Sign in again.`;
  return `The answer of ${host} does not belong to this sign-in. Sign in again.`;
}

/** @param {string} issuer */
export function readHost(issuer) {
  return new URL(issuer).host;
}

/** @param {string} key */
function takeItem(key) {
  const value = sessionStorage.getItem(key) ?? undefined;
  sessionStorage.removeItem(key);
  return value;
}
