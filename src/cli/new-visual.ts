// `readout visual new`: writes a file that publishes a view of a site's metrics under an id that cannot be guessed. The
// file selects one metric as an example, which its author changes.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { formatErrorCode, toErrorMessage } from "../core/errors.ts";
import { generateVisualId, type VisualType, visualTypes } from "../visuals/visual.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout visual new --site SITE --title TITLE [--type line] [--metric NAME] [--folder visuals]

  --site SITE      whose metrics it shows
  --title TITLE    what it is called; its file is named after it
  --type TYPE      ${visualTypes.join(", ")}
  --metric NAME    the metric it asks for at first
  --folder FOLDER  where \`visuals\` of readout.yaml points to
`;

export const choices = { "--type": visualTypes };

/** Writes the file and prints where the visual will be. Exit code 1 when it cannot be written, 2 for wrong arguments. */
export async function run(args: readonly string[], shell: Shell): Promise<number> {
  const parsed = readArguments(args);
  if (typeof parsed === "string") return printUsageError(parsed, usage, shell);
  const id = generateVisualId();
  const { title, folder } = parsed;
  const name = title
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "");
  const path = join(folder, `${name || "visual"}.yaml`);
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, printVisual(id, parsed), { flag: "wx" });
  } catch (error) {
    shell.err(`${path}: cannot be written${formatErrorCode(error)}\n`);
    return exitCodes.failed;
  }
  shell.out(
    `${path}\n\nAs long as this file is there, whoever knows these addresses reads it without a token:\n\n` +
      `  /api/v2/saved_visuals/${id}\n  /api/v2/saved_visuals/${id}/csv\n`,
  );
  return exitCodes.done;
}

interface VisualArguments {
  readonly site: string;
  readonly title: string;
  readonly type: VisualType;
  readonly metric: string;
  readonly folder: string;
}

/** Returns the arguments, or what is wrong with them. */
function readArguments([verb, ...args]: readonly string[]): VisualArguments | string {
  if (verb !== "new")
    return verb === undefined
      ? "visual: missing subcommand (expected `new`)"
      : `visual: unknown command "${verb}"`;
  try {
    const { values } = parseArgs({
      args,
      options: {
        site: { type: "string", default: "" },
        title: { type: "string", default: "" },
        type: { type: "string", default: "line" },
        metric: { type: "string", default: "cpu" },
        folder: { type: "string", default: "visuals" },
      },
    });
    const type = visualTypes.find((known) => known === values.type);
    if (values.site.trim() === "") return "visual new: --site is missing";
    if (values.title.trim() === "") return "visual new: --title is missing";
    if (type === undefined) return `visual new: --type is one of ${visualTypes.join(", ")}`;
    return { ...values, type };
  } catch (error) {
    return `visual new: ${toErrorMessage(error)}`;
  }
}

function printVisual(id: string, { site, title, type, metric }: VisualArguments): string {
  const text = (value: string) => JSON.stringify(value);
  const grouped = type === "table";
  const selector = `name: ${text(metric)}, field: gauge, tags: {}, aggregation: avg`;
  return `# A published visual: whoever knows its id reads it without a token. Deleting this file takes it back.
id: ${text(id)}
title: ${text(title)}
description: ""
type: ${type}
site: ${text(site)}
range: 24h # or \`from\` and \`to\`, as ISO 8601 times in quotes
resolution: HOURLY
# As in the body of ${grouped ? "metrics/list" : "metrics/timeseries"}.
select:
  - { ${grouped ? "id: value, " : ""}${selector} }
${grouped ? "group_by: [Name]\n" : ""}`;
}
