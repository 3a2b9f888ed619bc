// A proxy that spoils the answers of a source, each in one way: on the wire, in HTTP, or in what the source says. It
// takes an answer in whole and then plays it as the fault has it, so that a fault strikes at the byte that is wanted.
// Its waiting is on the global timers, which a test may put on a clock of its own.
import { Agent, createServer, request as httpRequest, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { gzipSync } from "node:zlib";

/** What no client may ever read. */
export const secret = "words-of-the-source";

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}
interface Strike {
  readonly answer: Answer;
  readonly response: ServerResponse;
  readonly socket: Socket;
  /** From 0 to 1, the same for the same seed. */
  readonly chance: () => number;
  /** Until the next plan. */
  readonly later: Later;
}
type Later = (run: () => void, delay: number) => void;

const second = 1_000;
/** Far over any limit that a test sets, and a few kilobytes on the wire. */
const bomb = gzipSync(Buffer.alloc(16 * 1_048_576));

/** Each returns false where the answer cannot be spoiled in this way; it is then sent as it is. */
const strikes = {
  latency: ({ answer, response, chance, later }) => {
    later(() => send(response, answer), 50 + chance() * 4 * second);
  },
  bandwidth: ({ answer, response, chance, later }) => {
    const { status, headers, body } = answer;
    response.writeHead(status, { ...headers, "content-length": body.length });
    const step = Math.max(1, Math.ceil(body.length / (1 + chance() * 8)));
    sendSlowly(response, body, step, second / 4, later, () => response.end());
  },
  cut: ({ answer, socket, chance }) => {
    const whole = renderRaw(answer);
    socket.end(whole.subarray(0, Math.floor(chance() * whole.length)));
  },
  reset: ({ answer, socket, chance }) => {
    const whole = renderRaw(answer);
    const sent = Math.floor(chance() * whole.length);
    if (sent < whole.length / 4) reset(socket);
    else socket.write(whole.subarray(0, sent), () => reset(socket));
  },
  silence: () => {},
  "half-open": ({ answer, socket, chance }) => {
    const whole = renderRaw(answer);
    socket.write(whole.subarray(0, 1 + Math.floor(chance() * (whole.length - 1))));
  },
  "slow loris": ({ answer, socket, later }) => {
    sendSlowly(socket, renderRaw(answer), 1, second, later, () => socket.end());
  },
  "truncated JSON": ({ answer, response, chance }) => {
    const { body } = answer;
    send(response, { ...answer, body: body.subarray(0, Math.floor(chance() * body.length)) });
  },
  "Content-Length too long": ({ answer, socket, chance }) => {
    socket.end(renderRaw(answer, answer.body.length + 1 + Math.floor(chance() * 100)));
  },
  "Content-Length too short": ({ answer, socket, chance }) => {
    socket.write(renderRaw(answer, Math.floor(chance() * answer.body.length)));
  },
  "bad gzip": ({ answer, response, chance }) => {
    const body = gzipSync(answer.body);
    // Within the head, or a byte of the checksum: the data may then look whole.
    const at = chance() < 0.5 ? 0 : body.length - 8;
    body.writeUInt8(body.readUInt8(at) ^ 0xff, at);
    send(response, { ...answer, headers: { ...answer.headers, "content-encoding": "gzip" }, body });
  },
  "gzip bomb": ({ answer, response }) => {
    send(response, { ...answer, headers: { ...answer.headers, "content-encoding": "gzip" }, body: bomb });
  },
  "429": (strike) => fail(strike, 429),
  "429 with Retry-After": (strike) => fail(strike, 429, { "retry-after": "7" }),
  "503": (strike) => fail(strike, 503),
  "an error with status 200": (strike) => fail(strike, 200),
  "a part with status 200": ({ answer, response, chance }) => {
    const part = cutInHalf(answer, chance);
    if (part === undefined) return false;
    send(response, { ...answer, body: Buffer.from(JSON.stringify(part)) });
    return true;
  },
  "a page with status 200": ({ answer, response }) => {
    const headers = { "content-type": "text/html" };
    send(response, { status: answer.status, headers, body: Buffer.from(`<html>${secret}</html>`) });
  },
} satisfies Record<string, (strike: Strike) => unknown>;

export type FaultKind = keyof typeof strikes;
export const faultKinds = Object.keys(strikes) as readonly FaultKind[];

interface Fault {
  readonly kind: FaultKind;
  readonly chance: () => number;
}

export interface FaultProxy {
  readonly url: string;
  /** What becomes of the n-th request, from 0, since it was set; nothing where it returns undefined. */
  plan(fault: (n: number) => Fault | undefined): void;
  /** Since `plan`: requests that came, answers that were spoiled, and answers that nobody waited for any more. */
  readonly seen: { asked: number; struck: number; left: number };
  /** Grows with whatever happens on the wire. */
  readonly activity: () => number;
  readonly connections: () => number;
  close(): Promise<void>;
}

