// Reports on their way from the spool to the site's source. A report leaves the spool only after the source has
// confirmed it or refused it for good; anything else is tried again, under the same id and index, for as long as it
// takes. Each site waits for its own source alone.
import { setTimeout as sleep } from "node:timers/promises";
import type { Sites } from "../access/sites.ts";
import { BackendError, toErrorMessage } from "../core/errors.ts";
import type { Span } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { ErrorReportStore } from "../store/error-reports.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { buildReportSpan, readReport } from "./error-report.ts";
import type { Settlement, SpooledReport } from "./spool.ts";
import type { SpoolClient } from "./spool-client.ts";

export interface Delivery {
  /** Something was spooled for the site. */
  readonly wake: (site: string) => void;
  /** Breaks off what is under way; what was not confirmed stays in the spool. */
  readonly close: () => Promise<void>;
}

interface DeliveryOptions {
  readonly spool: SpoolClient;
  readonly sites: Sites;
  readonly telemetry: Telemetry;
  readonly pace?: DeliveryPace;
}
/** How long is waited for more reports to come, and after failures. */
interface DeliveryPace {
  readonly gather: Millis;
  readonly firstRetry: Millis;
  readonly lastRetry: Millis;
}
const defaultPace: DeliveryPace = { gather: 200, firstRetry: 1_000, lastRetry: 60_000 };

/** Delivers and settles reports, or answers why a request with them was refused as a whole. Throws any other failure. */
type Deliver = (reports: readonly SpooledReport[]) => Promise<BackendError | undefined>;

/** Of what was sent. A source that failed over it (5xx) tells nothing of it. */
function isRefusal(error: unknown): error is BackendError {
  return error instanceof BackendError && error.failure === "rejected" && (error.status ?? 400) < 500;
}

interface WakeSignal {
  rung: boolean;
  ring: () => void;
}

/**
 * One request's worth: small, since the source is shared with those who read, and since to write 200 reports as
 * documents held each report that arrived meanwhile up for some 20 ms.
 */
const batchReports = 50;
const batchBytes = 2 * 1_048_576;

export function startDelivery({ spool, sites, telemetry, pace = defaultPace }: DeliveryOptions): Delivery {
  const end = new AbortController();
  const { signal } = end;
  const bells = new Map<string, WakeSignal>();

  const loops = [...sites.values()].flatMap((site) => {
    const { store, layout } = site.frontend ?? {};
    return store === undefined || layout === undefined ? [] : [deliverSite(site.id, store, layout)];
  });

  async function deliverSite(site: string, store: ErrorReportStore, layout: string): Promise<void> {
    const bell: WakeSignal = { rung: false, ring: () => {} };
    bells.set(site, bell);
    const deliver: Deliver = async (all) => {
      try {
        for (const [index, reports] of Map.groupBy(all, (report) => report.index)) {
          const target = { site, index, layout };
          await settle(site, reports, (spans) => store.deliver(target, spans, signal));
        }
        return undefined;
      } catch (error) {
        if (isRefusal(error)) return error;
        throw error;
      }
    };
    let failures = 0;
    // What is refused as a whole may be too large for something on the way: it is sent in smaller parts.
    let parts = 1;
    while (!signal.aborted) {
      try {
        bell.rung = false;
        const spooled = await spool.readOldest(site, Math.ceil(batchReports / parts), batchBytes / parts);
        const [oldest] = spooled;
        const refusal = await deliver(spooled);
        if (refusal === undefined) failures = 0;
        if (oldest === undefined) {
          parts = 1;
          await rung(bell);
          await pause(pace.gather);
        } else if (refusal !== undefined && spooled.length > 1) {
          parts = Math.min(2 * parts, batchReports);
        } else if (refusal !== undefined) {
          if (!(await passOver(site, oldest, deliver))) throw refusal;
          failures = 0;
          parts = 1;
        }
      } catch (error) {
        if (signal.aborted) return;
        const wait = Math.min(pace.lastRetry, pace.firstRetry * 2 ** failures) * (0.75 + Math.random() / 2);
        failures += 1;
        // Whatever it was, it was not the size.
        parts = 1;
        tell(site, wait, error);
        await pause(wait);
      }
    }
  }

  /**
   * A report was refused as a whole, and alone. It is put aside when that is surely its own fault: another one is taken,
   * and it is refused again right after that. Which other one is left to chance, since the next may be just like it.
   * @returns whether another was taken
   */
  async function passOver(site: string, report: SpooledReport, deliver: Deliver): Promise<boolean> {
    const other = await spool.pickLater(site, report.sequence);
    if (other === undefined || (await deliver([other])) !== undefined) return false;
    const refusal = await deliver([report]);
    if (refusal === undefined) return true;
    await conclude(site, [{ sequence: report.sequence, refused: refusal.message }]);
    return true;
  }

  /** Delivers reports of one index. What cannot be read any more is put aside. */
  async function settle(
    site: string,
    reports: readonly SpooledReport[],
    deliver: (spans: readonly Span[]) => Promise<ReadonlyMap<string, string>>,
  ): Promise<void> {
    const spans = reports.flatMap(({ id, body }) => {
      const report = readReport(body);
      return report === undefined ? [] : [buildReportSpan(site, id, report)];
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
    await spool.settle(settlements);
    const refused = settlements.filter((settlement) => settlement.refused !== undefined);
    telemetry.intake.delivered(site, settlements.length - refused.length);
    telemetry.intake.refused(site, refused.length);
    for (const { refused: reason } of refused.slice(0, 3)) {
      telemetry.log({ level: "error", message: "front-end report refused by its source", site, reason });
    }
  }

  function tell(site: string, wait: Millis, error: unknown): void {
    const failure = error instanceof BackendError ? error.failure : undefined;
    const reason = toErrorMessage(error);
    const message = "front-end reports wait for their source";
    telemetry.log({ level: "warn", message, site, failure, reason, retry_in_ms: Math.round(wait) });
  }

  function pause(length: Millis): Promise<void> {
    return sleep(length, undefined, { signal }).catch(() => {});
  }
  /** Until something was spooled since `rung` was last cleared. */
  function rung(bell: WakeSignal): Promise<void> {
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
