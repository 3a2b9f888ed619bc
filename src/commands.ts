// The commands of the program: what they are called with, what they do, and the module of each.

import { type CommandHelp, parseCommandHelp } from "./cli/support/command-help.ts";
import type { Shell } from "./cli/support/shell.ts";
import { zip } from "./core/collections.ts";

/** What the module of a command exports. `run` resolves to the exit code. */
interface CommandModule {
  readonly run: (args: readonly string[], shell: Shell) => Promise<number>;
  readonly usage: string;
  /** The values of options that take one of a list, by the option. */
  readonly choices?: Readonly<Record<string, readonly string[]>>;
}

interface Command {
  /** The arguments that matter most, as the list of commands shows them. */
  readonly synopsis: string;
  /** What it does: a verb and its object. */
  readonly summary: string;
  /** Loaded on demand: `token new` need not wait for a web server. */
  readonly load: () => Promise<CommandModule>;
}

/** By name, in the order of the help. */
export const commands: Readonly<Record<string, Command>> = {
  demo: {
    synopsis: "[--port 8080] [--token T]",
    summary: "serve generated data, to look around",
    load: () => import("./cli/demo.ts"),
  },
  serve: {
    synopsis: "[--config readout.yaml]",
    summary: "serve the configured sites",
    load: () => import("./cli/serve/serve.ts"),
  },
  check: {
    synopsis: "[--config readout.yaml]",
    summary: "say what of a configuration will work, and what not",
    load: () => import("./cli/check/check.ts"),
  },
  init: {
    synopsis: "--elastic URL --prometheus URL",
    summary: "look at a stack and write a readout.yaml for it",
    load: () => import("./cli/init/init.ts"),
  },
  explain: {
    synopsis: "--site S 'QUERY'",
    summary: "say what a query means, and which requests it sends",
    load: () => import("./cli/explain.ts"),
  },
  token: {
    synopsis: "new --user U --site S [--site S]",
    summary: "make a token, and its entry for the file",
    load: () => import("./cli/token.ts"),
  },
  visual: {
    synopsis: "new --site S --title T",
    summary: "write the file of a published visual, with a new id",
    load: () => import("./cli/new-visual.ts"),
  },
  schema: { synopsis: "", summary: "print the GraphQL schema", load: () => import("./cli/schema.ts") },
  mcp: {
    synopsis: "[--url URL]",
    summary: "hand an editor's messages to a running server",
    load: () => import("./cli/mcp.ts"),
  },
  completion: {
    synopsis: "bash|zsh|fish",
    summary: "print what completes commands in a shell",
    load: () => import("./cli/completion.ts"),
  },
};

/** The help of the program, a line for each command. */
export function printUsage(): string {
  const rows = Object.entries(commands).map(([name, { synopsis, summary }]) => ({
    call: `${name.padEnd(nameWidth)} ${synopsis}`,
    summary,
  }));
  const others = [
    { call: "--version", summary: "print the version" },
    { call: "COMMAND --help", summary: "say what a command does, and its options" },
  ];
  const width = Math.max(...rows.map(({ call }) => call.length));
  const print = ({ call, summary }: (typeof rows)[number]) => `  ${call.padEnd(width)}  ${summary}\n`;
  return `Usage: readout COMMAND [options]\n\n${rows.map(print).join("")}\n${others.map(print).join("")}`;
}

/** Short names stand in a column; longer ones push their arguments. */
const nameWidth = 5;

/** Loads every command, and reads its help. */
export async function readHelp(): Promise<readonly CommandHelp[]> {
  const entries = Object.entries(commands);
  const modules = await Promise.all(entries.map(([, { load }]) => load()));
  return zip(entries, modules).map(([[name, { summary }], { usage, choices }]) =>
    parseCommandHelp(name, summary, usage, choices),
  );
}
