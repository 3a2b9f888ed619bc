// Runs the shell blocks of a page in bash, in a folder of the page's own. The words that would reach out (`curl`, `npx`,
// `npm`, `docker`, …) are functions that hand their arguments to this process: `curl` asks the server that the page has
// started, else the demo; `npx readout` runs the command in this process, in front of a small Elasticsearch and a small
// Prometheus in memory. All other words are those of the machine.
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { isAbsolute, join } from "node:path";
import { kinds } from "#resolvers/index.ts";
import { hashToken } from "#src/access/auth.ts";
import type { Shell } from "#src/cli/support/shell.ts";
import { now } from "#src/core/time.ts";
import manifest from "../../../package.json" with { type: "json" };
import { createShell } from "../fake-shell.ts";
import { openStack, type Stack } from "./example-stack.ts";

interface Command {
  readonly run: (args: readonly string[], shell: Shell) => Promise<number>;
}
const commands: Readonly<Record<string, () => Promise<Command>>> = {
  demo: () => import("#src/cli/demo.ts"),
  serve: () => import("#src/cli/serve/serve.ts"),
  check: () => import("#src/cli/check/check.ts"),
  init: () => import("#src/cli/init/init.ts"),
  explain: () => import("#src/cli/explain.ts"),
  token: () => import("#src/cli/token.ts"),
  visual: () => import("#src/cli/new-visual.ts"),
  schema: () => import("#src/cli/schema.ts"),
};

/** What a block did. */
export interface Outcome {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
  /** The statuses of its answers, in order. */
  readonly statuses: readonly number[];
}

export interface ExampleShell {
  /** Runs a block; the variables that it sets are there for the next one. */
  run(script: string): Promise<Outcome>;
  close(): Promise<void>;
}

export const demoToken = "demo-token";
/** Its hash is in the file that a page begins with. */
const stackToken = "rdt_docs";

/** Starts the demo; what it needs for `curl` is its address. */
export async function startDemo() {
  return startServer(
    await import("#src/cli/demo.ts"),
    ["--port", "0", "--token", demoToken],
    process.cwd(),
    {},
  );
}

/** A page's shell. `file` is the `readout.yaml` that it begins with. */
export async function openExampleShell(demo: string, file: string | undefined): Promise<ExampleShell> {
  const folder = await mkdtemp(join(tmpdir(), "readout-docs-"));
  const stack = await openStack();
  if (file !== undefined) await writeFile(join(folder, "readout.yaml"), stack.place(file));
  const servers: { stop(): Promise<void> }[] = [];
  let address = demo;
  let token = file === undefined ? demoToken : stackToken;
  let statuses: number[] = [];
  /**
   * Resolved once the server has started that the block puts into the background. Before it nobody listens at its address: only
   * a `curl` that tries again gets an answer.
   */
  let starting: PromiseWithResolvers<void> | undefined;

  /** @returns exit code and standard output */
  const execute = async (
    name: string,
    args: readonly string[],
    env: Env,
  ): Promise<readonly [number, string]> => {
    if (name === "curl") {
      if (starting !== undefined && !args.includes("--retry-connrefused")) return [curlCannotConnect, ""];
      await starting?.promise;
      starting = undefined;
      const { status, text, isFailure } = await fetchAs(args, (url) => place(url, address));
      statuses.push(status);
      return [isFailure ? 22 : 0, text];
    }
    const own =
      name === "npx" && args.findIndex((argument) => /^readout$|^\.\/.*readout-.*\.tgz$/.test(argument));
    if (own !== false && own !== -1) return runCommand(args.slice(own + 1), env);
    if (name === "npm" && args[0] === "start") return runCommand(["demo", ...args.slice(2)], env);
    const complaint = findMisuse(name, args);
    return complaint === undefined ? [0, ""] : [1, `${name} ${args.join(" ")}: ${complaint}\n`];
  };

  async function runCommand(args: readonly string[], env: Env): Promise<readonly [number, string]> {
    const [name = "", ...given] = args;
    const command = await commands[name]?.();
    if (command === undefined) return [2, `no command ${name}\n`];
    const placed = given.map((argument) => stack.place(argument));
    if (name === "serve" || name === "demo") {
      const free = name === "demo" ? [...withoutPort(placed), "--port", "0"] : placed;
      const server = await startServer(command, free, folder, env);
      servers.push(server);
      starting?.resolve();
      ({ address } = server);
      token = /^Token +(\S+)$/m.exec(server.out())?.[1] ?? token;
      return [0, server.out()];
    }
    const shell = createPageShell(folder, env);
    const own = name === "init" ? ["--out", join(folder, "readout.yaml")] : [];
    const within = placed.map((argument, at) =>
      placed[at - 1] === "--folder" ? join(folder, argument) : argument,
    );
    const code = await command.run([...within, ...own], shell);
    const printed = stack.unplace(shell.printed() + shell.complained()).replaceAll(`${folder}/`, "");
    if (name === "init" && code === 0) {
      const written = join(folder, "readout.yaml");
      await writeFile(written, stack.place(readFileSync(written, "utf8")));
    }
    if (name === "init") token = /^ {2}(rdt_\S+)$/m.exec(printed)?.[1] ?? token;
    return [code, printed];
  }

  const control = await openControl(execute);
  return {
    async run(script) {
      statuses = [];
      starting = /(?:readout serve|npm start).* &$/m.test(script) ? Promise.withResolvers() : undefined;
      const functions = forwarded.map((name) => `${name}() { forward ${name} "$@"; }`).join("\n");
      const text = `${preamble(control.port)}\n${functions}\n[ -e .vars ] && . ./.vars; TOKEN=${token}\n${script}\ncode=$?; declare -p | grep -vE '^declare -[a-zA-Z]*[rxiaA]' > .vars; exit $code`;
      const { out, err, code } = await runBash(text, folder);
      return { out, err, code, statuses };
    },
    async close() {
      await Promise.all(servers.map((server) => server.stop()));
      control.close();
      await stack.close();
      await rm(folder, { recursive: true });
    },
  };
}

