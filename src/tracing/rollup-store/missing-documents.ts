// How long a roller waits for documents that figures were made of and that are missing. Copies of an index show them again within two
// minutes, unless they are deleted. An index that goes on losing documents would have everything wait again and again. So after the
// second wait in a row nobody waits for it for a while, and what it takes is set aside, so that other segments are made meanwhile.
import { type Millis, minute, type TimeRange } from "../../core/time.ts";
import { isMadeOf } from "../rollups/stored-cover.ts";
import type { FoundManifest } from "./group-manifests.ts";

/** What no copy of the source has had for so long is deleted: copies refresh in less. */
const maxBehind: Millis = 2 * minute;
/** A wait that ends so soon after the last one is in a row with it. */
const repeatedWithin: Millis = 15 * minute;
const unstableLifetime: Millis = 30 * minute;

interface MissingDocuments {
  /** Since when all snapshots have lacked some; undefined where none are missing now. */
  readonly since: Millis | undefined;
  /** When the last wait ended. In the future: until then nobody waits. */
  readonly waitedUntil: Millis;
}

/** Of a group of figures, by origin. */
export type MissingByOrigin = Map<string, MissingDocuments>;

const never = Number.NEGATIVE_INFINITY;

/** An origin is unstable where it goes on losing documents: nobody waits for these. */
export function isUnstable(known: MissingByOrigin, origin: string, now: Millis): boolean {
  return (known.get(origin)?.waitedUntil ?? never) > now;
}

/**
 * Whether documents of the origin that are missing are taken as deleted. Where one origin after another begins to lack some, all
 * are taken so after twice the time: the group would wait as long as the last of them.
 */
export function mayTakeAsDeleted(known: MissingByOrigin, origin: string, now: Millis): boolean {
  const hasLackedFor = (time: Millis, { since }: MissingDocuments) =>
    since !== undefined && since <= now - time;
  const own = known.get(origin);
  return (
    (own !== undefined && hasLackedFor(maxBehind, own)) ||
    [...known.values()].some((one) => hasLackedFor(2 * maxBehind, one)) ||
    isUnstable(known, origin, now)
  );
}

/** Notes of which origins a step lacked documents, and whether it waits for them or has taken them as deleted. */
export function noteMissing(
  known: MissingByOrigin,
  { origins, isWaiting }: Pick<MissingOfGroup, "origins" | "isWaiting">,
  now: Millis,
): void {
  for (const origin of origins) {
    const { since = now, waitedUntil = never } = known.get(origin) ?? {};
    if (isWaiting) known.set(origin, { since, waitedUntil });
    else if (waitedUntil > now) known.set(origin, { since: undefined, waitedUntil });
    else {
      const isRepeated = waitedUntil > now - repeatedWithin;
      known.set(origin, { since: undefined, waitedUntil: isRepeated ? now + unstableLifetime : now });
    }
  }
  for (const [origin, { waitedUntil }] of known) {
    if (origins.has(origin)) continue;
    if (waitedUntil > now - repeatedWithin) known.set(origin, { since: undefined, waitedUntil });
    else known.delete(origin);
  }
}

/** What a group keeps of origins that lack documents. */
export interface MissingOfGroup {
  readonly origins: ReadonlySet<string>;
  /** Whether nothing is dropped yet, and so nothing made. */
  readonly isWaiting: boolean;
  /** What is dropped, and not made again as long as its origin is unstable. */
  readonly setAside: readonly TimeRange[];
}

export function findMissing(
  { groupToRoll, manifest: { segments, merged } }: FoundManifest,
  behindOrigins: ReadonlySet<string>,
): MissingOfGroup {
  const kept = [...segments, ...merged];
  const origins = [...behindOrigins].filter((origin) => kept.some((one) => one.origins.includes(origin)));
  const unstable = new Set(origins.filter(groupToRoll.isUnstable));
  return {
    origins: new Set(origins),
    isWaiting: !origins.every(groupToRoll.mayTakeAsDeleted),
    setAside: segments.filter((one) => isMadeOf(one, unstable)).map(({ range }) => range),
  };
}

/** When the last of these origins is waited for again. */
export function findUnstableEnd(known: MissingByOrigin, origins: ReadonlySet<string>): Millis {
  return Math.max(...[...origins].map((origin) => known.get(origin)?.waitedUntil ?? never));
}
