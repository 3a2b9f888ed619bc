// The front-end error intake with what stands behind it: the spool, which lives as long as the program, and the delivery,
// which another configuration replaces.
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
  /** Where the intake has an address of its own. @throws {Error} as `Server.listen` */
  readonly listen: () => Promise<void>;
  /** Resolves when no delivery uses the sites before. The spool and the address stay as they are. */
  readonly replace: (config: IntakeConfig, sites: Sites) => Promise<void>;
  /** Finishes what was sent, for `grace` where the intake has an address of its own. */
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
  const spooler = await startSpoolClient({ path, limitBytes }).catch((error: unknown) => {
    const reason = toErrorMessage(error);
    throw new ConfigError(path, [{ path: "", message: `cannot be used as a spool: ${reason}` }]);
  });
  telemetry.intake.watch(() => spooler.readLevel());
  const { sites: waiting } = await spooler.readLevel();
  for (const [site, reports] of Object.entries(waiting)) {
    if (sites.get(site)?.frontend?.store !== undefined) continue;
    const message = "front-end reports wait in the spool for a site that has no place for them";
    telemetry.log({ level: "warn", message, site, reports });
  }
  let delivery = startDelivery({ spool: spooler, sites, telemetry });
  /** One after the other: two that end the same delivery would both begin another. */
  let replaced = Promise.resolve();
  const spooled = (site: string) => delivery.wake(site);
  const intake = createIntake({ config, sites, spool: spooler, onSpooled: spooled, telemetry, now });
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
        delivery = startDelivery({ spool: spooler, sites, telemetry });
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
      await spooler.close();
    },
  };
}
