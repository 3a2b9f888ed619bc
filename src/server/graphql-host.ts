// GraphQL beside REST. Yoga and GraphQL are a third of the program's memory, so they are loaded when GraphQL is first asked
// for. From then on Yoga is the host of all requests, and REST is a plug-in in front of it that answers without executing
// GraphQL. A request that waits for the loading is admitted once, and its admission handed on.
import type { Plugin } from "graphql-yoga";
import { narrowLimits } from "../access/account-slots.ts";
import type { GatewayOptions } from "../graphql/gateway.ts";
import type { UnifiedSchema } from "../graphql/mesh.ts";
import { privateHeaders } from "../http/node-http.ts";
import { type Connection, type Exchange, toExchange } from "../http/request.ts";
import {
  type Answer,
  jsonType,
  toGraphqlErrorAnswer,
  toResponse,
  varyHeader,
  writeAnswer,
} from "../http/response.ts";
import type { RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { Session } from "../operations/runtime/session.ts";
import { answerRequest, type Dispatcher, type GraphqlAdmission } from "./dispatch.ts";
import { finishTailHead, followOperation, type OpenTail } from "./graphql-tail.ts";
import { auditOperations } from "./operation-audit.ts";
import { type RequestLog, receiveBody } from "./rest.ts";

/** GraphQL of one server, from before it is loaded on. */
export interface GraphqlHost {
  readonly dispatcher: Dispatcher;
  readonly loadSchema: () => Promise<UnifiedSchema>;
  gateway: Gateway | undefined;
  loading: Promise<Gateway> | undefined;
  openSession:
    | ((admission: GraphqlAdmission, tail: OpenTail, cutConnection: () => void) => Session)
    | undefined;
}

type Gateway = Awaited<ReturnType<typeof loadGateway>>;

/** A GraphQL request under way, by the context that Yoga hands around with it. */
interface Hosted extends GraphqlAdmission {
  readonly tail: OpenTail;
  /** Why nothing of it was run. */
  readonly failure?: unknown;
  /** Its body, where that is read. */
  readonly text?: string;
  /** Lets go of its body. */
  readonly release?: () => void;
}

interface NodeContext extends Partial<Connection> {
  readout?: Session | undefined;
  /** Of a request that was admitted before it came to Yoga. */
  readonly admitted?: GraphqlAdmission;
}

/** While there is no gateway: the answer, or a gateway to finish the request, which is admitted only once. */
export async function answerWithoutGateway(
  host: GraphqlHost,
  { exchange, work, log }: GraphqlAdmission,
): Promise<Answer | Gateway> {
  let answer = graphqlUnavailable;
  let failure: unknown;
  try {
    const gateway = await work.wait(findGateway(host));
    if (gateway !== undefined) return gateway;
  } catch (error) {
    failure = error;
    answer = toGraphqlErrorAnswer(error, exchange.headers.get("accept"));
  }
  work.end();
  await log.finish(answer.status, exchange.gone.aborted, failure);
  return answer;
}

/** Undefined when the schema cannot be loaded; the next request tries again, since a source may be back by then. */
async function findGateway(host: GraphqlHost): Promise<Gateway | undefined> {
  host.loading ??= loadGateway(host);
  try {
    host.gateway = await host.loading;
  } catch (error) {
    host.dispatcher.telemetry.log({ level: "error", message: "GraphQL cannot be served", err: error });
  } finally {
    host.loading = undefined;
  }
  return host.gateway;
}

async function loadGateway(host: GraphqlHost) {
  const { operations, telemetry } = host.dispatcher;
  const unified = await host.loadSchema();
  const { createGateway, createSession } = await import("../graphql/gateway.ts");
  const openSession = (
    admission: GraphqlAdmission,
    tail: OpenTail,
    cutConnection: () => void,
    { signal: gone, held }: Pick<RequestLifetime, "signal" | "held">,
  ): Session => {
    const { exchange, principal, generation, log } = admission;
    const { id } = exchange;
    return createSession({
      executor: auditOperations(generation, id, log),
      operations,
      limits: narrowLimits(generation.limits, principal.limits),
      principal,
      rules: generation.queryRules,
      noteDocument: (query) => noteQuery(log, { query }),
      gone,
      held,
      onTooLarge: () => telemetry.recordLimit("result"),
      onFailure: (operation, err) =>
        telemetry.log({ level: "error", message: "request failed", request: id, operation, err }),
      followTail: (...asked) => followOperation(host.dispatcher, admission, tail, cutConnection, ...asked),
      readTailPosition: () => tail.position,
      // The request's own deadline is that of its head, which has been sent by then.
      createNext: () =>
        openSession(admission, tail, cutConnection, {
          signal: exchange.gone,
          held: generation.executor.openHeld(principal),
        }),
    });
  };
  host.openSession = (admission, tail, cutConnection) =>
    openSession(admission, tail, cutConnection, admission.work);
  return createGateway<NodeContext>({
    unified,
    ...createHostPlugins(host),
    onLimited: () => telemetry.recordLimit("graphql"),
    warn: (message, err) => telemetry.log({ level: "warn", message, err }),
  });
}

/** What comes before all of GraphQL, and after it. */
function createHostPlugins(host: GraphqlHost): Pick<GatewayOptions<NodeContext>, "plugins" | "lastPlugins"> {
  const hosted = new WeakMap<object, Hosted>();
  return { plugins: [createRestPlugin(host, hosted)], lastPlugins: [createCodingPlugin(hosted)] };
}

/** Codes answers of GraphQL as those of REST are coded. */
function createCodingPlugin(hosted: WeakMap<object, Hosted>): Plugin<object, NodeContext> {
  return {
    async onResponse({ response, serverContext, setResponse, fetchAPI }) {
      const { exchange } = hosted.get(serverContext) ?? {};
      if (exchange === undefined) return;
      const { status, statusText, headers } = response;
      if (exchange.isCodable) headers.append("Vary", varyHeader.Vary);
      const { coding, gone } = exchange;
      const length = headers.get("Content-Length") ?? Number.POSITIVE_INFINITY;
      if (typeof coding !== "object" || Number(length) < coding.minBytes) return;
      headers.set("Content-Encoding", coding.name);
      headers.delete("Content-Length");
      const { encodeStreamOfBytes } = await import("../http/content-coding.ts");
      const body = encodeStreamOfBytes(response.body, coding, gone);
      // The body of the fetch API of Yoga may be a stream of Node.
      setResponse(new fetchAPI.Response(body as unknown as BodyInit, { status, statusText, headers }));
    },
  };
}

/** On a real connection it writes to node's response itself, because only there a broken answer can be made visible. */
function createRestPlugin(host: GraphqlHost, hosted: WeakMap<object, Hosted>): Plugin<object, NodeContext> {
  const { dispatcher } = host;
  return {
    async onRequest({ request, serverContext, fetchAPI, endResponse, setRequest }) {
      const { req, res, admitted } = serverContext;
      const exchange =
        admitted?.exchange ??
        toExchange(req !== undefined && res !== undefined ? { req, res } : request, dispatcher.generation);
      const answer = admitted ?? (await answerRequest(dispatcher, exchange));
      if ("principal" in answer) {
        const tail: OpenTail = {};
        hosted.set(serverContext, { ...answer, tail });
        serverContext.readout = host.openSession?.(answer, tail, () => res?.destroy());
        if (exchange.method === "GET")
          noteQuery(answer.log, Object.fromEntries(new URLSearchParams(exchange.search)));
        if (exchange.method !== "POST") return;
        try {
          const { text, release } = await readQuery(dispatcher, answer);
          hosted.set(serverContext, { ...answer, tail, release, text });
          const { method, headers, signal } = request;
          setRequest(new fetchAPI.Request(request.url, { method, headers, signal, body: text }));
        } catch (failure) {
          hosted.set(serverContext, { ...answer, tail, failure });
          // What was not read of the request would hold the connection up.
          req?.resume();
          const refused = toGraphqlErrorAnswer(failure, exchange.headers.get("accept"));
          endResponse(toResponse(refused, exchange, fetchAPI));
        }
        return;
      }
      if (res === undefined) {
        endResponse(toResponse(answer, exchange, fetchAPI));
        return;
      }
      await writeAnswer(answer, exchange, res, dispatcher.isDraining);
      // Yoga sends no response where one has ended already.
      endResponse(new fetchAPI.Response(null));
    },
    onRequestParse({ request, serverContext }) {
      const { text, principal, log } = hosted.get(serverContext) ?? {};
      if (text === undefined || principal === undefined || log === undefined) return;
      // What Yoga reads a body by: its own would parse a megabyte in one turn.
      const json = async () => {
        const parsed = pickParameters(await dispatcher.bodies.parseJson(text, principal.account));
        noteQuery(log, parsed);
        return parsed;
      };
      Object.defineProperty(request, "json", { value: json });
    },
    async onResponse({ response, serverContext, setResponse, fetchAPI }) {
      const known = hosted.get(serverContext);
      if (known === undefined) return;
      try {
        await endHosted(dispatcher, known, response);
      } catch (error) {
        const { exchange, log } = known;
        const refused = toGraphqlErrorAnswer(error, exchange.headers.get("accept"));
        await log.finish(refused.status, false, error);
        setResponse(toResponse(refused, exchange, fetchAPI));
      }
    },
  };
}

/** The query of a request, for the audit log. */
function noteQuery({ fields, isAudited }: RequestLog, request: unknown): void {
  if (!isAudited || typeof request !== "object" || request === null || !("query" in request)) return;
  if (typeof request.query === "string") fields.content = { query: request.query };
}

const parameters: ReadonlySet<string> = new Set(["query", "variables", "operationName", "extensions"]);

/**
 * What a body holds of a request, and of what is none of it the first, which Yoga refuses. Yoga goes through all keys and
 * copies them again and again, which takes a fifth of a second for the hundred thousand of a body.
 */
function pickParameters(body: unknown): unknown {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return body;
  const picked: [key: string, value: unknown][] = [];
  for (const key in body) {
    const value: unknown = body[key as keyof typeof body];
    if (parameters.has(key)) picked.push([key, value]);
    else if (value !== null) return Object.fromEntries([[key, value]]);
  }
  return Object.fromEntries(picked);
}

/** A slot is held while the body arrives; the operations of the query take their own. */
async function readQuery(
  { bodies }: Dispatcher,
  { exchange, principal, generation, work }: GraphqlAdmission,
) {
  const returnSlot = await generation.executor.takeSlot(principal, work.signal);
  const reading = bodies.readText(exchange, principal.account, work.signal);
  return receiveBody(reading, work).finally(returnSlot);
}

/** @throws {LimitReached} */
async function endHosted(
  { isDraining }: Dispatcher,
  hosted: Hosted,
  { headers, status }: Response,
): Promise<void> {
  const { exchange, work, log, failure, release, tail } = hosted;
  const isCut = exchange.gone.aborted;
  release?.();
  work.end();
  // What was not run has them already.
  if (failure === undefined) setOwnHeaders(exchange, headers);
  if (isDraining) headers.set("Connection", "close");
  // The log of a request with a tail is finished when that is over.
  if (tail.body !== undefined) return finishTailHead(tail, headers);
  const length = headers.get("Content-Length");
  if (length !== null) log.fields.bytes = Number(length);
  await log.finish(status, isCut, failure);
}

function setOwnHeaders({ id }: Exchange, headers: Headers): void {
  headers.set("X-Request-Id", id);
  for (const [name, value] of Object.entries(privateHeaders)) headers.set(name, value);
}

const graphqlUnavailable: Answer = {
  status: 500,
  headers: jsonType,
  body: JSON.stringify({
    errors: [
      {
        message: "GraphQL is not available: its schema could not be loaded. /readyz and the log say why",
        extensions: { status: 500 },
      },
    ],
  }),
};
