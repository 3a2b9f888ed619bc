// The front-end error intake under load: reports of 2 kB at a steady 2,000 a second, each acknowledged after its commit,
// then a backlog that is drained while somebody reads. The source confirms everything at once and what is read comes from
// a canned one, both of them other processes, so what is measured is ours and the disk's.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { hashToken } from "../../src/access/auth.ts";
import { findFreePort } from "../../test/support/free-port.ts";
import { createAgent, send } from "../harness/http-client.ts";
import { awaitAnnouncement, program, readCpuMillis, readMemoryMegabytes, start } from "../harness/process.ts";
import { calculateQuantile, type Figure } from "../harness/report.ts";

const perSecond = 2_000;
const token = "bench";

/** The most that each figure may be (README, "What it promises"). */
const floors = { millisPerSecond: 1_020, p99Millis: 20, peakMegabytes: 250, slowdown: 1.5 };

/** Lines to read, and the range that they lie in. */
interface Lines {
  readonly url: string;
  readonly from: string;
  readonly to: string;
}

export async function measureIntake(
  quick: boolean,
  folder: string,
  lines: Lines,
): Promise<readonly Figure[]> {
  const sinkLog = join(folder, "sink.log");
  const sink = start({
    arguments: [join(import.meta.dirname, "..", "fixtures", "bulk-sink.ts")],
    core: 0,
    log: sinkLog,
  });
  const { url: sinkUrl } = await awaitAnnouncement(sink, sinkLog);
  const port = await findFreePort();
  const file = join(folder, "intake.yaml");
  writeFileSync(
    file,
    `listen: 127.0.0.1:${port}
intake: { spool: intake.db, key_rate: 1000000, address_rate: 1000000 }
limits: { rate: 1000000, token_requests: 64, token_streams: 32 }
tokens: [{ user: bench, sha256: "${hashToken(token)}", sites: "*" }]
backends:
  sink: { kind: elastic, url: "${sinkUrl}" }
  canned: { kind: elastic, url: "${lines.url}" }
sites:
  shop:
    frontend: { keys: [k], backend: sink, index: reports }
    logs: { backend: canned, sources: { app: { index: logs-bench, layout: ecs } } }
`,
  );
  const subject = start({
    arguments: [...program, "serve", "--config", file],
    core: 1,
    log: join(folder, "intake.log"),
  });
  const base = `http://127.0.0.1:${port}`;
  const agent = createAgent();
  try {
    for (let tries = 0; ; tries += 1) {
      const answered = await fetch(`${base}/livez`).then(
        ({ ok }) => ok,
        () => false,
      );
      if (answered) break;
      if (tries > 400) throw new Error("the server did not start");
      await sleep(50);
    }
    const post = { url: `${base}/errors?api_key=k`, method: "POST", body: report() } as const;
    const read = {
      url: `${base}/api/v2/logs/lines`,
      method: "POST",
      token,
      body: JSON.stringify({
        site_id: "shop",
        source_ids: ["app"],
        query: "",
        use_expressions: true,
        from: lines.from,
        to: lines.to,
        pagination: { per_page: 100, order: "DESC", cursor: { time: null } },
      }),
    } as const;

    /** Starts `rate` calls a second, however long each takes; their times, and how long all of them took. */
    const run = async (call: typeof post | typeof read, rate: number, seconds: number) => {
      const millis: number[] = [];
      const begin = performance.now();
      const pending: Promise<void>[] = [];
      for (let sent = 0; sent < rate * seconds; ) {
        const due = Math.min(rate * seconds, Math.floor(((performance.now() - begin) / 1_000) * rate));
        for (; sent < due; sent += 1) {
          pending.push(
            send(agent, call).then((one) => {
              millis.push(one.millis);
            }),
          );
        }
        await sleep(1);
      }
      await Promise.all(pending);
      return { millis, took: performance.now() - begin };
    };

    // The canned source renders its answers at the first request for them.
    await send(agent, read);
    await run(post, perSecond / 4, 2);
    const seconds = quick ? 5 : 60;
    const cpu = readCpuMillis(subject.pid);
    const steady = await run(post, perSecond, seconds);
    const used = readCpuMillis(subject.pid) - cpu;
    const peak = readMemoryMegabytes(subject.pid, "VmHWM");

    await awaitSettled(base);
    const before = await run(read, 50, quick ? 5 : 20);
    await fetch(`${sinkUrl}/away`, { method: "PUT" });
    const backlog = quick ? 5_000 : 100_000;
    await run(post, perSecond, backlog / perSecond);
    await fetch(`${sinkUrl}/back`, { method: "PUT" });
    const drainBegin = performance.now();
    const during: number[] = [];
    for (let left = await countSpooled(base); left > 0; left = await countSpooled(base)) {
      const { millis } = await run(read, 50, 1);
      if (left > backlog / 50 || during.length === 0) during.push(...millis);
    }
    const drained = performance.now() - drainBegin;
    return [
      {
        name: "intake: a second's 2,000 reports of 2 kB",
        unit: "ms",
        value: steady.took / seconds,
        floor: floors.millisPerSecond,
        note: `for ${seconds} s; ${((used / steady.took) * 100).toFixed(0)} % of a core`,
      },
      {
        name: "intake: p99 from request to acknowledged commit",
        unit: "ms",
        value: calculateQuantile(steady.millis, 0.99),
        floor: floors.p99Millis,
        note: `median ${calculateQuantile(steady.millis, 0.5).toFixed(1)} ms`,
      },
      { name: "intake: peak RSS", unit: "MB", value: peak, floor: floors.peakMegabytes },
      {
        name: "intake: p99 of reads while a backlog drains, ratio",
        unit: "",
        value: calculateQuantile(during, 0.99) / calculateQuantile(before.millis, 0.99),
        floor: floors.slowdown,
        note: `${backlog} reports in ${(drained / 1_000).toFixed(0)} s; p99 ${calculateQuantile(before.millis, 0.99).toFixed(1)} ms before`,
      },
    ];
  } finally {
    agent.destroy();
    await subject.stop();
    await sink.stop();
  }
}

function report(): string {
  const body = {
    timestamp: 1_795_000_000,
    namespace: "frontend",
    action: "CartPage",
    revision: "d16f1aedf088",
    error: { name: "TypeError", message: "cart is undefined", backtrace: [] as string[] },
    tags: { page: "cart", plan: "free" },
    environment: { agent: "Mozilla/5.0 (X11; Linux x86_64)" },
  };
  for (let line = 1; JSON.stringify(body).length < 1_980; line += 1) {
    body.error.backtrace.push(`    at render (https://shop.example/assets/app.js:${line}:7)`);
  }
  return JSON.stringify(body);
}

/** Of the server's own metrics. */
async function countSpooled(base: string): Promise<number> {
  const text = await (await fetch(`${base}/metrics`)).text();
  return Number(/^readout_intake_spooled_reports (\d+)$/m.exec(text)?.[1] ?? Number.NaN);
}

async function awaitSettled(base: string): Promise<void> {
  while ((await countSpooled(base)) > 0) await sleep(100);
}
