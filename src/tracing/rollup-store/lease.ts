// A lease lets one of several instances make figures at a time. It only saves work: if two work at once, because a clock is wrong
// or a step takes longer than the lease, both write equal segments, and the manifest of the slower one is rejected.
import { createHash } from "node:crypto";
import { z } from "zod";
import { tryParseJson } from "../../core/json/parse-json.ts";
import type { Millis } from "../../core/time.ts";
import type { RollupStore } from "../../store/rollups.ts";

export interface Lease {
  readonly store: RollupStore;
  readonly id: string;
  /** Names an instance. */
  readonly holder: string;
  /** Milliseconds since 1970. */
  readonly now: () => Millis;
}

const bodySchema = z.strictObject({ holder: z.string(), until: z.number() });

/** Another instance may take the lease so long after its holder has renewed it. */
const leaseLifetime: Millis = 60_000;

/** The lease for making these groups, which are in a fixed order. */
export function formatLeaseId(groups: readonly string[]): string {
  return `lease-${createHash("sha256").update(JSON.stringify(groups)).digest("base64url").slice(0, 24)}`;
}

/** A document with which `readout check` tries whether it may write. It is deleted like a lease that nobody holds. */
export const probeId = "lease-check";

/** Whether a document is a lease or the probe. */
export function isLeaseId(id: string): boolean {
  return id === probeId || /^lease-[\w-]{24}$/.test(id);
}

/** Takes or prolongs the lease. Returns whether this instance holds it. @throws {BackendError} */
export async function holdLease(lease: Lease, signal: AbortSignal): Promise<boolean> {
  const { store, id, holder, now } = lease;
  const [found] = await store.read([id], signal);
  const held = found && parseBody(found.body);
  // Of one that ends much later the clock of its holder is wrong, or this one was set back.
  const isHeld = held !== undefined && held.until >= now() && held.until <= now() + 2 * leaseLifetime;
  const isFree = !isHeld || held.holder === holder;
  return isFree && writeLease(lease, now() + leaseLifetime, found?.revision, signal);
}

/** Lets others take it over at once. @throws {BackendError} */
export async function releaseLease(lease: Lease, signal: AbortSignal): Promise<void> {
  const { store, id, holder } = lease;
  const [found] = await store.read([id], signal);
  if (found === undefined || parseBody(found.body)?.holder !== holder) return;
  await writeLease(lease, 0, found.revision, signal);
}

function writeLease(
  { store, id, holder, now }: Lease,
  until: Millis,
  revision: string | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const body = JSON.stringify({ holder, until });
  return store.replace({ id, site: "", made: now(), body }, revision, signal);
}

/** Undefined for a text that is no lease, which is then taken over. */
function parseBody(text: string): z.infer<typeof bodySchema> | undefined {
  return bodySchema.safeParse(tryParseJson(text)).data;
}
