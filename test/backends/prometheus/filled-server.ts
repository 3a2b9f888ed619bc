// Starts a server of Prometheus' API that holds some samples and no others: Prometheus from blocks that promtool makes of
// text, since it takes no samples that lie hours before others; VictoriaMetrics by remote write.
import { startPrometheus } from "../../servers/prometheus.ts";
import { startVictoriaMetrics } from "../../servers/victoria-metrics.ts";
import { sendRemoteWrite, type WrittenSeries } from "../../support/prometheus/remote-write.ts";
import type { MetricServer } from "../selected-servers.ts";

export interface FilledServer {
  readonly url: string;
  /** Makes what was written visible, where that is needed. */
  readonly flush?: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

/** The same samples as OpenMetrics text and as series. */
interface Filling {
  readonly printText: () => string;
  readonly listSeries: () => readonly WrittenSeries[];
}

/** A server without samples, which takes remote writes. */
export function startEmpty({ name }: MetricServer): Promise<FilledServer> {
  return name === "vm" ? startVictoriaMetrics() : startPrometheus(name, "");
}

/** Series of one message, which a server decodes as a whole. */
const seriesPerWrite = 500;

export async function startFilled(
  { name }: MetricServer,
  { printText, listSeries }: Filling,
): Promise<FilledServer> {
  if (name !== "vm") return startPrometheus(name, printText());
  const server = await startVictoriaMetrics();
  try {
    const series = listSeries();
    for (let at = 0; at < series.length; at += seriesPerWrite)
      await sendRemoteWrite(server.url, series.slice(at, at + seriesPerWrite));
    await server.flush();
    return server;
  } catch (error) {
    await server.stop();
    throw error;
  }
}