export async function openProxy(upstream: string): Promise<FaultProxy> {
  const agent = new Agent({ keepAlive: true });
  const sockets = new Set<Socket>();
  const seen = { asked: 0, struck: 0, left: 0 };
  let faultOf: (n: number) => Fault | undefined = () => undefined;
  let activity = 0;
  const timers = new Set<NodeJS.Timeout>();
  const later: Later = (run, delay) => {
    const timer = setTimeout(() => {
      timers.delete(timer);
      run();
    }, delay);
    timers.add(timer);
  };

  const server = createServer((request, response) => {
    activity += 1;
    const fault = faultOf(seen.asked++);
    const forwarded = httpRequest(new URL(request.url ?? "", upstream), {
      method: request.method,
      headers: request.headers,
      agent,
    });
    response.on("close", () => {
      activity += 1;
      if (!response.writableFinished) seen.left += 1;
    });
    forwarded.on("response", async (answered) => {
      const chunks: Buffer[] = [];
      for await (const chunk of answered) chunks.push(chunk);
      activity += 1;
      if (response.destroyed || request.socket.destroyed) return;
      const answer = {
        status: answered.statusCode ?? 0,
        headers: keepHeaders(answered.headers),
        body: Buffer.concat(chunks),
      };
      const { socket } = request;
      if (
        fault !== undefined &&
        applyFault(fault, { answer, response, socket, chance: fault.chance, later })
      ) {
        seen.struck += 1;
      } else send(response, answer);
    });
    request.on("error", () => forwarded.destroy());
    forwarded.on("error", () => response.destroy());
    request.pipe(forwarded);
  });
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    activity += 1;
    socket.on("data", () => {
      activity += 1;
    });
    socket.on("error", () => {});
    socket.on("close", () => {
      activity += 1;
      sockets.delete(socket);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    plan(fault) {
      faultOf = fault;
      for (const timer of timers) clearTimeout(timer);
      timers.clear();
      Object.assign(seen, { asked: 0, struck: 0, left: 0 });
    },
    seen,
    activity: () => activity,
    connections: () => sockets.size,
    close: () =>
      new Promise((resolve) => {
        agent.destroy();
        if (!server.listening) resolve();
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** Node does not close a socket that is to be reset after it has been shut down, as where its client has just left. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

function applyFault({ kind }: Fault, how: Strike): boolean {
  const played: unknown = strikes[kind](how);
  return played !== false;
}

/** Headers that say something of the body's meaning, and none of its way here. */
function keepHeaders(headers: Readonly<Record<string, unknown>>): Record<string, string> {
  const names = ["content-type", "x-elastic-product"];
  return Object.fromEntries(
    names.flatMap((name) => (typeof headers[name] === "string" ? [[name, headers[name]]] : [])),
  );
}

function send(response: ServerResponse, { status, headers, body }: Answer): void {
  response.writeHead(status, { ...headers, "content-length": body.length });
  response.end(body);
}

function renderRaw({ status, headers, body }: Answer, length = body.length): Buffer {
  const lines = Object.entries({ ...headers, "content-length": length }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return Buffer.concat([Buffer.from(`HTTP/1.1 ${status} X\r\n${lines.join("")}\r\n`), body]);
}

interface Writer {
  readonly destroyed: boolean;
  write(bytes: Buffer): unknown;
}
function sendSlowly(
  to: Writer,
  bytes: Buffer,
  step: number,
  every: number,
  later: Later,
  end: () => void,
): void {
  const next = (at: number): void => {
    if (to.destroyed) return;
    if (at >= bytes.length) end();
    else {
      to.write(bytes.subarray(at, at + step));
      later(() => next(at + step), every);
    }
  };
  next(0);
}

function fail({ answer, response }: Strike, status: number, headers: Record<string, string> = {}): void {
  const error = { status: "error", errorType: "internal", error: secret };
  const body = Buffer.from(JSON.stringify(error));
  send(response, { status, headers: { ...answer.headers, ...headers }, body });
}

/** Half of what was found, or of what was counted, with a sign by which the source says so. */
function cutInHalf({ body, status }: Answer, chance: () => number): object | undefined {
  if (status !== 200) return undefined;
  const value = JSON.parse(body.toString());
  const half = <T>(all: readonly T[]) => all.slice(0, Math.floor(all.length / 2));
  if (value._shards !== undefined) {
    const { hits, aggregations, _scroll_id } = value;
    const shards = { ...value._shards, failed: 1, failures: [{ reason: secret }] };
    const signs: object[] = [{ _shards: shards }, { timed_out: true }];
    // Nothing for whole aggregations of OpenSearch 3 and further parts of a scroll of Elasticsearch 7, which say so too.
    if (aggregations === undefined && _scroll_id === undefined) signs.push({ terminated_early: true });
    return {
      ...value,
      hits: { ...hits, hits: half(hits.hits) },
      ...(aggregations && { aggregations: changeBuckets(aggregations, half) }),
      ...signs[Math.floor(chance() * signs.length)],
    };
  }
  if (value.data?.result === undefined) return undefined;
  return { ...value, warnings: [secret], data: { ...value.data, result: half(value.data.result) } };
}

function changeBuckets(
  aggregations: object,
  map: (buckets: readonly unknown[]) => readonly unknown[],
): object {
  return Object.fromEntries(
    Object.entries(aggregations).map(([name, one]) => [
      name,
      Array.isArray(one.buckets) ? { ...one, buckets: map(one.buckets) } : one,
    ]),
  );
}
