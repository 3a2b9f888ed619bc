// `readout check`: reports what of a configuration works, by the file and by the sources themselves. A limitation
// (something that will be refused or be slow) is reported but is no failure; whatever would make a request fail is one.
import { findAuditFileFault } from "../../audit/audit-file.ts";
import type { Millis } from "../../core/time.ts";
import { findSpoolFault } from "../../intake/spool-lock.ts";
import { openConfigFile } from "../support/config-file.ts";
import { exitCodes, type Shell } from "../support/shell.ts";
import { groupSitesByBackend } from "../support/site-inspections.ts";
import { inspectBackend, inspectDocuments, inspectMesh, inspectRollups } from "./backend-findings.ts";
import { describeFindings } from "./findings-report.ts";
import { inspectVisuals } from "./visual-findings.ts";

export const usage = `Usage: readout check [--config readout.yaml]

Validates the file, asks each backend what it is, and says per site what will work and what will not. A \`mesh\` of your
own is loaded, and its sources are read. Each published visual is answered.
Exit code 0: all works (limitations included); 1: the file is wrong, or a backend or an index does not answer;
2: wrong arguments.
`;

/** How long a backend may take for a probe or an inspection. */
const answerTimeout: Millis = 10_000;

/**
 * Prints a report of the file, its backends and its sites. All backends are inspected at once; the report is in the order
 * of the file. Exit codes as in `usage`. Rejects only when `shell.signal` is aborted.
 */
export async function run(args: readonly string[], shell: Shell, deadline = answerTimeout): Promise<number> {
  const opened = openConfigFile("check", usage, args, shell);
  if (typeof opened === "number") return opened;
  const { file, config } = opened;
  const sites = groupSitesByBackend(config.sites);
  const inspections = Object.keys(config.backends).map((name) =>
    inspectBackend(name, sites.get(name) ?? [], config, file, shell, deadline),
  );
  const [mesh, rollups, ...findings] = await Promise.all([
    inspectMesh(config, shell, deadline),
    inspectRollups(config, file, shell, deadline),
    ...inspections,
  ]);
  shell.signal.throwIfAborted();
  const visuals = await inspectVisuals(config, file, shell, findings);
  const documents = await inspectDocuments(config);
  const audit = config.audit?.file && (await findAuditFileFault(config.audit.file));
  const spool = config.intake && (await findSpoolFault(config.intake.spool));
  const others = { visuals, documents, mesh, rollups, audit, spool };
  const { text, problems } = describeFindings(file, config, findings, others, shell.now());
  shell.out(text);
  return problems === 0 ? exitCodes.done : exitCodes.failed;
}
