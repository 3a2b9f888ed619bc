// The manual page of the package, in the macros of man(7). It is made of the commands' help, as the completions are.

import type { CommandHelp } from "#src/cli/support/command-help.ts";
import { readHelp } from "#src/commands.ts";

/** Returns the text of `readout.1`. The page has the version instead of a date, so that one commit makes one page. */
export async function buildManPage(version: string): Promise<string> {
  const commands = await readHelp();
  return `.TH READOUT 1 "" "readout ${escapeRoff(version)}" "User Commands"
.SH NAME
readout \\- serve the /api/v2 monitoring read API over Elasticsearch, OpenSearch and Prometheus
.SH SYNOPSIS
.B readout
.I COMMAND
.RI [ options ]
.br
.B readout \\-\\-version
.br
.B readout
.I COMMAND
.B \\-\\-help
.SH COMMANDS
${commands
  .map(({ name, summary }) => `.TP\n.B ${escapeRoff(name)}\n${escapeRoff(summary)}\n`)
  .join("")}${commands.map(printCommand).join("")}.SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
A failure, also a wrong configuration.
.TP
.B 2
Wrong arguments.
.SH FILES
.TP
.I readout.yaml
The configuration that
.BR serve ,
.B check
and
.B explain
read, in the current directory unless
.B \\-\\-config
names another.
.SH ENVIRONMENT
.TP
.B NODE_COMPILE_CACHE
Where compiled code is kept between starts.
`;
}

function printCommand({ name, usage }: CommandHelp): string {
  return `.SH ${escapeRoff(`readout ${name}`.toUpperCase())}\n.nf\n${usage.trimEnd().split("\n").map(escapeRoff).join("\n")}\n.fi\n`;
}

/** Text of a line as roff takes it: no escapes, plain dashes and quotes, and no request at its start. */
function escapeRoff(line: string): string {
  const plain = line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll("'", "\\(aq")
    .replaceAll("`", "\\(ga");
  return plain.startsWith(".") ? `\\&${plain}` : plain;
}
