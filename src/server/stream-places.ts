// Streamed answers under way: how many there may be, and which are cut before their end, since their token has expired or a new
// configuration does not permit them.
import { createAccountSlots, narrowLimits } from "../access/account-slots.ts";
import type { Principal } from "../access/auth.ts";
import { createOverloadedError } from "../access/request-slots.ts";
import type { Limits } from "../config/limits.ts";
import { type LimitUse, TooMany, Unauthorized } from "../core/errors.ts";
import { type Instant, type Millis, toMillis } from "../core/time.ts";
import type { Exchange } from "../http/request.ts";
import type { RequestLifetime } from "../operations/runtime/lifetime.ts";
import type { PreparedOperation } from "../operations/runtime/operation.ts";
import type { Telemetry } from "../telemetry/telemetry.ts";

export interface StreamedRequest {
  readonly exchange: Exchange;
  readonly principal: Principal;
  readonly work: RequestLifetime;
  /** Also where a new configuration does not permit it: what is published, and what its deadline ends. */
  readonly mayFinish: boolean;
  readonly scopes: PreparedOperation["scopes"];
  readonly sites: readonly string[];
}

export interface StreamPlaces {
  /** A place for what ends by itself; what is returned gives it back. @throws {LimitReached} {TooMany} */
  readonly takePlace: (principal: Principal, limits: Limits) => () => void;
  /** What is returned gives the place back and ends the work. @throws {LimitReached} {TooMany} */
  readonly take: (request: StreamedRequest, limits: Limits, now: () => Instant) => () => void;
  readonly measureUse: (limits: Limits) => LimitUse;
  /** Cuts those of which `isPermitted` says no, now and when they begin. */
  readonly cutUnpermitted: (isPermitted: IsPermitted) => Promise<void>;
}

type IsPermitted = (request: StreamedRequest) => Promise<boolean>;

export function createStreamPlaces({ streams: gauge }: Telemetry): StreamPlaces {
  const open = new Set<StreamedRequest>();
  const byAccount = createAccountSlots();
  let taken = 0;
  let isPermitted: IsPermitted | undefined;
  const check = async (request: StreamedRequest) => {
    if (request.mayFinish || isPermitted === undefined || (await isPermitted(request))) return;
    cut(request);
  };
  const takePlace: StreamPlaces["takePlace"] = ({ account, limits: own }, limits) => {
    const { tokenStreams } = narrowLimits(limits, own);
    if (!byAccount.hasFree(account, tokenStreams))
      throw new TooMany(1, "token_streams", { requests: tokenStreams });
    if (taken >= limits.streams)
      throw createOverloadedError("streams", `${taken} streamed answers are under way`);
    taken += 1;
    const release = byAccount.take(account, tokenStreams);
    gauge.opened();
    return () => {
      taken -= 1;
      release();
      gauge.closed();
    };
  };
  return {
    takePlace,
    take(request, limits, now) {
      const leavePlace = takePlace(request.principal, limits);
      const clearExpiry = scheduleTokenExpiry(request, now);
      open.add(request);
      // It may have been admitted by an earlier configuration.
      void check(request);
      return () => {
        clearExpiry();
        open.delete(request);
        leavePlace();
        request.work.end();
      };
    },
    measureUse: (limits) => ({
      streams: taken / limits.streams,
      token_streams: byAccount.measureUse(),
    }),
    async cutUnpermitted(permits) {
      isPermitted = permits;
      await Promise.all([...open].map(check));
    },
  };
}

function cut({ work }: StreamedRequest): void {
  work.fail(new Unauthorized("Unauthorized"));
}

/** The longest that a timer of node lasts, some 24 days. */
const maxTimer: Millis = 2 ** 31 - 1;

/** Cuts a streamed answer when the token of its client expires. Returns what prevents that. */
function scheduleTokenExpiry(request: StreamedRequest, now: () => Instant): () => void {
  const { expires } = request.principal;
  if (expires === undefined) return () => {};
  const left = toMillis(expires as Instant) - toMillis(now());
  if (left > maxTimer) return () => {};
  const timer = setTimeout(() => cut(request), Math.max(0, left));
  return () => clearTimeout(timer);
}
