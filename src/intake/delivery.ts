// Reports on their way from the spool to the site's source. A report leaves the spool only after the source has
// confirmed it or refused it for good; anything else is tried again, under the same id and index, for as long as it
// takes. Each site waits for its own source alone.
import { setTimeout as sleep } from "node:timers/promises";
import type { Sites } from "../access/sites.ts";
import { createPause, runInTurnsOf } from "../core/async/turns.ts";
import { BackendError, isRejection, toErrorMessage } from "../core/errors.ts";
import type { Span } from "../core/rows.ts";
import type { Millis } from "../core/time.ts";
import type { ErrorReportStore } from "../store/error-reports.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";
import { buildReportSpan, readReport, reportAccount } from "./error-report.ts";
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

/** Whether something was spooled since `rung` was last cleared; `ring` ends a wait for it. */
interface WakeSignal {
  rung: boolean;
  ring: () => void;
}

/** The delivery of one site's reports to its source. */
interface SiteDelivery {
  readonly site: string;
  readonly store: ErrorReportStore;
  readonly layout: string;
  readonly spool: SpoolClient;
  readonly telemetry: Telemetry;
  readonly pace: DeliveryPace;
  readonly signal: AbortSignal;
  readonly bell: WakeSignal;
  /** Failures in a row. */
  failures: number;
  /** Into how many parts a request is cut: what is refused as a whole may be too large for something on the way. */
  parts: number;
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
  const deliveries = [...sites.values()].flatMap((site): SiteDelivery[] => {
    const { store, layout } = site.frontend ?? {};
    if (store === undefined || layout === undefined) return [];
    const bell: WakeSignal = { rung: false, ring: () => {} };
    const shared = { spool, telemetry, pace, signal, bell };
    return [{ site: site.id, store, layout, ...shared, failures: 0, parts: 1 }];
  });
  telemetry.intake.announce(deliveries.map(({ site }) => site));
  const bells = new Map(deliveries.map(({ site, bell }) => [site, bell]));
  const loops = deliveries.map((delivery) => runInTurnsOf(reportAccount, () => deliverSite(delivery)));
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

/** Until the end of the delivery. */
async function deliverSite(delivery: SiteDelivery): Promise<void> {
  const { signal } = delivery;
  while (!signal.aborted) {
    try {
      await deliverOldest(delivery);
    } catch (error) {
      if (signal.aborted) return;
      await waitAfterFailure(delivery, error);
    }
  }
}

/** One request, or a wait where nothing is spooled. @throws {BackendError} the source did not take it, for now */
async function deliverOldest(delivery: SiteDelivery): Promise<void> {
  const { site, spool, bell, parts } = delivery;
  bell.rung = false;
  const spooled = await spool.readOldest(site, Math.ceil(batchReports / parts), batchBytes / parts);
  const [oldest] = spooled;
  const refusal = await deliverReports(delivery, spooled);
  if (refusal === undefined) delivery.failures = 0;
  if (oldest === undefined) {
    delivery.parts = 1;
    await awaitRing(delivery);
    await pause(delivery, delivery.pace.gather);
  } else if (refusal !== undefined && spooled.length > 1) {
    delivery.parts = Math.min(2 * parts, batchReports);
  } else if (refusal !== undefined) {
    if (!(await passOver(delivery, oldest))) throw refusal;
    delivery.failures = 0;
    delivery.parts = 1;
  }
}

async function waitAfterFailure(delivery: SiteDelivery, error: unknown): Promise<void> {
  const { firstRetry, lastRetry } = delivery.pace;
  const wait = Math.min(lastRetry, firstRetry * 2 ** delivery.failures) * (0.75 + Math.random() / 2);
  delivery.failures += 1;
  // Whatever it was, it was not the size.
  delivery.parts = 1;
  logFailure(delivery, wait, error);
  await pause(delivery, wait);
}

/** Delivers and settles reports, or answers why a request with them was refused as a whole. @throws any other failure */
async function deliverReports(
  delivery: SiteDelivery,
  all: readonly SpooledReport[],
): Promise<BackendError | undefined> {
  const { site, store, layout, signal } = delivery;
  try {
    for (const [index, reports] of Map.groupBy(all, (report) => report.index)) {
      const target = { site, index, layout };
      await settleReports(delivery, reports, (spans) => store.deliver(target, spans, signal));
    }
    return undefined;
  } catch (error) {
    if (error instanceof BackendError && isRejection(error)) return error;
    throw error;
  }
}

/**
 * A report was refused as a whole, and alone. It is put aside when that is surely its own fault: another one is taken,
 * and it is refused again right after that. Which other one is left to chance, since the next may be just like it.
 * @returns whether another was taken
 */
async function passOver(delivery: SiteDelivery, report: SpooledReport): Promise<boolean> {
  const other = await delivery.spool.pickLater(delivery.site, report.sequence);
  if (other === undefined || (await deliverReports(delivery, [other])) !== undefined) return false;
  const refusal = await deliverReports(delivery, [report]);
  if (refusal === undefined) return true;
  await concludeReports(delivery, [{ sequence: report.sequence, refused: refusal.message }]);
  return true;
}

/** Delivers reports of one index. What cannot be read any more is put aside. */
async function settleReports(
  delivery: SiteDelivery,
  reports: readonly SpooledReport[],
  deliver: (spans: readonly Span[]) => Promise<ReadonlyMap<string, string>>,
): Promise<void> {
  const spans: Span[] = [];
  // Ten large ones would hold all others up for 200 ms.
  const pauseIfLong = createPause(delivery.signal);
  for (const { id, body } of reports) {
    await pauseIfLong();
    const report = await readReport(body);
    if (report !== undefined) spans.push(buildReportSpan(delivery.site, id, report));
  }
  const refusals = spans.length === 0 ? new Map<string, string>() : await deliver(spans);
  const sent = new Set(spans.map(({ trace_id }) => trace_id));
  const settlements = reports.map(({ sequence, id }): Settlement => {
    const refused = sent.has(id) ? refusals.get(id) : "it cannot be read by this version";
    return refused === undefined ? { sequence } : { sequence, refused };
  });
  await concludeReports(delivery, settlements);
}

async function concludeReports(
  { site, spool, telemetry }: SiteDelivery,
  settlements: readonly Settlement[],
): Promise<void> {
  await spool.settle(settlements);
  const refused = settlements.filter((settlement) => settlement.refused !== undefined);
  telemetry.intake.delivered(site, settlements.length - refused.length);
  telemetry.intake.refused(site, refused.length);
  for (const { refused: reason } of refused.slice(0, 3)) {
    telemetry.log({ level: "error", message: "front-end report refused by its source", site, reason });
  }
}

function logFailure({ site, telemetry }: SiteDelivery, wait: Millis, error: unknown): void {
  const failure = error instanceof BackendError ? error.failure : undefined;
  const reason = toErrorMessage(error);
  const message = "front-end reports wait for their source";
  telemetry.log({ level: "warn", message, site, failure, reason, retry_in_ms: Math.round(wait) });
}

function pause({ signal }: SiteDelivery, length: Millis): Promise<void> {
  return sleep(length, undefined, { signal }).catch(() => {});
}

function awaitRing({ bell, signal }: SiteDelivery): Promise<void> {
  return new Promise((resolve) => {
    bell.ring = () => {
      signal.removeEventListener("abort", bell.ring);
      resolve();
    };
    signal.addEventListener("abort", bell.ring);
    if (bell.rung || signal.aborted) bell.ring();
  });
}
