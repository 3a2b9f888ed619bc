// The audit log of a run: opened before the server listens, so that no request is answered without it, and replaced as the
// configuration changes.
import { isDeepStrictEqual } from "node:util";
import { type AuditCollectorOptions, createAuditCollector } from "../../audit/audit-collector.ts";
import { type AuditFile, explainAuditFileFault, openAuditFile } from "../../audit/audit-file.ts";
import { type AuditLog, type AuditSink, createAuditLog } from "../../audit/audit-log.ts";
import type { AuditConfig } from "../../config/edge-settings.ts";
import { ConfigError } from "../../core/errors.ts";
import type { Instant } from "../../core/time.ts";
import type { Telemetry } from "../../telemetry/telemetry.ts";

export interface AuditKeeper {
  /** What requests of the configuration are written to; undefined where it has no audit log. */
  readonly log: () => AuditLog | undefined;
  /**
   * Takes another configuration from the next line on. Lines of requests that began before it go where it says as well; where
   * it has no audit log they go where they went. Only one at a time.
   * @throws {ConfigError} The new file cannot be used, or its first line not be written. Then nothing has changed.
   */
  readonly configure: (config: AuditConfig | undefined) => Promise<void>;
  readonly reopen: () => void;
  /** Writes the last line, and everything that is not on the disk yet. */
  readonly close: () => Promise<void>;
}

/** What is written to, which outlives configurations that do not name it. */
interface OpenAudit {
  readonly log: AuditLog;
  config: AuditConfig;
  /** Absent where lines go to a collector. */
  file: AuditFile | undefined;
}

/** Errors as those of `configure`. */
export async function openAuditKeeper(
  first: AuditConfig | undefined,
  telemetry: Telemetry,
  now: () => Instant,
): Promise<AuditKeeper> {
  const state: { open?: OpenAudit; isWanted: boolean } = { isWanted: false };
  const apply = async (config: AuditConfig | undefined): Promise<void> => {
    if (config === undefined) {
      if (state.isWanted) await state.open?.log.stop();
    } else if (state.open === undefined) state.open = await openAudit(config, telemetry, now);
    else await replaceAudit(state.open, config, state.isWanted, telemetry);
    state.isWanted = config !== undefined;
  };
  let configuring = apply(first);
  await configuring;
  return {
    log: () => (state.isWanted ? state.open?.log : undefined),
    configure: (config) => {
      configuring = apply(config);
      return configuring;
    },
    reopen: () => state.open?.log.reopen(),
    close: async () => {
      // A program may have to end while a reload opens its log.
      await configuring.catch(() => {});
      await state.open?.log.close();
    },
  };
}

async function openAudit(config: AuditConfig, telemetry: Telemetry, now: () => Instant): Promise<OpenAudit> {
  const { sink, file } = await openSink(config, telemetry, (...rejected) => log.countRejected(...rejected));
  const log = createAuditLog({
    config,
    sink,
    now,
    onDropped: (lines) => telemetry.recordAuditLoss("dropped", lines),
    onState: (reason) => {
      if (reason === undefined) telemetry.log({ level: "info", message: "the audit log is written again" });
      else telemetry.log({ level: "error", message: "the audit log cannot be written", reason });
    },
  });
  await startLog(log, config, file?.unsynced ?? 0);
  return { log, config, file };
}

async function startLog(log: AuditLog, config: AuditConfig, unsynced: number): Promise<void> {
  await log.start(unsynced).catch((error: unknown) => {
    throw toConfigError(config, error);
  });
}

async function replaceAudit(
  open: OpenAudit,
  config: AuditConfig,
  isWanted: boolean,
  telemetry: Telemetry,
): Promise<void> {
  if (isSamePlace(open.config, config)) {
    if (!isWanted) await startLog(open.log, config, 0);
    open.file?.configure(config);
    await open.log.configure(config);
  } else {
    const { sink, file } = await openSink(config, telemetry, open.log.countRejected);
    await open.log
      .configure(config, { sink, unsynced: file?.unsynced ?? 0 })
      .catch(async (error: unknown) => {
        await sink.close();
        throw toConfigError(config, error);
      });
    open.file = file;
  }
  open.config = config;
}

/** A file may be written to in another way; a collector is then another one. */
function isSamePlace(before: AuditConfig, after: AuditConfig): boolean {
  if (after.file !== undefined) return before.file === after.file;
  return isDeepStrictEqual([before.otlp, before.sync], [after.otlp, after.sync]);
}

async function openSink(
  config: AuditConfig,
  telemetry: Telemetry,
  onRejected: AuditCollectorOptions["onRejected"],
): Promise<{ readonly sink: AuditSink; readonly file?: AuditFile }> {
  const { file: path = "", otlp, sync } = config;
  if (otlp !== undefined) {
    const onFailure: AuditCollectorOptions["onFailure"] = (reason) =>
      telemetry.log({ level: "warn", message: "the audit log cannot be sent", reason });
    const onWarning: AuditCollectorOptions["onWarning"] = (reason) =>
      telemetry.log({ level: "warn", message: "the collector of the audit log warns", reason });
    return { sink: createAuditCollector({ otlp, sync, onFailure, onRejected, onWarning }) };
  }
  const file = await openAuditFile(path, config).catch((error: unknown) => {
    throw toConfigError(config, error);
  });
  if (file.unsynced > 0) {
    telemetry.recordAuditLoss("unsynced", file.unsynced);
    const message = "lines of the audit log may not have been on the disk when the last run ended";
    telemetry.log({ level: "warn", message, lines: file.unsynced });
  }
  return { sink: file, file };
}

function toConfigError({ file = "" }: AuditConfig, error: unknown): ConfigError {
  return new ConfigError(file, [{ path: "audit.file", message: explainAuditFileFault(error) }]);
}
