// Who is next where several accounts wait for slots: none of them waits for all that another one has asked for.

/**
 * Waiting requests by account. Accounts are ordered by when they were last served, or came to wait since (longest ago first),
 * requests by arrival. None of the sets is empty.
 */
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
 * Serves one request: of the account that holds the fewest; on a tie, of the one served longest ago. Where `serve` serves none
 * of an account, the next one has its turn. `serve` removes the request it serves from the set. Both return whether one was
 * served.
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
