// `readout explain`: explains what a request means and how it is answered. It sends the backend requests that the server
// would send. The result is the answer of `?explain=true`, made in this process and printed as YAML.

import { parseArgs } from "node:util";
import { connectSites, listPartBackends } from "../access/sites.ts";
import type { Config } from "../config/config.ts";
import { siteParts } from "../config/schema.ts";
import { printYaml } from "../config/yaml/print-yaml.ts";
import { runSteps } from "../core/async/turns.ts";
import { readOwn } from "../core/collections.ts";
import { BackendError, ConfigError, toErrorMessage, Unprocessable } from "../core/errors.ts";
import { fromMillis, type Instant, parseDuration, printInstant } from "../core/time.ts";
import { aggregations, metricFields, resolutions } from "../metrics/measures.ts";
import { operations } from "../operations/index.ts";
import { prepareExplanation } from "../operations/runtime/explain.ts";
import { startRequest } from "../operations/runtime/lifetime.ts";
import { orders } from "../operations/runtime/request-body.ts";
import type { Backend } from "../store/backend.ts";
import { createLateConfigError, printConfigError, readConfig } from "./support/config-file.ts";
import { describeError, openBackend, toBackendIssue } from "./support/open-backend.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout explain --site SITE ['QUERY'] [--source SOURCE …] [--order DESC] [--per-page 100] [--legacy]
       readout explain traces --site SITE ['QUERY'] [--errors] [--by time|duration] [--order DESC] [--per-page 25]
       readout explain metrics --site SITE --name METRIC --field FIELD [--tag KEY=VALUE …] [--aggregation A]
                               [--resolution R]

Runs the request, and prints instead of its rows what it means, how each source finds them and why so, every request
that was sent, how many documents were read and kept, and how long each step took.

  --site SITE        a site of the file
  --source SOURCE    a log source of the site; repeat it for more; without it all of them
  --from, --to TIME  ISO 8601 with a zone, or how long ago: 30m, 7d; of metrics the last hour without them
  --legacy           as with "use_expressions": false
  --config FILE      readout.yaml
  --json             as JSON, which is what ?explain=true answers