// ---- Words that are not the machine's -----------------------------------------------------------------------

const forwarded = [
  "curl",
  "npx",
  "npm",
  "docker",
  "helm",
  "git",
  "systemctl",
  "useradd",
  "cp",
  "sqlite3",
] as const;

/**
 * What cannot be run here is compared with what it would use: scripts of package.json, files of the checkout.
 *
 * @returns what is wrong with it
 */
function findMisuse(name: string, args: readonly string[]): string | undefined {
  const [first = "", second = ""] = args;
  const missing = args.filter((argument) => /^(?:deploy|src|docs)\//.test(argument) && !existsSync(argument));
  if (missing.length > 0) return `there is no ${missing.join(", ")}`;
  switch (name) {
    case "npm":
      if (first === "run") return second in manifest.scripts ? undefined : "no such script";
      return ["install", "ci", "test"].includes(first) ? undefined : "unknown";
    case "npx":
      return args.includes("openapi-typescript@7") ? undefined : "unknown";
    case "docker":
      if (first === "kill") return args.includes("HUP") ? undefined : "unknown";
      return (first === "compose" && existsSync("docker-compose.yml")) || first === "build"
        ? undefined
        : "unknown";
    case "helm":
      return first === "install" && args.includes("deploy/helm/readout") ? undefined : "unknown";
    case "systemctl":
      if (first === "reload" && !/^ExecReload=/m.test(readFileSync("deploy/readout.service", "utf8"))) {
        return "deploy/readout.service cannot be reloaded";
      }
      return args.includes("readout") ? undefined : "unknown";
    case "cp":
      return existsSync(first) ? undefined : "no such file in the checkout";
    case "useradd":
      return readFileSync("deploy/readout.service", "utf8").includes(`useradd ${args.join(" ")}`)
        ? undefined
        : "not as deploy/readout.service has it";
    case "git":
      return first === "clone" || first === "pull" ? undefined : "unknown";
    case "sqlite3":
      return second.startsWith("select ") ? undefined : "unknown";
    default:
      return "unknown";
  }
}

/** The exit code of curl where nobody listens. */
const curlCannotConnect = 7;

const withoutPort = (args: readonly string[]) =>
  args.filter((argument, at) => argument !== "--port" && args[at - 1] !== "--port");

const place = (url: string, address: string): string =>
  url.replace(/^(?:http:\/\/)?(?:localhost|127\.0\.0\.1):808[01]/, address);

/** The options of curl that the pages use. */
async function fetchAs(args: readonly string[], toAddress: (url: string) => string) {
  const headers = new Headers();
  let url = "";
  let body: string | undefined;
  let [fails, streams] = [false, false];
  for (let at = 0; at < args.length; at += 1) {
    const argument = args[at] ?? "";
    if (argument === "-H") {
      const [name = "", ...value] = (args[++at] ?? "").split(": ");
      headers.append(name, value.join(": "));
    } else if (argument === "-d") body = args[++at];
    else if (argument === "--fail") fails = true;
    else if (argument === "--retry") at += 1;
    else if (argument === "--retry-connrefused") continue;
    else if (/^-s?N?$/.test(argument) && argument !== "-") streams ||= argument.includes("N");
    else if (url === "" && !argument.startsWith("-")) url = argument;
    else throw new Error(`curl: ${argument}`);
  }
  const controller = new AbortController();
  const answer = await fetch(toAddress(url), {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body ?? null,
    signal: controller.signal,
  });
  const text = streams ? await readFirstEvent(answer) : await answer.text();
  controller.abort();
  return { status: answer.status, text, isFailure: fails && !answer.ok };
}

/** Of an endless answer its first event of lines. */
async function readFirstEvent(answer: Response): Promise<string> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of answer.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (/^event: (?:line|next)$[\s\S]*?\n\n/m.test(text)) break;
  }
  return text;
}

