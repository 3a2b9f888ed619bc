// Sends samples to a Prometheus by remote write (version 1), for what a file cannot hold: native histograms and staleness
// markers. Protocol buffers and Snappy are encoded by hand in the few forms that are needed.

export interface WrittenSeries {
  readonly labels: Readonly<Record<string, string>>;
  readonly samples?: readonly (readonly [millis: number, value: number | "stale"])[];
  readonly histograms?: readonly WrittenHistogram[];
}

/** Of schema 0: bucket `i` of `counts` covers `(2^(first + i - 1), 2^(first + i)]`. */
export interface WrittenHistogram {
  readonly millis: number;
  readonly sum: number;
  readonly first: number;
  readonly counts: readonly number[];
  /** Marked as a gauge histogram. */
  readonly gauge?: boolean;
}

/** @throws {Error} if the server does not accept all samples */
export async function sendRemoteWrite(url: string, series: readonly WrittenSeries[]): Promise<void> {
  const message = Buffer.concat(series.map((one) => encodeBytes(1, encodeSeries(one))));
  const answer = await fetch(`${url}/api/v1/write`, {
    method: "POST",
    headers: {
      "content-type": "application/x-protobuf",
      "content-encoding": "snappy",
      "x-prometheus-remote-write-version": "0.1.0",
    },
    body: new Uint8Array(compressSnappy(message)),
  });
  if (!answer.ok) throw new Error(`remote write: ${answer.status} ${await answer.text()}`);
}

function encodeSeries({ labels, samples = [], histograms = [] }: WrittenSeries): Buffer {
  const sorted = Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1));
  return Buffer.concat([
    ...sorted.map(([name, value]) =>
      encodeBytes(1, Buffer.concat([encodeBytes(1, Buffer.from(name)), encodeBytes(2, Buffer.from(value))])),
    ),
    ...samples.map(([millis, value]) =>
      encodeBytes(2, Buffer.concat([encodeDouble(1, value), encodeInteger(2, millis)])),
    ),
    ...histograms.map((histogram) => encodeBytes(4, encodeHistogram(histogram))),
  ]);
}

function encodeHistogram({ millis, sum, first, counts, gauge }: WrittenHistogram): Buffer {
  const total = counts.reduce((all, count) => all + count, 0);
  const deltas = counts.map((count, index) => encodeVarint(encodeZigzag(count - (counts[index - 1] ?? 0))));
  return Buffer.concat([
    encodeInteger(1, total),
    encodeDouble(3, sum),
    encodeInteger(4, 0),
    encodeDouble(5, 1e-128),
    encodeInteger(6, 0),
    encodeBytes(11, Buffer.concat([encodeInteger(1, encodeZigzag(first)), encodeInteger(2, counts.length)])),
    encodeBytes(12, Buffer.concat(deltas)),
    ...(gauge ? [encodeInteger(14, 3)] : []),
    encodeInteger(15, millis),
  ]);
}

const encodeZigzag = (value: number): number => (value < 0 ? -value * 2 - 1 : value * 2);

function encodeVarint(value: number): Buffer {
  const out: number[] = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
  return Buffer.from([...out, Number(rest)]);
}

const encodeInteger = (field: number, value: number): Buffer =>
  Buffer.concat([encodeVarint(field << 3), encodeVarint(value)]);
const encodeBytes = (field: number, value: Buffer): Buffer =>
  Buffer.concat([encodeVarint((field << 3) | 2), encodeVarint(value.length), value]);

function encodeDouble(field: number, value: number | "stale"): Buffer {
  const eight = Buffer.alloc(8);
  if (value === "stale") eight.writeBigUInt64LE(0x7ff0000000000002n);
  else eight.writeDoubleLE(value);
  return Buffer.concat([encodeVarint((field << 3) | 1), eight]);
}

/** Literals only, which every decoder accepts. */
function compressSnappy(data: Buffer): Buffer {
  const parts = [encodeVarint(data.length)];
  for (let at = 0; at < data.length; at += 65_536) {
    const literal = data.subarray(at, at + 65_536);
    const head = Buffer.from([61 << 2, 0, 0]);
    head.writeUInt16LE(literal.length - 1, 1);
    parts.push(head, literal);
  }
  return Buffer.concat(parts);
}

/** A server takes samples in the order of their time, and none that lies more than an hour before the newest one. */
export async function sendInOrder(url: string, all: readonly WrittenSeries[]): Promise<void> {
  const times = all.flatMap(({ samples = [] }) => samples.map(([time]) => time));
  const [first, last] = times.reduce(
    ([a, b], time) => [Math.min(a, time), Math.max(b, time)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
  const hour = 3_600_000;
  for (let from = first; from <= last; from += hour / 2) {
    const part = all.flatMap(({ labels, samples = [] }) => {
      const inside = samples.filter(([time]) => time >= from && time < from + hour / 2);
      return inside.length === 0 ? [] : [{ labels, samples: inside }];
    });
    await sendRemoteWrite(url, part);
  }
}
