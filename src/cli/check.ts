// `readout check`: reports what of a configuration works, by the file and by the sources themselves. A limitation
// (something that will be refused or be slow) is reported but is no failure; whatever would make a request fail is one.
import { listPartBackends } from "../access/sites.ts";
import { findAuditFileFault } from "../audit/audit-file.ts";
import type { Config, SiteConfig } from "../config/config.ts";
import { siteParts } from "../config/schema.ts";
import { mapConcurrent } from "../core/async/concurrency.ts";
import { zip } from "../core/collections.ts";
import { BackendError } from "../core/errors.ts";
import {
  durationUnits,
  type Instant,
  type Millis,
  nanosPerMilli,
  printDuration,
  toMillis,
} from "../core/time.ts";
import { openDocumentDirectory } from "../graphql/document-directory.ts";
import { findSpoolFault } from "../intake/spool-lock.ts";
import { checkVisual } from "../operations/metrics/visuals.ts";
import { startRequest } from "../operations/runtime/lifetime.ts";
import type { Backend, BackendInfo, LogEvent } from "../store/backend.ts";
import { surveyRollups } from "../tracing/rollup-store/survey.ts";
import { openVisualDirectory } from "../visuals/visual-directory.ts";
import { openConfigFile } from "./support/config-file.ts";
import { describeFiguresInPatterns } from "./support/figures-in-patterns.ts";
import { findMeshProblems } from "./support/graphql-loader.ts";
import { describeError, openBackend } from "./support/open-backend.ts";
import { alignColumns, formatCount } from "./support/report-text.ts";
import { exitCodes, type Shell } from "./support/shell.ts";
import {
  groupSitesByBackend,
  type InspectionResult,
  listInspections,
  type NamedSite,
  type SiteInspection,
} from "./support/site-inspections.ts";

export const usage = `Usage: readout check [--config readout.yaml]

Validates the file, asks each backend what it is, and says per site what will work and what will not. A \`mesh\` of your
own is loaded, and its sources are read.
Exit code 0: all works (limitations included); 1: the file is wrong, or a backend or an index does not answer;
2: wrong arguments.
`;

/** How long a backend may take for a probe or an inspection. */
const answerTimeout: Millis = 10_000;
/** More inspections at once would fill the queue of the backend, which is bounded. */
const maxConcurrentInspections = 16;
/** Less is not told: some servers tell whole seconds. */
const maxClockDifference: Millis = 2_000;

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
  const visuals = await inspectVisuals(config);
  const documents = await inspectDocuments(config);
  const audit = config.audit?.file && (await findAuditFileFault(config.audit.file));
  const spool = config.intake && (await findSpoolFault(config.intake.spool));
  const others = { visuals, documents, mesh, rollups, audit, spool };
  const { text, problems } = describeFindings(file, config, findings, others, shell.now());
  shell.out(text);
  return problems === 0 ? exitCodes.done : exitCodes.failed;
}

// ---- Inspection ---------------------------------------------------------------------------------------------

type Outcome<T> = { readonly value: T } | { readonly failure: string };

interface BackendFinding {
  readonly name: string;
  readonly info: Outcome<BackendInfo>;
  readonly roundTrip: Millis;
  /** How far the clock of the backend is ahead of this machine's, at least; negative where it is behind. */
  readonly clockAhead: Millis;
  /** The parts for which the backend has a store. */
  readonly serves: ReadonlySet<string>;
  /** The inspections in the order of the file; empty when the backend did not answer. */
  readonly parts: readonly PartFinding[];
}
interface PartFinding extends Pick<SiteInspection, "site" | "part" | "title"> {
  readonly outcome: Outcome<InspectionResult>;
}

/** The published visuals, and the faults of files that are not published. */
interface VisualFindings {
  readonly published: readonly { readonly title: string; readonly site: string }[];
  readonly problems: readonly string[];
}