`;

export const choices = {
  "--order": orders,
  "--by": ["time", "duration"],
  "--field": metricFields,
  "--aggregation": aggregations,
  "--resolution": Object.keys(resolutions),
};

const options = {
  site: { type: "string", default: "" },
  source: { type: "string", multiple: true },
  from: { type: "string" },
  to: { type: "string" },
  order: { type: "string", default: "DESC" },
  "per-page": { type: "string" },
  legacy: { type: "boolean", default: false },
  errors: { type: "boolean", default: false },
  by: { type: "string", default: "time" },
  name: { type: "string" },
  field: { type: "string" },
  tag: { type: "string", multiple: true },
  aggregation: { type: "string" },
  resolution: { type: "string" },
  config: { type: "string", default: "readout.yaml" },
  json: { type: "boolean", default: false },
} as const;

/** Keys of the explanation whose values are short enough for one line, or easier to copy as one. */
const oneLineKeys = new Set([
  "body",
  "parameters",
  "indices",
  "range",
  "match",
  "tags",
  "measure",
  "time",
  "answer",
]);

/** Exit code 1 when the file is wrong or the request cannot be explained, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  let parsed: ExplainArguments;
  try {
    parsed = readArguments(args, shell.now());
  } catch (error) {
    return printUsageError(`explain: ${toErrorMessage(error)}`, usage, shell);
  }
  const { file, site, json } = parsed;
  let config: Config;
  try {
    config = readConfig(file, shell);
  } catch (error) {
    return printConfigError(error, file, shell);
  }
  const entry = readOwn(config.sites, site);
  if (entry === undefined) {
    shell.err(`${file}: no site is called "${site}"; there are ${Object.keys(config.sites).join(", ")}\n`);
    return exitCodes.failed;
  }
  const names = siteParts.flatMap((part) => listPartBackends(entry, part));
  const backends = new Map<string, Backend>();
  const work = startRequest(shell.signal, config.limits.deadline);
  try {
    for (const name of new Set(names)) {
      const backend = openSiteBackend(name, config, file, shell);
      if (backend !== undefined) backends.set(name, backend);
    }
    const sites = new Map([...connectSites(config, backends)].filter(([id]) => id === site));
    const { limits } = config;
    const context = { user: "", sites, limits, now: () => shell.now(), signal: work.signal };
    const { run } = prepareExplanation(parsed.prepare(Object.keys(entry.logs?.sources ?? {})));
    // Its run is one value.
    const explanation = await work.wait(Promise.resolve(run(context)));
    shell.out(json ? `${JSON.stringify(explanation, null, 2)}\n` : printYaml(explanation, oneLineKeys));
    return exitCodes.done;
  } catch (error) {
    shell.signal.throwIfAborted();
    shell.err(`${describeFailure(work.signal.aborted ? work.signal.reason : error, parsed.query)}\n`);
    return exitCodes.failed;
  } finally {
    work.end();
    // The explanation is valid even where the connections cannot be closed.
    await Promise.all([...backends.values()].map((backend) => backend.close().catch(() => undefined)));
  }
}

/** @throws {ConfigError} */
function openSiteBackend(name: string, config: Config, file: string, shell: Shell): Backend | undefined {
  try {
    return openBackend(name, config, file, shell);
  } catch (error) {
    throw runSteps(createLateConfigError(file, [toBackendIssue(name, error)], shell));
  }
}

interface ExplainArguments {
  readonly file: string;
  readonly site: string;
  readonly json: boolean;
  readonly query: string;
  /** `sources` are those of the site. @throws {Unprocessable} */
  readonly prepare: (sources: readonly string[]) => ReturnType<(typeof operations)[number]["prepare"]>;
}

const subjects = ["logs", "traces", "metrics"] as const;

/** The options of each subject besides the shared ones. */
const subjectOptions: Readonly<Record<(typeof subjects)[number], readonly string[]>> = {
  logs: ["source", "order", "per-page", "legacy"],
  traces: ["errors", "by", "order", "per-page"],
  metrics: ["name", "field", "tag", "aggregation", "resolution"],
};
const sharedOptions: readonly string[] = ["site", "from", "to", "config", "json"];

/** @throws {Error} what is wrong with the arguments */
function readArguments(args: readonly string[], now: Instant): ExplainArguments {
  const named = subjects.find((known) => known === args[0]);
  const subject = named ?? "logs";
  const { values, positionals, tokens } = parseArgs({
    args: args.slice(named === undefined ? 0 : 1),
    options,
    allowPositionals: true,
    tokens: true,
  });
  for (const token of tokens) {
    if (
      token.kind !== "option" ||
      sharedOptions.includes(token.name) ||
      subjectOptions[subject].includes(token.name)
    )
      continue;
    throw new Error(`--${token.name} is no option of ${subject}`);
  }
  const { site, config: file, json } = values;
  const [query = "", ...others] = positionals;
  if (site === "") throw new Error("--site is missing");
  if (others.length > 0) throw new Error("the query is one argument: put it in quotes");
  if (subject === "metrics" && query !== "") throw new Error("metrics have no query");
  const range = { from: readTime(values.from, now), to: readTime(values.to, now) };
  const shape = requestShapes[subject](values, query, range, now);
  const endpoint = operations.find(({ name }) => name === shape.operation);
  if (endpoint === undefined) throw new Error(`${shape.operation} is no operation`);
  return { file, site, json, query, prepare: (sources) => endpoint.prepare(shape.body(sources)) };
}

type Values = ReturnType<typeof parseArgs<{ options: typeof options; allowPositionals: true }>>["values"];
interface Range {
  readonly from: string | undefined;
  readonly to: string | undefined;
}
/** The request's body. */
interface RequestShape {
  readonly operation: string;
  readonly body: (sources: readonly string[]) => Readonly<Record<string, unknown>>;
}

const requestShapes: Readonly<
  Record<
    (typeof subjects)[number],
    (values: Values, query: string, range: Range, now: Instant) => RequestShape
  >
> = {
  logs: ({ site, source, order, legacy, "per-page": size = "100" }, query, range) => ({
    operation: "logs.lines",
    body: (sources) => ({
      site_id: site,
      source_ids: source ?? sources,
      query,
      use_expressions: !legacy,
      ...range,
      pagination: { per_page: Number(size), order },
    }),
  }),
  traces: ({ site, errors, by, order, "per-page": size = "25" }, query, range) => ({
    operation: errors ? "tracing.traces_errors" : "tracing.traces_performance",
    body: () => ({
      site_ids: [site],
      query,
      ...range,
      pagination: { per_page: Number(size), order, cursor: by },
    }),
  }),
  metrics({ site, name, field, tag = [], aggregation, resolution }, _, { from, to }, now) {
    if (name === undefined || field === undefined) throw new Error("--name and --field are missing");
    const tags = tag.map((pair) => {
      const at = pair.indexOf("=");
      if (at < 1) throw new Error("--tag is KEY=VALUE");
      return [pair.slice(0, at), pair.slice(at + 1)];
    });
    const body = {
      site_id: site,
      resolution,
      from: from ?? readTime("1h", now),
      to: to ?? readTime("0s", now),
      select: [{ name, field, aggregation, tags: Object.fromEntries(tags) }],
    };
    return { operation: "metrics.timeseries", body: () => body };
  },
};

/** Returns a time as the API takes it. A text that is no duration is left to the operation to refuse. */
function readTime(text: string | undefined, now: Instant): string | undefined {
  const ago = text === undefined ? undefined : parseDuration(text);
  return ago === undefined ? text : printInstant((now - fromMillis(ago)) as Instant);
}

function describeFailure(error: unknown, query: string): string {
  if (error instanceof BackendError) {
    return `${error.backend}: ${error.failure}: ${describeError(error)}`;
  }
  if (error instanceof ConfigError) return error.message;
  if (!(error instanceof Unprocessable)) throw error;
  if (!("start" in error.details)) return error.message;
  const { start, end } = error.details;
  const mark = " ".repeat(start) + "^".repeat(Math.max(1, end - start));
  return `${error.message}\n\n  ${query.replaceAll(/\s/g, " ")}\n  ${mark}`;
}
