// Limits how much work each account does at once. Further work waits for a turn, first come first served.

export interface AccountTurns {
  /**
   * Resolves with what ends the turn; ending it again does nothing.
   * @throws the signal's reason, when that aborts before the turn has come
   */
  readonly take: (account: string, signal: AbortSignal) => Promise<() => void>;
}

/** The turns of one account, and who waits for one, in the order in which they came. */
interface OwnTurns {
  taken: number;
  readonly waiting: Set<() => void>;
}

export function createAccountTurns(limit: number): AccountTurns {
  const byAccount = new Map<string, OwnTurns>();
  return {
    async take(account, signal) {
      signal.throwIfAborted();
      const own = byAccount.get(account) ?? { taken: 0, waiting: new Set() };
      byAccount.set(account, own);
      if (own.taken < limit) own.taken += 1;
      else await waitForTurn(own, signal);
      let isTaken = true;
      return () => {
        if (!isTaken) return;
        isTaken = false;
        const [next] = own.waiting;
        if (next !== undefined) return next();
        own.taken -= 1;
        if (own.taken === 0) byAccount.delete(account);
      };
    },
  };
}

/** Resolves when another turn ends, in its place. */
function waitForTurn({ waiting }: OwnTurns, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const enter = () => {
      waiting.delete(enter);
      signal.removeEventListener("abort", giveUp);
      resolve();
    };
    const giveUp = () => {
      waiting.delete(enter);
      reject(signal.reason);
    };
    waiting.add(enter);
    signal.addEventListener("abort", giveUp, { once: true });
  });
}