async function inspectVisuals({ visuals: folder, limits }: Config): Promise<VisualFindings> {
  const problems: string[] = [];
  const gallery = await openVisualDirectory({
    folder: () => folder,
    check: checkVisual,
    log: (event) => problems.push(...listFaults(event)),
    deadline: () => limits.deadline,
  });
  gallery.close();
  return { published: gallery.listPublished(), problems };
}

/** A file may have several, a line each. */
function listFaults({ message, reason }: LogEvent): readonly string[] {
  return String(reason ?? message).split("\n");
}

interface DocumentFindings {
  readonly count: number;
  readonly problems: readonly string[];
}

/** The documents that clients name by a hash. Whether they fit a schema of the user's own Mesh is not known here. */
async function inspectDocuments({ graphql, mesh }: Config): Promise<DocumentFindings | undefined> {
  const folder = graphql?.documents;
  if (folder === undefined) return undefined;
  const problems: string[] = [];
  const directory = await openDocumentDirectory({
    folder: () => folder,
    log: (event) => problems.push(...listFaults(event)),
  });
  directory.close();
  const documents = directory.list();
  if (mesh === undefined) {
    const { schema } = await import("../graphql/schema.ts");
    const { findDocumentFaults } = await import("../graphql/document-faults.ts");
    problems.push(...findDocumentFaults(schema, documents));
  }
  return { count: [...documents.values()].flat().length, problems };
}

/** Returns the faults of the user's own Mesh configuration and of its sources. */
async function inspectMesh({ mesh }: Config, shell: Shell, deadline: Millis): Promise<readonly string[]> {
  if (mesh === undefined) return [];
  const outcome = await tryInTime(() => findMeshProblems(mesh, shell), shell, deadline);
  return "value" in outcome ? outcome.value : [outcome.failure];
}

type Kept = Awaited<ReturnType<typeof surveyRollups>>;

/** What is kept of the figures of spans; undefined where the configuration keeps none. */
async function inspectRollups(
  config: Config,
  file: string,
  shell: Shell,
  deadline: Millis,
): Promise<Outcome<Kept> | undefined> {
  const { rollups } = config;
  if (rollups === undefined) return undefined;
  const created = tryOpenBackend(rollups.backend, config, file, shell);
  if ("failure" in created) return created;
  const { value: backend } = created;
  try {
    const store = backend.openRollups?.(rollups.index);
    if (store === undefined) return { failure: `${rollups.backend} cannot keep figures` };
    return await tryInTime((own) => surveyRollups(store, toMillis(shell.now()), own), shell, deadline);
  } finally {
    await backend.close().catch(() => undefined);
  }
}

/** Probes a backend, then inspects every part that it serves. Rejects only when `shell.signal` is aborted. */
async function inspectBackend(
  name: string,
  sites: readonly NamedSite[],
  config: Config,
  file: string,
  shell: Shell,
  deadline: Millis,
): Promise<BackendFinding> {
  let backend: Backend | undefined;
  try {
    const created = tryOpenBackend(name, config, file, shell);
    if ("failure" in created)
      return { name, info: created, roundTrip: 0, clockAhead: 0, serves: new Set(), parts: [] };
    const { value: connected } = created;
    backend = connected;
    const start = performance.now();
    const info = await tryInTime((signal) => connected.probe(signal), shell, deadline);
    const roundTrip = performance.now() - start;
    const clockAhead = "value" in info ? await compareClocks(connected, shell, deadline) : 0;
    const questions = "value" in info ? listInspections(connected, sites) : [];
    const parts = await mapConcurrent(
      questions,
      maxConcurrentInspections,
      async ({ inspect, ...question }) => ({
        ...question,
        outcome: await tryInTime(inspect, shell, deadline),
      }),
      shell.signal,
    );
    return { name, info, roundTrip, clockAhead, serves: new Set(Object.keys(connected.inspections)), parts };
  } finally {
    // The findings are valid even where the connections cannot be closed.
    await backend?.close().catch(() => undefined);
  }
}

