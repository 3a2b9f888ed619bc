// Counts over time, as small as a word.
import { formatNumber } from "../base/format.js";
import { createSvg } from "../base/svg.js";

const [width, height] = [84, 20];

/** @param {readonly number[]} counts by time */
export function createSparkline(counts) {
  const most = Math.max(1, ...counts);
  const step = width / counts.length;
  const label = `Over time: ${counts.map(formatNumber).join(", ")}`;
  const bars = counts.map((count, at) => {
    const size = count === 0 ? 0 : Math.max(1.5, (count / most) * height);
    return createSvg("rect", {
      x: (at * step).toFixed(2),
      width: Math.max(1, step - 1).toFixed(2),
      y: (height - size).toFixed(2),
      height: size.toFixed(2),
    });
  });
  const title = createSvg("title", {}, label);
  return createSvg(
    "svg",
    { class: "sparkline", role: "img", width, height, "aria-label": label },
    title,
    ...bars,
  );
}