// ---- Bash ---------------------------------------------------------------------------------------------------

type Env = Readonly<Record<string, string>>;

/** `forward NAME ARGUMENT…` sends the arguments and prints what comes back; the first line is the exit code. */
const preamble = (port: number): string => `
forward() {
  local code
  exec 9<>/dev/tcp/127.0.0.1/${port}
  printf '%s\\0' "$#" "$@" >&9
  env -0 >&9
  printf '\\0' >&9
  IFS= read -r code <&9
  cat <&9
  exec 9>&-
  return "$code"
}`;

async function runBash(script: string, folder: string) {
  const child = spawn("bash", ["-c", script], {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH: process.env.PATH, LC_ALL: "C" },
  });
  const said = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said.out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    said.err += text;
  });
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  return { ...said, code };
}

/** Listens to `forward`. */
async function openControl(
  execute: (name: string, args: readonly string[], env: Env) => Promise<readonly [number, string]>,
) {
  const server: Server = createServer((socket: Socket) => {
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk) => {
      text += chunk;
      if (!text.endsWith("\0\0")) return;
      const [count = "", ...rest] = text.split("\0");
      const [name = "", ...args] = rest.slice(0, Number(count));
      const pairs = rest.slice(Number(count)).filter((pair) => pair.includes("="));
      const env = Object.fromEntries(
        pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
      );
      execute(name, args, env).then(
        ([code, out]) => socket.end(`${code}\n${out}`),
        (error: unknown) => socket.end(`1\n${String(error)}\n`),
      );
    });
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const at = server.address();
  return { port: typeof at === "object" && at !== null ? at.port : 0, close: () => server.close() };
}

// ---- Commands in this process -------------------------------------------------------------------------------

function createPageShell(folder: string, env: Env, signal?: AbortSignal) {
  const shell = createShell({ now: now(), env, kinds: [...kinds.values()], ...(signal && { signal }) });
  const resolve = (path: string) => (isAbsolute(path) ? path : join(folder, path));
  return { ...shell, now, readText: (path: string) => readFileSync(resolve(path), "utf8") };
}

async function startServer(command: Command, args: readonly string[], folder: string, env: Env) {
  const controller = new AbortController();
  const shell = createPageShell(folder, env, controller.signal);
  let stopped: Promise<number> | undefined;
  const address = await new Promise<string>((resolve, reject) => {
    const out = (text: string) => {
      shell.out(text);
      const found = /Readout listens on (http:\/\/\S+)/.exec(shell.printed())?.[1];
      if (found !== undefined) resolve(found);
    };
    stopped = command.run(args, { ...shell, out });
    stopped.then(() => reject(new Error(shell.complained() || shell.printed())), reject);
  });
  return {
    address,
    out: () => shell.printed(),
    async stop() {
      controller.abort(new Error("SIGTERM"));
      await stopped;
    },
  };
}

/** The entry of the token that a page's file begins with. */
export const stackTokenEntry = `  - { user: ana, sha256: "${hashToken(stackToken)}", sites: "*" }`;
export type { Stack };