/** 0 also where the backend does not tell its time. */
async function compareClocks(backend: Backend, shell: Shell, deadline: Millis): Promise<Millis> {
  const before = shell.now();
  const read = await tryInTime(async (signal) => backend.readClock?.(signal), shell, deadline);
  const after = shell.now();
  if ("failure" in read || read.value === undefined) return 0;
  // What the request took may lie before the clock was read, or after it.
  if (read.value > after) return toMillis((read.value - after) as Instant);
  return read.value < before ? -toMillis((before - read.value) as Instant) : 0;
}

function tryOpenBackend(name: string, config: Config, file: string, shell: Shell): Outcome<Backend> {
  try {
    const backend = openBackend(name, config, file, shell);
    return backend === undefined ? { failure: "has no kind" } : { value: backend };
  } catch (error) {
    return { failure: describeFailure(error) };
  }
}

/** Returns the value of the call, or its failure; in time, even if the call never ends. */
async function tryInTime<T>(
  call: (signal: AbortSignal) => Promise<T>,
  shell: Shell,
  deadline: Millis,
): Promise<Outcome<T>> {
  const { signal, wait, end } = startRequest(shell.signal, deadline);
  try {
    return { value: await wait(call(signal)) };
  } catch (error) {
    return {
      failure: signal.aborted ? `no answer within ${printDuration(deadline)}` : describeFailure(error),
    };
  } finally {
    end();
  }
}

function describeFailure(error: unknown): string {
  const safe = describeError(error);
  return error instanceof BackendError ? `${error.failure}: ${safe}` : safe;
}

// ---- Report -------------------------------------------------------------------------------------------------

/** The lines of the report, and the counts for its last line. */
interface CheckReport {
  readonly lines: string[];
  problems: number;
  limitations: number;
}

interface OtherFindings {
  readonly visuals: VisualFindings;
  readonly documents: DocumentFindings | undefined;
  readonly mesh: readonly string[];
  readonly rollups: Outcome<Kept> | undefined;
  /** Why the file of the audit log cannot be used. */
  readonly audit: string | undefined;
  /** Why reports of front ends cannot be kept. */
  readonly spool: string | undefined;
}

function describeFindings(
  file: string,
  config: Config,
  findings: readonly BackendFinding[],
  { visuals, documents, mesh, rollups, audit, spool }: OtherFindings,
  now: Instant,
): { readonly text: string; readonly problems: number } {
  const notes: CheckReport = { lines: [`${file}: valid`, ""], problems: 0, limitations: 0 };
  describeTokens(config, now, notes);
  notes.lines.push("Backends");
  const rows = findings.map(({ name, info, roundTrip }) => {
    const kind = config.backends[name]?.kind ?? "";
    if ("failure" in info) {
      notes.problems += 1;
      return [name, kind, `FAILED ${info.failure}`];
    }
    return [name, kind, `${info.value.product} ${info.value.version}`, `${Math.ceil(roundTrip)} ms`];
  });
  for (const [row, { clockAhead }] of zip(alignColumns(rows), findings)) {
    notes.lines.push(`  ${row}`);
    describeClock(clockAhead, notes);
  }
  for (const [id, site] of Object.entries(config.sites)) describeSite(id, site, findings, now, notes);
  describeRollups(config, rollups, now, notes);
  describeIntake(config, spool, notes);
  describeVisuals(config, visuals, notes);
  describeDocuments(config, documents, notes);
  describeMesh(config, mesh, notes);
  describeAudit(config, audit, notes);
  const { problems, limitations } = notes;
  notes.lines.push("", `${formatCount(problems, "problem")}, ${formatCount(limitations, "limitation")}`);
  return { text: `${notes.lines.join("\n")}\n`, problems };
}

