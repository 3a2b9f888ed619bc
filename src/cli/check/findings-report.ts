// What `readout check` prints of what it has found: in the order of the file, problems and limitations counted.
import { listPartBackends } from "../../access/sites.ts";
import type { Config, SiteConfig } from "../../config/config.ts";
import { siteParts } from "../../config/schema.ts";
import { zip } from "../../core/collections.ts";
import { type Instant, type Millis, printDuration } from "../../core/time.ts";
import { describeFiguresInPatterns } from "../support/figures-in-patterns.ts";
import { alignColumns, formatCount, printAge, printNewest } from "../support/report-text.ts";
import type { BackendFinding, DocumentFindings, Kept, Outcome, PartFinding } from "./backend-findings.ts";
import type { VisualFindings } from "./visual-findings.ts";

/** Less is not told: some servers tell whole seconds. */
const maxClockDifference: Millis = 2_000;

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

export function describeFindings(
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
  for (const limitation of describeFiguresInPatterns(config)) addLimitation(notes, limitation);
  const rows = found.value.map(({ site, groups, reach, bytes }) => {
    const far = reach === undefined ? "do not reach back yet" : `reach back ${printAge(reach, now)}`;
    return [site, formatCount(groups, "group"), `${(bytes / 1e6).toFixed(1)} MB`, far];
  });
  notes.lines.push(...alignColumns(rows).map((row) => `  ${row}`));
  if (rows.length === 0) notes.lines.push("  writable, and empty");
}

function describeIntake({ intake, sites }: Config, fault: string | undefined, notes: CheckReport): void {
  const taking = Object.values(sites).filter(({ frontend }) => frontend !== undefined).length;
  if (intake === undefined && taking === 0) return;
  const { host, port } = intake?.listen ?? {};
  const place = host === undefined ? "the address of everything else" : `${host}:${port}`;
  notes.lines.push(
    "",
    intake === undefined ? "Front-end reports" : `Front-end reports on ${place}, spool ${intake.spool}`,
  );
  addProblems(notes, fault === undefined ? [] : [fault]);
  if (intake === undefined) addLimitation(notes, "without `intake` none are taken");
  if (taking === 0) addLimitation(notes, "no site has a `frontend`, so all of them are dropped");
}

function describeVisuals(
  { visuals }: Config,
  { published, problems }: VisualFindings,
  notes: CheckReport,
): void {
  if (visuals === undefined) return;
  notes.lines.push("", `Visuals in ${visuals}: ${published.length} published`);
  addProblems(notes, problems);
  for (const { title, site, answer } of published) {
    if (answer === "of an unknown site")
      addLimitation(
        notes,
        `"${title}" is of a site that is not configured, ${site}, and therefore not found`,
      );
    else if (answer === "not asked for")
      notes.lines.push(`  "${title}" is not looked at: a backend does not answer`);
    else if ("failure" in answer) addProblems(notes, [`"${title}": ${answer.failure}`]);
    else if (answer.value === "no metric")
      addLimitation(notes, `"${title}" is empty now: no series has such a name and tags`);
    else if (answer.value === "no values")
      addLimitation(
        notes,
        `"${title}" is empty now: no series with such a name and tags has a value in its range`,
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

function addLimitation(notes: CheckReport, limitation: string): void {
  notes.limitations += 1;
  notes.lines.push(`  limitation: ${limitation}`);
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
