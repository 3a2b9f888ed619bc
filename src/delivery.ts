// Reports on their way from the spool to the site's source. A report leaves the spool only after the source has
// confirmed it or refused it for good; anything else is tried again, under the same id and index, for as long as it
// takes. Each site waits for its own source alone.
import { setTimeout as sleep } from "node:timers/promises";
import { BackendError } from "./errors.ts";
import type { Span } from "./model.ts";
import { readReport, spanOf } from "./report.ts";
import type { Sites } from "./sites.ts";
import type { Settlement, Spooled } from "./spool.ts";
import type { Spooler } from "./spooler.ts";
import type { ReportStore } from "./store.ts";
import type { Telemetry } from "./telemetry.ts";
import type { Millis } from "./time.ts";

export interface Delivery {
  /** Something was spooled for the site. */
  readonly wake: (site: string) => void;
  /** Breaks off what is under way; what was not confirmed stays in the spool. */
  readonly close: () => Promise<void>;
}

export interface DeliveryOptions {
  readonly spooler: Spooler;
  readonly sites: Sites;
  readonly telemetry: Telemetry;
  readonly pace?: Pace;
}
/** How long is waited for more reports to come, and after failures. */
export interface Pace {
  readonly gather: Millis;
  readonly firstRetry: Millis;
  readonly lastRetry: Millis;
}
const usualPace: Pace = { gather: 200, firstRetry: 1_000, lastRetry: 60_000 };

interface Bell {
  rung: boolean;
  ring: () => void;
}

/**
 * One request's worth: small, since the source is shared with those who read, and since to write 200 reports as
 * documents held each report that arrived meanwhile up for some 20 ms.
 */
const batchReports = 50;
const batchBytes = 2 * 1_048_576;

export function startDelivery({ spooler, sites, telemetry, pace = usualPace }: DeliveryOptions): Delivery {
  const end = new AbortController();
  const { signal } = end;
  const bells = new Map<string, Bell>();

  const loops = [...sites.values()].flatMap((site) => {
    const { store, profile } = site.frontend ?? {};
    return store === undefined || profile === undefined ? [] : [deliverSite(site.id, store, profile)];
  });

  async function deliverSite(site: string, store: ReportStore, profile: string): Promise<void> {
    const bell: Bell = { rung: false, ring: () => {} };
    bells.set(site, bell);
    const deliver = async (all: readonly Spooled[]) => {
      for (const [index, reports] of Map.groupBy(all, (report) => report.index)) {
        const target = { site, index, profile };
        await settle(site, reports, (spans) => store.deliver(target, spans, signal));
      }
    };
    let failures = 0;
    // What is refused as a whole may be too large for something on the way: it is sent in smaller parts.
    let parts = 1;
    /** Why the oldest report was refused when it was sent alone. */
    let refusal: string | undefined;
    while (!signal.aborted) {
      try {
        bell.rung = false;
        if (refusal !== undefined && (await passOver(site, deliver, refusal))) parts = 1;
        refusal = undefined;
        const spooled = await spooler.next(site, Math.ceil(batchReports / parts), batchBytes / parts);
        await deliver(spooled);
        failures = 0;
        if (spooled.length === 0) {
          parts = 1;
          await rung(bell);
          await pause(pace.gather);
        }
      } catch (error) {
        if (signal.aborted) return;
        const isRejected = error instanceof BackendError && error.failure === "rejected";
        const isSplit = isRejected && parts < batchReports;
        const wait =
          Math.min(pace.lastRetry, pace.firstRetry * 2 ** (isSplit ? 0 : failures)) *
          (0.75 + Math.random() / 2);
        if (isSplit) parts = Math.min(2 * parts, batchReports);
        else failures += 1;
        if (isRejected && !isSplit) refusal = error.message;
        tell(site, wait, error);
        await pause(wait);
      }
    }
  }

  /**
   * The oldest report of the site was refused as a whole, and alone. Only when the one after it is taken is that the
   * report's own fault, and it is put aside; else it waits with the others. @returns whether it was put aside
   */
  async function passOver(
    site: string,
    deliver: (reports: readonly Spooled[]) => Promise<void>,
    reason: string,
  ): Promise<boolean> {
    const [oldest, ...after] = await spooler.next(site, 2, Number.MAX_SAFE_INTEGER);
    if (oldest === undefined || after.length === 0) return false;
    await deliver(after);
    await conclude(site, [{ sequence: oldest.sequence, refused: reason }]);
    return true;
  }

  /** Delivers reports of one index. What cannot be read any more is put aside. */
  async function settle(
    site: string,
    reports: readonly Spooled[],
    deliver: (spans: readonly Span[]) => Promise<ReadonlyMap<string, string>>,
  ): Promise<void> {
    const spans = reports.flatMap(({ id, body }) => {
      const report = readReport(body);
      return report === undefined ? [] : [spanOf(site, id, report)];
    });
    const refusals = spans.length === 0 ? new Map<string, string>() : await deliver(spans);
    const sent = new Set(spans.map(({ trace_id }) => trace_id));
    const settlements = reports.map(({ sequence, id }): Settlement => {
      const refused = sent.has(id) ? refusals.get(id) : "it cannot be read by this version";
      return refused === undefined ? { sequence } : { sequence, refused };
    });
    await conclude(site, settlements);
  }

  async function conclude(site: string, settlements: readonly Settlement[]): Promise<void> {
    await spooler.settle(settlements);
    const refused = settlements.filter((settlement) => settlement.refused !== undefined);
    telemetry.intake.delivered(site, settlements.length - refused.length);
    telemetry.intake.refused(site, refused.length);
    for (const { refused: reason } of refused.slice(0, 3)) {
      telemetry.log({ level: "error", message: "front-end report refused by its source", site, reason });
    }
  }

  function tell(site: string, wait: Millis, error: unknown): void {
    const failure = error instanceof BackendError ? error.failure : undefined;
    const reason = error instanceof Error ? error.message : String(error);
    const message = "front-end reports wait for their source";
    telemetry.log({ level: "warn", message, site, failure, reason, retry_in_ms: Math.round(wait) });
  }

  function pause(length: Millis): Promise<void> {
    return sleep(length, undefined, { signal }).catch(() => {});
  }
  /** Until something was spooled since `rung` was last cleared. */
  function rung(bell: Bell): Promise<void> {
    return new Promise((resolve) => {
      bell.ring = () => {
        signal.removeEventListener("abort", bell.ring);
        resolve();
      };
      signal.addEventListener("abort", bell.ring);
      if (bell.rung || signal.aborted) bell.ring();
    });
  }

  return {
    wake: (site) => {
      const bell = bells.get(site);
      if (bell === undefined) return;
      bell.rung = true;
      bell.ring();
    },
    async close() {
      end.abort(new Error("the delivery of reports ends"));
      await Promise.all(loops);
    },
  };
}