function describeClock(ahead: Millis, notes: CheckReport): void {
  if (Math.abs(ahead) < maxClockDifference) return;
  notes.limitations += 1;
  const [side, effect] =
    ahead > 0
      ? ["ahead of", "a range up to now does not have what it stamps yet"]
      : ["behind", "what it stamps seems older than it is"];
  notes.lines.push(
    `    limitation: its clock is ${(Math.abs(ahead) / 1_000).toFixed(1)} s ${side} this machine's: ${effect}`,
  );
}

function describeTokens({ tokens }: Config, now: Instant, notes: CheckReport): void {
  const expired = tokens.filter(({ expires }) => expires !== undefined && expires <= now);
  const users = expired.map(({ user }) => user).join(", ");
  const none = "; without one every request is refused: `readout token new` makes one";
  notes.lines.push(
    `Tokens    ${tokens.length}${expired.length > 0 ? `, expired: ${users}` : ""}${tokens.length === 0 ? none : ""}`,
    "",
  );
}

function describeRollups(
  config: Config,
  found: Outcome<Kept> | undefined,
  now: Instant,
  notes: CheckReport,
): void {
  const { rollups } = config;
  if (rollups === undefined || found === undefined) return;
  notes.lines.push("", `Figures of spans in ${rollups.backend}, index ${rollups.index}`);
  if ("failure" in found) {
    addProblems(notes, [found.failure]);
    return;
  }
  const limitations = describeFiguresInPatterns(config);
  notes.limitations += limitations.length;
  notes.lines.push(...limitations.map((limitation) => `  limitation: ${limitation}`));
  const rows = found.value.map(({ site, groups, reach, bytes }) => {
    const far = reach === undefined ? "do not reach back yet" : `reach back ${printAge(reach, now)}`;
    return [site, formatCount(groups, "group"), `${(bytes / 1e6).toFixed(1)} MB`, far];
  });
  notes.lines.push(...alignColumns(rows).map((row) => `  ${row}`));
  if (rows.length === 0) notes.lines.push("  writable, and empty");
}

function printAge(time: Instant, now: Instant): string {
  const age = Number((now - time) / nanosPerMilli);
  const [unit, length] = durationUnits.find(([, length]) => age >= length) ?? ["ms", 1];
  return `${Math.floor(age / length)} ${unit}`;
}

function describeIntake({ intake, sites }: Config, fault: string | undefined, notes: CheckReport): void {
  const taking = Object.values(sites).filter(({ frontend }) => frontend !== undefined).length;
  if (intake === undefined && taking === 0) return;
  const limitation = (text: string) => {
    notes.limitations += 1;
    notes.lines.push(`  limitation: ${text}`);
  };
  const { host, port } = intake?.listen ?? {};
  const place = host === undefined ? "the address of everything else" : `${host}:${port}`;
  notes.lines.push(
    "",
    intake === undefined ? "Front-end reports" : `Front-end reports on ${place}, spool ${intake.spool}`,
  );
  addProblems(notes, fault === undefined ? [] : [fault]);
  if (intake === undefined) limitation("without `intake` none are taken");
  if (taking === 0) limitation("no site has a `frontend`, so all of them are dropped");
}

function describeVisuals(
  { visuals, sites }: Config,
  { published, problems }: VisualFindings,
  notes: CheckReport,
): void {
  if (visuals === undefined) return;
  notes.lines.push("", `Visuals in ${visuals}: ${published.length} published`);
  addProblems(notes, problems);
  for (const { title, site } of published) {
    if (Object.hasOwn(sites, site)) continue;
    notes.limitations += 1;
    notes.lines.push(
      `  limitation: "${title}" is of a site that is not configured, ${site}, and therefore not found`,
    );
  }
}

function describeDocuments(
  { graphql }: Config,
  documents: DocumentFindings | undefined,
  notes: CheckReport,
): void {
  if (documents === undefined) return;
  const { count, problems } = documents;
  notes.lines.push("", `GraphQL documents in ${graphql?.documents}: ${count}`);
  addProblems(notes, problems);
}

