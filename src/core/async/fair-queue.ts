// Who is next where several accounts wait for slots: none of them waits for all that another one has asked for.

/** By account, the one that was served last as the last; of each in the order of arrival. None of the sets is empty. */
export type FairQueue<Account, Waiting> = Map<Account, Set<Waiting>>;

export function joinQueue<Account, Waiting>(
  queue: FairQueue<Account, Waiting>,
  account: Account,
  waiting: Waiting,
): void {
  const own = queue.get(account) ?? new Set();
  queue.set(account, own);
  own.add(waiting);
}

/** Does nothing where it waits no longer. */
export function leaveQueue<Account, Waiting>(
  queue: FairQueue<Account, Waiting>,
  account: Account,
  waiting: Waiting,
): void {
  const own = queue.get(account);
  own?.delete(waiting);
  if (own?.size === 0) queue.delete(account);
}

/**
 * Serves one, of the account that holds the fewest; of those that hold as many, of the one that was served the longest ago.
 * `serve` takes one out of those that wait of an account, if one of them may have a slot, and tells whether it did; so does
 * this.
 */
export function serveNext<Account, Waiting>(
  queue: FairQueue<Account, Waiting>,
  countHeld: (account: Account, waiting: Set<Waiting>) => number,
  serve: (waiting: Set<Waiting>, account: Account) => boolean,
): boolean {
  const accounts = [...queue].sort((a, b) => countHeld(...a) - countHeld(...b));
  const served = accounts.find(([account, waiting]) => serve(waiting, account));
  if (served === undefined) return false;
  const [account, waiting] = served;
  queue.delete(account);
  if (waiting.size > 0) queue.set(account, waiting);
  return true;
}
