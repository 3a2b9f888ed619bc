// Tails over a memory store with a virtual clock and clients whose reading the test controls.
import { createMemoryLogs } from "#resolvers/memory/stores/log-store.ts";
import type { Principal } from "#src/access/auth.ts";
import { createOverloadedError } from "#src/access/request-slots.ts";
import type { Limits } from "#src/config/limits.ts";
import { defaults } from "#src/config/schema.ts";
import { createHeldLedger, type HeldLedger } from "#src/core/async/held-bytes.ts";
import type { LogLine } from "#src/core/rows.ts";
import { fromMillis, type Millis } from "#src/core/time.ts";
import { parse } from "#src/log-query/parse.ts";
import type { LogStore } from "#src/store/logs.ts";
import { createTailRegistry, createTailSlots, type TailRegistry } from "#src/tail/tail-registry.ts";
import { type Clock, createClock } from "../support/fake-clock.ts";

export const base = Date.UTC(2026, 0, 15, 10);
export const ana: Principal = {
  user: "ana",
  token: "ana",
  account: "ana",
  maySee: () => true,
  hasScope: () => true,
};

export interface Event {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: Readonly<Record<string, unknown>>;
}
export interface Client {
  readonly events: readonly Event[];
  /** The ids of the lines received. */
  readonly lines: () => readonly string[];
  /** The last event id, as a client keeps it. */
  readonly lastId: () => string | undefined;
  readonly text: () => string;
  readonly state: () => "open" | "ended" | "broken";
  /** Whether its answer was broken off, as the server saw it; undefined before its end. */
  readonly wasCut: () => boolean | undefined;
  readonly leave: () => void;
  /** Reads nothing while true. */
  stalled: boolean;
}

export interface Opening {
  readonly query?: string;
  readonly from?: Millis | undefined;
  readonly to?: Millis | undefined;
  readonly resume?: string | undefined;
  readonly principal?: Principal;
  readonly stalled?: boolean;
  /** Another one than the subject's. */
  readonly store?: LogStore;
}

interface Subject {
  readonly clock: Clock;
  readonly tails: TailRegistry;
  /** What they hold of documents. */
  readonly ledger: HeldLedger;
  readonly open: (opening?: Opening) => Promise<Client>;
  /** Makes a line visible now; times are milliseconds after `base`. */
  readonly add: (id: string, time: Millis, message?: string) => void;
  /** Number of store reads so far. */
  readonly readings: () => number;
  /** Disconnects all clients, also those without an answer yet. */
  readonly leaveAll: () => void;
  readonly logged: () => string;
}

export function createSubject(
  options: {
    limits?: Partial<Limits>;
    tail?: Partial<Limits["tail"]>;
    store?: (store: LogStore) => LogStore;
    /** How many places there are for tails that begin far behind. */
    places?: number;
  } = {},
): Subject {
  const clock = createClock(base);
  const logs = createMemoryLogs();
  let readings = 0;
  const counted: LogStore = {
    ...logs,
    lines(query, signal) {
      readings += 1;
      return logs.lines(query, signal);
    },
  };
  const store = options.store?.(counted) ?? counted;
  const leaving: AbortController[] = [];
  let places = options.places ?? 10;
  const takePlace = () => {
    if (places === 0) throw createOverloadedError("streams", "no place is free");
    places -= 1;
    return () => {
      places += 1;
    };
  };
  const left = new Error("the client left");
  let log = "";
  const ledger = createHeldLedger();
  const { limits } = defaults;
  const tails = createTailRegistry({
    limits: { ...limits, ...options.limits, tail: { ...limits.tail, ...options.tail } },
    slots: createTailSlots(),
    held: ledger,
    now: clock.now,
    pause: clock.pause,
    log: (event) => {
      log += `${JSON.stringify(event)}\n`;
    },
  });

  async function open({
    query = "",
    from,
    to,
    resume,
    principal = ana,
    stalled = false,
    ...other
  }: Opening = {}) {
    const gone = new AbortController();
    leaving.push(gone);
    let state: ReturnType<Client["state"]> = "open";
    let isCut: boolean | undefined;
    const chunks = await tails.open(
      {
        store,
        ...other,
        sources: [{ id: "app", index: "app", layout: "auto", tenantFilter: undefined }],
        filter: parse(query),
        from: from === undefined ? undefined : fromMillis(base + from),
        to: to === undefined ? undefined : fromMillis(base + to),
      },
      {
        principal,
        lastEventId: resume,
        clientGone: gone.signal,
        takePlace,
        onClose: (cut) => {
          isCut = cut;
        },
      },
    );
    let text = "";
    let moved = Promise.withResolvers<void>();
    let held = stalled;
    const client: Client = {
      get events() {
        return readEvents(text);
      },
      lines: () => readEvents(text).flatMap(({ event, data }) => (event === "line" ? [String(data.id)] : [])),
      lastId: () =>
        text
          .match(/^id: (.*)$/gm)
          ?.at(-1)
          ?.slice(4),
      text: () => text,
      state: () => state,
      wasCut: () => isCut,
      leave: () => gone.abort(left),
      get stalled() {
        return held;
      },
      set stalled(value) {
        held = value;
        moved.resolve();
        moved = Promise.withResolvers();
      },
    };
    void (async () => {
      try {
        for (;;) {
          while (held && !chunks.signal.aborted) {
            const aborted = new Promise((resolve) => chunks.signal.addEventListener("abort", resolve));
            await Promise.race([moved.promise, aborted]);
          }
          const next = await chunks.next();
          if (next.done === true) break;
          text += next.value;
        }
        state = "ended";
      } catch {
        state = "broken";
      }
    })();
    return client;
  }

  const leaveAll = () => {
    for (const one of leaving) one.abort(left);
  };
  const add = (id: string, time: Millis, message?: string) =>
    logs.add("app", [
      { id, time: fromMillis(base + time), severity: "info", message, json: "{}" } satisfies Omit<
        LogLine,
        "source_id"
      >,
    ]);
  return { clock, tails, ledger, open, add, readings: () => readings, leaveAll, logged: () => log };
}

/** Parses server-sent events by the standard: an empty line ends an event; one without data is dropped. */
export function readEvents(text: string): readonly Event[] {
  return text
    .split("\n\n")
    .slice(0, -1)
    .flatMap((block) => {
      const fields = new Map(
        block.split("\n").flatMap((line) => {
          const [, name = "", value = ""] = /^([^:]*): ?(.*)$/.exec(line) ?? [];
          return name === "" ? [] : [[name, value] as const];
        }),
      );
      const data = fields.get("data");
      if (data === undefined) return [];
      return [{ event: fields.get("event") ?? "message", id: fields.get("id"), data: JSON.parse(data) }];
    });
}