function describeMesh({ mesh: file }: Config, problems: readonly string[], notes: CheckReport): void {
  if (file === undefined) return;
  notes.lines.push("", `GraphQL by ${file}`);
  addProblems(notes, problems);
}

function describeAudit({ audit }: Config, fault: string | undefined, notes: CheckReport): void {
  if (audit?.file === undefined) return;
  notes.lines.push("", `Audit log in ${audit.file}`);
  addProblems(notes, fault === undefined ? [] : [fault]);
}

function addProblems(notes: CheckReport, problems: readonly string[]): void {
  notes.lines.push(...problems.map((problem) => `  PROBLEM ${problem}`));
  notes.problems += problems.length;
}

function describeSite(
  id: string,
  site: SiteConfig,
  findings: readonly BackendFinding[],
  now: Instant,
  notes: CheckReport,
): void {
  const { lines } = notes;
  lines.push("", `Site ${id}, retention ${printDuration(site.retention)}`);
  const parts = siteParts.flatMap((part) =>
    listPartBackends(site, part).map((backend) => ({ part, backend })),
  );
  for (const { part, backend } of parts) {
    const finding = findings.find(({ name }) => name === backend);
    const isOneOfSeveral = parts.filter((other) => other.part === part).length > 1;
    lines.push(`  ${part} in ${backend}${isOneOfSeveral ? describeProduct(finding) : ""}`);
    if (finding === undefined || "failure" in finding.info) {
      lines.push("    not looked at: the backend does not answer");
    } else if (!finding.serves.has(part === "frontend" ? "reports" : part)) {
      notes.problems += 1;
      lines.push(
        `    PROBLEM ${backend} ${part === "frontend" ? "cannot write reports" : `serves no ${part === "logs" ? "log lines" : part}`}`,
      );
    } else {
      describePart(
        finding.parts.filter((one) => one.site === id && one.part === part),
        now,
        notes,
      );
    }
  }
  if (parts.length === 0) lines.push("  nothing configured");
}

/** Which product holds a part that has several, such as during a migration. */
function describeProduct(finding: BackendFinding | undefined): string {
  if (finding === undefined || "failure" in finding.info) return "";
  const { product, version } = finding.info.value;
  return `, ${product} ${version}`;
}

function describePart(all: readonly PartFinding[], now: Instant, notes: CheckReport): void {
  const rowsOf = ({ title, outcome: answer }: PartFinding): readonly (readonly string[])[] => {
    if ("failure" in answer) return [[...title, `FAILED ${answer.failure}`]];
    const { rows, newest } = answer.value;
    return rows.map((row) => [...title, ...row, ...(newest === undefined ? [] : [printNewest(newest, now)])]);
  };
  const rows = [...alignColumns(all.flatMap(rowsOf))];
  for (const one of all) {
    for (const row of rows.splice(0, rowsOf(one).length)) notes.lines.push(`    ${row}`);
    if ("failure" in one.outcome) {
      notes.problems += 1;
      continue;
    }
    const { problems, limitations } = one.outcome.value;
    for (const problem of problems) notes.lines.push(`      PROBLEM ${problem}`);
    for (const limitation of limitations) notes.lines.push(`      limitation: ${limitation}`);
    notes.problems += problems.length;
    notes.limitations += limitations.length;
  }
}

/** Prints the age of the newest item, in the largest unit of which there is at least one. */
export function printNewest({ what, time }: NonNullable<InspectionResult["newest"]>, now: Instant): string {
  if (time === undefined) return `no ${what}s`;
  const distance = Number((now - time) / nanosPerMilli);
  const size = Math.abs(distance);
  const [unit, length] = durationUnits.find(([, length]) => size >= length) ?? ["ms", 1];
  const age = `${Math.floor(size / length)} ${unit}`;
  return `newest ${what} ${age} ${distance < 0 ? "ahead of this clock" : "ago"}`;
}
