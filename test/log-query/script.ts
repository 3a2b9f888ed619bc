// The scripts in cases/: load lines, evaluate queries, expect ids or a refusal. They are data, so that `matches` and
// every log store run the same ones. The form of a script:
//
//   # a comment; `# memory only: <reason>` at the top keeps a script from servers that cannot hold its lines
//   load
//     a {"severity":"error","message":"no","hostname":"web-1","group":"app","time":"…Z","json":{"n":1.0}}
//   eval n=1.0
//     a
//   fail n_int=1
//     legacy_log_query_syntax {"field":"n_int"}
//
// `eval-legacy` and `fail-legacy` use the wider grammar. Every part of a line but its id is optional; `json` comes last
// and its text is kept as it is written, numbers above all. Ids are separated by spaces or line ends, in any order;
// none means that no line is found. A `load` replaces the lines before it: the lines of one `load` make one index.
import { readdirSync, readFileSync } from "node:fs";
import type { Slug } from "#src/core/errors.ts";
import type { LogLine } from "#src/core/rows.ts";
import { parseSeverity } from "#src/core/severity-words.ts";
import { fromMillis, parseInstant } from "#src/core/time.ts";

export interface LoadedLine {
  readonly id: string;
  /** ISO 8601. */
  readonly time?: string | undefined;
  /** As the source spells it: `ERR` becomes `error`, an absent one `unknown`. */
  readonly severity?: string | undefined;
  readonly message?: string | undefined;
  readonly hostname?: string | undefined;
  readonly group?: string | undefined;
  /** JSON text, `{}` where the script has none. */
  readonly json: string;
}

export interface Load {
  readonly kind: "load";
  readonly lines: readonly LoadedLine[];
}

interface Evaluation {
  readonly kind: "eval";
  readonly query: string;
  readonly legacy: boolean;
  /** Sorted. */
  readonly ids: readonly string[];
  /** 1-based line of the script. */
  readonly line: number;
}

interface Failure {
  readonly kind: "fail";
  readonly query: string;
  readonly legacy: boolean;
  readonly slug: Slug;
  readonly details: unknown;
  /** 1-based line of the script. */
  readonly line: number;
}

type Step = Load | Evaluation | Failure;

interface Script {
  /** The file's name without its ending. */
  readonly name: string;
  /** Why no server can hold these lines, where that is so. */
  readonly memoryOnly: string | undefined;
  readonly steps: readonly Step[];
}

interface Block {
  readonly head: string;
  readonly line: number;
  readonly body: string[];
}

const folder = new URL("./cases/", import.meta.url);

/** All scripts by name. A script that cannot be read throws an error that names its line. */
export function loadScripts(): Script[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith(".logql"))
    .sort()
    .map((file) => readScript(file.slice(0, -".logql".length), readFileSync(new URL(file, folder), "utf8")));
}

/** The line as a store that holds only these lines answers it. */
export function toLogLine(loaded: LoadedLine): LogLine {
  return {
    id: loaded.id,
    time: (loaded.time === undefined ? undefined : parseInstant(loaded.time)) ?? fromMillis(0),
    source_id: "app",
    severity: parseSeverity(loaded.severity),
    message: loaded.message,
    hostname: loaded.hostname,
    group: loaded.group,
    json: loaded.json,
  };
}

export function readScript(name: string, text: string): Script {
  const blocks: Block[] = [];
  for (const [at, line] of text.split("\n").entries()) {
    if (line.trim() === "" || line.trimStart().startsWith("#")) continue;
    if (!line.startsWith(" ")) blocks.push({ head: line, line: at + 1, body: [] });
    else blocks.at(-1)?.body.push(line.trim());
  }
  const memoryOnly = /^# memory only: (.+)$/m.exec(text)?.[1];
  return { name, memoryOnly, steps: blocks.map((block) => readBlock(name, block)) };
}

function readBlock(name: string, { head, line, body }: Block): Step {
  const [, word = "", suffix, query = ""] = /^(load|eval|fail)(-legacy)?(?: (.*))?$/.exec(head) ?? [];
  const legacy = suffix !== undefined;
  switch (word) {
    case "load":
      return { kind: "load", lines: body.map((text) => readLine(name, text)) };
    case "eval":
      return { kind: "eval", query, legacy, ids: body.flatMap((ids) => ids.split(/\s+/)).sort(), line };
    case "fail": {
      const [, slug = "", details = "null"] = /^(\w+) (.*)$/.exec(body.join(" ")) ?? [];
      return { kind: "fail", query, legacy, slug: slug as Slug, details: JSON.parse(details), line };
    }
    default:
      throw new Error(`${name}.logql:${line}: expected load, eval or fail: ${head}`);
  }
}

function readLine(name: string, text: string): LoadedLine {
  const [, id = "", row = ""] = /^(\S+)\s+(\{.*\})$/.exec(text) ?? [];
  try {
    const { json, ...fields } = JSON.parse(row) as Record<string, unknown>;
    const mark = '"json":';
    const raw = json === undefined ? "{}" : row.slice(row.indexOf(mark) + mark.length, -1).trim();
    if (json !== undefined && JSON.stringify(JSON.parse(raw)) !== JSON.stringify(json)) {
      throw new Error("json is not last");
    }
    return { ...(fields as Omit<LoadedLine, "id" | "json">), id, json: raw };
  } catch (cause) {
    throw new Error(`${name}.logql: no line: ${text}`, { cause });
  }
}
