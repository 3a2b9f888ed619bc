// The intake of front-end error reports with its spool, which lives as long as the program, and its delivery, which a
// reload of the configuration replaces.
import { once } from "node:events";
import type { Sites } from "../../access/sites.ts";
import type { IntakeConfig } from "../../config/config.ts";
import { ConfigError, toErrorMessage } from "../../core/errors.ts";
import type { Instant, Millis } from "../../core/time.ts";
import { startDelivery } from "../../intake/delivery.ts";
import { createIntake, createIntakeServer, type Intake } from "../../intake/intake.ts";
import { startSpoolClient } from "../../intake/spool-client.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";

export interface ErrorIntake {
  readonly intake: Intake;
  /** Listens, where the intake has an address of its own. @throws {Error} as `Server.listen` */
  readonly listen: () => Promise<void>;
  /** Resolves when no delivery uses the earlier sites. The spool and the address stay as they are. */
  readonly replace: (config: IntakeConfig, sites: Sites) => Promise<void>;
  /** Finishes running requests, for `grace` where the intake has an address of its own. */
  readonly close: (grace: Millis) => Promise<void>;
}

/** @throws {ConfigError} when the spool cannot be used */
export async function openErrorIntake(
  config: IntakeConfig,
  sites: Sites,
  telemetry: Telemetry,
  now: () => Instant,
): Promise<ErrorIntake> {
  const { spool: path, spoolBytes: limitBytes } = config;
  const spool = await startSpoolClient({ path, limitBytes }).catch((error: unknown) => {
    const reason = toErrorMessage(error);
    throw new ConfigError(path, [{ path: "", message: `cannot be used as a spool: ${reason}` }]);
  });
  telemetry.intake.watch(() => spool.readLevel());
  const { sites: waiting } = await spool.readLevel();
  for (const [site, reports] of Object.entries(waiting)) {
    if (sites.get(site)?.frontend?.store !== undefined) continue;
    const message = "spooled error reports cannot be delivered: the site has no `frontend` backend";
    telemetry.log({ level: "warn", message, site, reports });
  }
  let delivery = startDelivery({ spool, sites, telemetry });
  /** Replacements run one after the other: two that end the same delivery would both start another. */
  let replaced = Promise.resolve();
  const spooled = (site: string) => delivery.wake(site);
  const intake = createIntake({ config, sites, spool, onSpooled: spooled, telemetry, now });
  const own = config.listen && { address: config.listen, http: createIntakeServer(intake) };
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
      replaced = replaced.then(async () => {
        await delivery.close();
        delivery = startDelivery({ spool, sites, telemetry });
      });
      return replaced;
    },
    close: async (grace) => {
      const timer = setTimeout(() => own?.http.closeAllConnections(), grace);
      own?.http.close();
      await intake.close();
      clearTimeout(timer);
      own?.http.closeAllConnections();
      await replaced;
      await delivery.close();
      await spool.close();
    },
  };
}
