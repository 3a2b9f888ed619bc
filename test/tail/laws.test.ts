// The law of live tails: each line that arrives within the lateness is sent once for each connection, none is lost over
// reconnections, and nothing else is sent, for any schedule of arrivals, source failures and reconnections. The expectation is
// computed from the schedule alone.
import fc from "fast-check";
import { expect, test } from "vitest";
import { BackendError, type Failure } from "#src/core/errors.ts";
import { createFederatedLogs } from "#src/federation/federated-logs.ts";
import type { LogQuery, LogStore } from "#src/store/logs.ts";
import type { Clock } from "../support/fake-clock.ts";
import { sampleRuns } from "../support/law-runs.ts";
import { base, type Client, createSubject, type Opening } from "./harness.ts";

const lateness = 20_000;
const length = 90_000;
/** Between two readings of the source. */
const pollInterval = 1_000;
/** Longer than the longest retry delay and all late arrivals. */
const after = 60_000 + lateness;

const arrivals = fc.array(
  fc.record({
    time: fc.integer({ min: -30_000, max: length }),
    // Prefers small delays and values near the lateness.
    delay: fc.oneof(fc.nat(1_500), fc.nat(lateness), fc.constantFrom(0, lateness)),
    /** By when the other copy of its shard shows it too. */
    refreshed: fc.oneof(fc.nat(1_500), fc.constantFrom(0, lateness)),
    red: fc.boolean(),
  }),
  { maxLength: 60 },
);
/** When the source fails: at once, or after its first batch; for each query, or for one of two and what is read with that. */
const outages = fc.array(
  fc.record({
    from: fc.integer({ min: 1, max: length }),
    length: fc.nat(40_000),
    midway: fc.boolean(),
    failure: fc.constantFrom<Failure>("unreachable", "timeout"),
    redOnly: fc.boolean(),
  }),
  { maxLength: 3 },
);
type Outage = typeof outages extends fc.Arbitrary<(infer One)[]> ? One : never;
const spent = fc.oneof(fc.constant(0), fc.nat(5_000));
/** Which of two copies answers each reading, over and over. */
const copies = fc.array(fc.boolean(), { minLength: 1, maxLength: 7 });
const queries = { all: "", red: "message=red", blue: "message=blue" };
const openings = fc.array(
  fc.record({
    at: fc.nat(length),
    back: fc.option(fc.nat(120_000), { nil: undefined }),
    followed: fc.constantFrom<keyof typeof queries>("all", "red", "blue"),
    /** How long each connection lasts. */
    cuts: fc.array(fc.integer({ min: 1, max: 30_000 }), { maxLength: 4 }),
  }),
  { minLength: 1, maxLength: 5 },
);

/** The store as two, each of which has every other line, read as one. */
function splitInTwo(store: LogStore): LogStore {
  const places = [0, 1].map((half) => ({
    backend: `half-${half}`,
    source: { id: "app", index: "app", layout: "auto", tenantFilter: undefined },
    store: {
      ...store,
      async *lines(query: LogQuery, signal: AbortSignal) {
        for await (const batch of store.lines(query, signal)) {
          const own = batch.filter(({ id }) => Number(id.slice(1)) % 2 === half);
          if (own.length > 0) yield own;
        }
      },
    },
  }));
  return createFederatedLogs(new Map([["app", { places, dedupe: "id" }]]));
}

/** `waitSlow` is what one of two queries takes, and what is read with that. */
function failing(now: () => number, periods: readonly Outage[], waitSlow: () => Promise<void>) {
  const findOutage = ({ filter }: LogQuery) =>
    periods.find(({ from, length, redOnly }) => {
      const isMet = !redOnly || JSON.stringify(filter).includes("red");
      return isMet && now() >= from && now() < from + length;
    });
  const fail = ({ failure }: Outage) => new BackendError("elk", failure, "down");
  return (store: LogStore): LogStore => ({
    async isWithinLimits(query) {
      const outage = findOutage(query);
      if (outage !== undefined) throw fail(outage);
      return true;
    },
    async *lines(query, signal) {
      if (JSON.stringify(query.filter).includes("red")) await waitSlow();
      const outage = findOutage(query);
      if (outage !== undefined && !outage.midway) throw fail(outage);
      for await (const batch of store.lines(query, signal)) {
        // Each millisecond is a batch of its own, so that failures can occur between any two.
        for (let first = 0; first < batch.length; ) {
          const start = batch[first]?.time;
          const end = batch.findIndex(({ time }, at) => at > first && time !== start);
          yield batch.slice(first, end === -1 ? batch.length : end);
          if (outage !== undefined) throw fail(outage);
          first = end === -1 ? batch.length : end;
        }
      }
      if (outage !== undefined) throw fail(outage);
    },
  });
}

