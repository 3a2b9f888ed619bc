// The intake of front-end error reports with its spool, which lives as long as the program, and its delivery, which a
// reload of the configuration replaces.
import { once } from "node:events";
import type { Sites } from "../../access/sites.ts";
import type { IntakeConfig } from "../../config/config.ts";
import { ConfigError } from "../../core/errors.ts";
import type { Instant, Millis } from "../../core/time.ts";
import { startDelivery } from "../../intake/delivery.ts";
import {
  createIntake,
  createIntakeServer,
  deriveConnectionLimits,
  type Intake,
} from "../../intake/intake.ts";
import { type SpoolEvent, startSpoolClient } from "../../intake/spool-client.ts";
import { SpoolInUse } from "../../intake/spool-lock.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";

export interface ErrorIntake {
  readonly intake: Intake;
  /** Listens, where the intake has an address of its own. @throws {Error} as `Server.listen` */
  readonly listen: () => Promise<void>;
  /** Resolves when no delivery uses the earlier sites. The spool and the address stay as they are. */
  readonly replace: (config: IntakeConfig, sites: Sites) => Promise<void>;
  /** Finishes running requests. On an address of its own, connections are destroyed after `grace`. */
  readonly close: (grace: Millis) => Promise<void>;
}

/**
 * Opens the spool and starts the delivery. A damaged spool is replaced; while one cannot be used, reports are dropped. The program
 * starts in both cases.
 * @throws {ConfigError} when another process uses the spool
 */
export async function openErrorIntake(
  config: IntakeConfig,
  sites: Sites,
  telemetry: Telemetry,
  now: () => Instant,
): Promise<ErrorIntake> {
  const { spool: path, spoolBytes: limitBytes } = config;
  const onEvent = (event: SpoolEvent) => recordSpoolEvent(event, telemetry);
  const spool = await startSpoolClient({ path, limitBytes, onEvent }).catch((error: unknown) => {
    if (!(error instanceof SpoolInUse)) throw error;
    throw new ConfigError(path, [{ path: "", message: `cannot be used as a spool: ${error.message}` }]);
  });
  telemetry.intake.watch(() => spool.readLevel());
  const reportUndeliverable = async (sites: Sites): Promise<void> => {
    const { sites: waiting } = await spool.readLevel().catch(() => ({ sites: {} }));
    for (const [site, reports] of Object.entries(waiting)) {
      if (sites.get(site)?.frontend?.store !== undefined) continue;
      const message = "spooled error reports cannot be delivered: the site has no `frontend` backend";
      telemetry.log({ level: "warn", message, site, reports });
    }
  };
  await reportUndeliverable(sites);
  let delivery = startDelivery({ spool, sites, telemetry });
  /** Replacements run one after the other: two that end the same delivery would both start another. */
  let replaced = Promise.resolve();
  const onSpooled = (site: string) => delivery.wake(site);
  const intake = createIntake({ config, sites, spool, onSpooled, telemetry, now });
  const onLimitReached = telemetry.recordLimit;
  const own = config.listen && {
    address: config.listen,
    ...createIntakeServer(intake, { proxies: config.proxies, onLimitReached }),
  };
  return {
    intake,
    listen: async () => {
      if (own === undefined) return;
      const { http, address } = own;
      http.listen(address.port, address.host);
      await once(http, "listening");
    },
    replace: (config, sites) => {
      intake.reload(config, sites);
      own?.guard.setLimits(deriveConnectionLimits(config.proxies));
      replaced = replaced.then(async () => {
        await delivery.close();
        delivery = startDelivery({ spool, sites, telemetry });
        await reportUndeliverable(sites);
      });
      return replaced;
    },
    close: async (grace) => {
      const timer = setTimeout(() => own?.guard.destroyAll(), grace);
      own?.http.close();
      await intake.close();
      clearTimeout(timer);
      own?.guard.destroyAll();
      await replaced;
      await delivery.close();
      await spool.close();
    },
  };
}

function recordSpoolEvent(event: SpoolEvent, telemetry: Telemetry): void {
  const { path } = event;
  switch (event.kind) {
    case "replaced": {
      const { setAside, reason, reports, deadLetters, complete } = event.replacement;
      telemetry.intake.setAside(complete);
      telemetry.log({
        level: "error",
        message:
          "the spool of front-end reports was damaged: it is set aside, and a new one has what could be read",
        path,
        set_aside: setAside,
        reason,
        reports,
        dead_letters: deadLetters,
        complete,
      });
      return;
    }
    case "unusable":
      telemetry.log({
        level: "error",
        message: "the spool of front-end reports cannot be used: reports are dropped until it can",
        path,
        reason: event.reason,
      });
      return;
    case "usable":
      telemetry.log({ level: "info", message: "the spool of front-end reports can be used again", path });
      return;
    default:
      event satisfies never;
  }
}
