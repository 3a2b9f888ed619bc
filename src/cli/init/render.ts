// Prints a proposal as readout.yaml. Text from outside is in quotes or in comments of one line, so that the name of an
// index or a label cannot change the meaning of the file.
import type { MetricAliases } from "../../config/metric-aliases.ts";
import { printText } from "../../config/yaml/print-yaml.ts";
import type { ProposedMetrics, ProposedPlace, ProposedSite } from "./propose.ts";

export interface Draft {
  /** Lines of comment at the top of the file. */
  readonly preface: readonly string[];
  readonly listen: string;
  readonly token: { readonly user: string; readonly sha256: string };
  readonly backends: readonly DraftBackend[];
  readonly sites: readonly ProposedSite[];
  /** What was found but is in no site. */
  readonly notes: readonly string[];
}
export interface DraftBackend {
  readonly name: string;
  readonly kind: string;
  readonly url: string;
  /** Values are references, which are printed as they are. */
  readonly auth: Readonly<Record<string, string>>;
  readonly tls: Readonly<Record<string, string>>;
  readonly reasons: readonly string[];
}

export function printDraft({ preface, listen, token, backends, sites, notes }: Draft): string {
  const lines = [
    ...formatComments("", preface),
    "",
    `listen: ${listen}`,
    "",
    "tokens:",
    ...formatComments("  ", [
      "Only the hash is kept. `readout token new` makes more, for some of the sites.",
    ]),
    `  - { user: ${formatKey(token.user)}, sha256: ${printText(token.sha256)}, sites: "*" }`,
    "",
    ...printBackends(backends),
    "",
    "sites:",
    ...sites.flatMap((site, at) => [...(at === 0 ? [] : [""]), ...printSite(site)]),
  ];
  if (notes.length > 0)
    lines.push("", ...formatComments("", ["Found and left out:", ...notes.map((note) => `  ${note}`)]));
  return `${lines.join("\n")}\n`;
}

/** Prints the part of the file that a connection needs. */
export function printBackends(backends: readonly DraftBackend[]): readonly string[] {
  return [
    "backends:",
    ...backends.flatMap(({ name, kind, url, auth, tls, reasons }) => [
      ...formatComments("  ", reasons),
      `  ${name}:`,
      `    kind: ${kind}`,
      `    url: ${printText(url)}`,
      ...printMap("auth", auth, (value) => JSON.stringify(value)),
      ...printMap("tls", tls, printText),
    ]),
  ];
}

function printMap(
  key: string,
  values: Readonly<Record<string, string>>,
  print: (value: string) => string,
): readonly string[] {
  const entries = Object.entries(values).map(([name, value]) => `${name}: ${print(value)}`);
  return entries.length === 0 ? [] : [`    ${key}: { ${entries.join(", ")} }`];
}

function printSite({ id, reasons, logs, traces, metrics, kubernetes }: ProposedSite): readonly string[] {
  const parts = [
    ...printLogs(logs),
    ...printTraces(traces),
    ...printSeries("metrics", metrics),
    ...printSeries("kubernetes", kubernetes),
  ];
  const nothing = "    # nothing was found for it yet: add logs, traces, metrics or kubernetes";
  return [
    ...formatComments("  ", reasons),
    `  ${formatKey(id)}:`,
    "    retention: 30d # how far back a request without `from` looks",
    ...(parts.length === 0 ? [nothing] : parts),
  ];
}

function printLogs(logs: ProposedSite["logs"]): readonly string[] {
  if (logs === undefined) return [];
  const backends = new Set(logs.sources.flatMap(({ places }) => places.map(({ backend }) => backend)));
  const [only] = backends;
  const isShared = backends.size === 1 && only !== undefined;
  const lines = ["    logs:", ...(isShared ? [`      backend: ${only}`] : []), "      sources:"];
  for (const { id, places, reasons } of logs.sources) {
    lines.push(...formatComments("        ", reasons));
    const [first, ...others] = places;
    if (others.length === 0) {
      lines.push(
        `        ${formatKey(id)}: { ${isShared ? "" : `backend: ${first.backend}, `}${printIndex(first)} }`,
      );
      continue;
    }
    lines.push(`        ${formatKey(id)}:`, "          backends:");
    for (const place of places)
      lines.push(`            - { backend: ${place.backend}, ${printIndex(place)} }`);
  }
  return lines;
}

function printIndex({ index, layout }: ProposedPlace): string {
  return `index: ${printText(index)}, layout: ${formatKey(layout)}`;
}

function printTraces(traces: ProposedSite["traces"] = []): readonly string[] {
  const [first, ...others] = traces;
  if (first === undefined) return [];
  if (others.length > 0) {
    const parts = traces.flatMap((part) => [
      ...formatComments("      ", part.reasons),
      `      - { backend: ${part.backend}, ${printIndex(part)} }`,
    ]);
    return ["    traces:", ...parts];
  }
  return [
    "    traces:",
    ...formatComments("      ", first.reasons),
    `      backend: ${first.backend}`,
    `      index: ${printText(first.index)}`,
    `      layout: ${formatKey(first.layout)}`,
  ];
}

function printSeries(part: string, proposed: readonly ProposedMetrics[] = []): readonly string[] {
  const [first, ...others] = proposed;
  if (first === undefined) return [];
  if (others.length > 0) {
    const hint = "where two servers have the same series, give both the key replica";
    const places = proposed.flatMap(({ backend, match, reasons }) => [
      ...formatComments("      ", reasons),
      `      - { ${[`backend: ${backend}`, ...printForcedLabels(match)].join(", ")} }`,
    ]);
    return [`    ${part}:`, ...formatComments("      ", [hint]), ...places];
  }
  const { backend, match, names = {}, reasons } = first;
  return [
    `    ${part}:`,
    ...formatComments("      ", reasons),
    `      backend: ${backend}`,
    ...printForcedLabels(match).map((key) => `      ${key}`),
    ...printNames(names),
  ];
}

function printForcedLabels(match: ProposedMetrics["match"]): readonly string[] {
  return Object.keys(match).length === 0 ? [] : [`match: ${printTexts(match)}`];
}

function printNames(names: MetricAliases): readonly string[] {
  const entries = Object.entries(names);
  if (entries.length === 0) return [];
  return [
    ...formatComments("      ", ["Names that dashboards of the hosted service ask for."]),
    "      names:",
    ...entries.map(([name, { metric, tags, factor }]) => {
      const scale = factor === 1 ? "" : `, factor: ${factor}`;
      return `        ${formatKey(name)}: { metric: ${printText(metric)}, tags: ${printTexts(tags)}${scale} }`;
    }),
  ];
}

function printTexts(texts: Readonly<Record<string, string>>): string {
  return `{ ${Object.entries(texts)
    .map(([key, text]) => `${formatKey(key)}: ${printText(text)}`)
    .join(", ")} }`;
}

/** Characters that would end a comment or are invalid in a file. */
const unprintable = /[\p{Cc}\p{Cs}\u2028\u2029\ufeff]+/gu;

function formatComments(indent: string, lines: readonly string[]): readonly string[] {
  return lines.map((line) => `${indent}# ${line.replaceAll(unprintable, " ")}`);
}

/** A word without quotes, where YAML reads it as a text. */
function formatKey(word: string): string {
  const plain = /^[a-z][\w.-]*$/i.test(word) && !/^(?:true|false|null|yes|no|on|off|y|n)$/i.test(word);
  return plain ? word : printText(word);
}