/** Each reading is of a copy that shows a line when `isShown` says so, or of one that shows all. */
function readCopies(store: LogStore, copies: readonly boolean[], isShown: (id: string) => boolean): LogStore {
  let reading = 0;
  return {
    ...store,
    async *lines(query, signal) {
      const isLater = copies[reading++ % copies.length] === true;
      for await (const batch of store.lines(query, signal)) {
        const shown = isLater ? batch.filter(({ id }) => isShown(id)) : batch;
        if (shown.length > 0) yield shown;
      }
    },
  };
}

test.each([
  ["a failing source", (store: LogStore) => store, 60],
  ["two backends of which any fails", splitInTwo, 30],
])("each line once for each connection, none lost over reconnections: %s", async (_, split, numRuns) => {
  const law = fc.asyncProperty(arrivals, outages, openings, spent, copies, async (...script) => {
    const [arrivals, outages, openings, spent, copies] = script;
    let clock: Clock | undefined;
    const now = () => Number((clock?.now() ?? 0n) / 1_000_000n) - base;
    const waitSlow = async () => {
      if (spent > 0) await clock?.pause(spent, new AbortController().signal);
    };
    const readTime = (id: string) => arrivals[Number(id.slice(1))]?.time ?? 0;
    const isShown = (id: string) => {
      const { time = 0, delay = 0, refreshed = 0 } = arrivals[Number(id.slice(1))] ?? {};
      return now() >= time + Math.min(delay + refreshed, lateness);
    };
    const subject = createSubject({
      tail: { lateness },
      store: (store) => split(failing(now, outages, waitSlow)(readCopies(store, copies, isShown))),
    });
    clock = subject.clock;
    for (const [n, { time, delay, red }] of arrivals.entries()) {
      const add = () => subject.add(`l${n}`, time, red ? "red" : "blue");
      if (time + delay <= 0) add();
      else subject.clock.at(base + time + delay, add);
    }
    const stories = openings.map(({ at, back, followed, cuts }) => {
      const from = back === undefined ? undefined : at - back;
      const opening: Opening = { query: queries[followed], from };
      const clients: Client[] = [];
      let began: number | undefined;
      /** Clients retry after a 500 with the same event id. */
      const connect = (resume: string | undefined, which: number) => {
        // Starts at the next millisecond: the current one may have been read already.
        const asked = now() + 1;
        subject.open({ ...opening, resume }).then(
          (client) => {
            began ??= asked;
            clients.push(client);
            const cut = cuts[which];
            if (cut === undefined) return;
            subject.clock.at(base + now() + cut, () => {
              client.leave();
              connect(client.lastId(), which + 1);
            });
          },
          () => subject.clock.at(base + now() + 1_000, () => connect(resume, which)),
        );
      };
      subject.clock.at(base + at, () => connect(undefined, 0));
      return { followed, clients, start: () => from ?? began };
    });
    await subject.clock.advance(length + after);
    for (const { followed, clients, start } of stories) {
      const from = start() ?? Number.POSITIVE_INFINITY;
      const wanted = arrivals.flatMap((arrival, n) =>
        arrival.time >= from && (followed === "all" || arrival.red === (followed === "red")) ? [`l${n}`] : [],
      );
      const sent = new Map<string, number>();
      for (const client of clients) {
        const lines = client.lines();
        expect(lines.length).toBe(new Set(lines).size);
        const oldest = Math.max(...sent.values()) - lateness - lateness / 4 - pollInterval - 2 * spent;
        const repeated = lines.filter((id) => sent.has(id));
        // While a source fails, what has been sent stays open for longer.
        if (outages.length === 0)
          for (const id of repeated) expect(readTime(id)).toBeGreaterThanOrEqual(oldest);
        for (const id of lines) sent.set(id, readTime(id));
      }
      expect([...new Set(clients.flatMap((client) => client.lines()))].sort()).toEqual(wanted.sort());
      for (const client of clients) client.leave();
    }
    await subject.clock.advance(1_000);
  });
  await fc.assert(law, { numRuns: sampleRuns(numRuns, { share: 4, least: 10 }) });
});
