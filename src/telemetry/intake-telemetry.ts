// The metrics of front-end error reports.
import { Counter, Gauge, type Registry } from "prom-client";
import { beginAtZero } from "./counters.ts";

/** Why a front-end error report was not kept. */
export type DropReason =
  | "too_large"
  | "incomplete"
  | "overloaded"
  | "address_rate"
  | "key_rate"
  | "unknown_key"
  | "invalid"
  | "no_target"
  | "spool_full"
  | "spool_failed";

/** Counters of front-end error reports. */
export interface IntakeTelemetry {
  /** Reports of these sites are delivered from now on. */
  readonly announce: (sites: readonly string[]) => void;
  readonly kept: () => void;
  readonly dropped: (drop: DropReason) => void;
  /** The site's source has confirmed this many reports. */
  readonly delivered: (site: string, reports: number) => void;
  /** The site's source has refused this many for good; they are kept as dead letters. */
  readonly refused: (site: string, reports: number) => void;
  /** A damaged spool was replaced; `complete` when each of its reports is in the new one. */
  readonly setAside: (complete: boolean) => void;
  /** Sets where to read the level of the spool whenever the metrics are read. It rejects while no spool can be used. */
  readonly watch: (level: () => Promise<SpoolLevel>) => void;
}
interface SpoolLevel {
  readonly reports: number;
  readonly bytes: number;
  readonly deadLetters: number;
}

export function createIntakeTelemetry(registers: Registry[]): IntakeTelemetry {
  const taken = new Counter({
    name: "readout_intake_reports_total",
    help: "Front-end error reports, by result: kept, or why they were not",
    labelNames: ["result"],
    registers,
  });
  const delivered = new Counter({
    name: "readout_intake_delivered_total",
    help: "Front-end error reports that the site's source has confirmed",
    labelNames: ["site"],
    registers,
  });
  const refused = new Counter({
    name: "readout_intake_refused_total",
    help: "Front-end error reports that the site's source refused for good; they are kept as dead letters",
    labelNames: ["site"],
    registers,
  });
  const setAside = new Counter({
    name: "readout_intake_spools_set_aside_total",
    help: "Damaged spools that were set aside, by whether all of their reports are in the new one: all, or part",
    labelNames: ["salvaged"],
    registers,
  });
  beginAtZero(setAside, "salvaged", ["all", "part"]);
  return {
    announce: (sites) => {
      for (const counter of [delivered, refused]) beginAtZero(counter, "site", sites);
    },
    setAside: (complete) => setAside.inc({ salvaged: complete ? "all" : "part" }),
    kept: () => taken.inc({ result: "kept" }),
    dropped: (drop) => taken.inc({ result: drop }),
    delivered: (site, reports) => delivered.inc({ site }, reports),
    refused: (site, reports) => refused.inc({ site }, reports),
    watch: (level) => {
      const gauge = (name: string, help: string, read: (level: SpoolLevel) => number) =>
        new Gauge({
          name: `readout_intake_${name}`,
          help,
          registers,
          async collect() {
            // Where the spool cannot be read, the gauge keeps its last value, and the other metrics are unaffected.
            const found = await level().catch(() => undefined);
            if (found !== undefined) this.set(read(found));
          },
        });
      new Gauge({
        name: "readout_intake_spool_usable",
        help: "1 while front-end error reports can be kept on the disk, else 0",
        registers,
        async collect() {
          this.set(
            await level().then(
              () => 1,
              () => 0,
            ),
          );
        },
      });
      gauge(
        "spooled_reports",
        "Front-end error reports on the disk, not yet delivered",
        ({ reports }) => reports,
      );
      gauge("spooled_bytes", "What they take of the spool's limit", ({ bytes }) => bytes);
      gauge(
        "dead_letters",
        "Reports that were refused for good and are kept",
        ({ deadLetters }) => deadLetters,
      );
    },
  };
}
