// What each account has under way at once, and the limits of one token beside those of the server.
import type { Limits, TokenLimits } from "../config/limits.ts";

/** Counts what accounts hold at once, each within a bound of its own. */
export interface AccountSlots {
  readonly hasFree: (account: string, limit: number, count?: number) => boolean;
  readonly countTaken: (account: string) => number;
  /** Takes one, or `count`, without asking whether they are free. Returns what gives them back. */
  readonly take: (account: string, limit: number, count?: number) => () => void;
  /** The part that is taken by the account nearest to its bound; 0 where none holds any. */
  readonly measureUse: () => number;
}

/** What an account holds, and its bound when it last took one: a reload may have changed that. */
interface HeldSlots {
  taken: number;
  limit: number;
}

export function createAccountSlots(): AccountSlots {
  const byAccount = new Map<string, HeldSlots>();
  const countTaken = (account: string): number => byAccount.get(account)?.taken ?? 0;
  return {
    countTaken,
    hasFree: (account, limit, count = 1) => countTaken(account) + count <= limit,
    take: (account, limit, count = 1) => {
      const held = byAccount.get(account) ?? { taken: 0, limit };
      held.taken += count;
      held.limit = limit;
      byAccount.set(account, held);
      return () => {
        held.taken -= count;
        if (held.taken === 0) byAccount.delete(account);
      };
    },
    measureUse: () => {
      let largest = 0;
      for (const { taken, limit } of byAccount.values()) largest = Math.max(largest, taken / limit);
      return largest;
    },
  };
}

/** The limits of a server as they hold for a token with limits of its own: the smaller one of each. */
export function narrowLimits(limits: Limits, own: TokenLimits | undefined): Limits {
  if (own === undefined) return limits;
  const { requests = Number.POSITIVE_INFINITY, streams = Number.POSITIVE_INFINITY } = own;
  return {
    ...limits,
    tokenRequests: Math.min(limits.tokenRequests, requests),
    tokenStreams: Math.min(limits.tokenStreams, streams),
    tail: { ...limits.tail, perToken: Math.min(limits.tail.perToken, streams) },
    documents: Math.min(limits.documents, own.documents ?? limits.documents),
    export: Math.min(limits.export, own.export ?? limits.export),
  };
}
