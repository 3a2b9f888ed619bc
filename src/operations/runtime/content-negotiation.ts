// Which form of an answer a client asks for by `Accept` (RFC 9110, section 12.5.1). JSON is the one that everybody gets
// who does not name another: existing clients send all sorts of things here, and none of them is an error.
import type { EndpointRepresentation } from "./operation.ts";

/** Undefined is JSON: it wins where it is named and weighs as much; a wildcard gives way to what is named. */
export function chooseRepresentation(
  accept: string | null,
  offered: readonly EndpointRepresentation[],
): EndpointRepresentation | undefined {
  const weights = readWeights(accept);
  const weigh = (type: string) => weights.get(type) ?? 0;
  const json = weigh("application/json");
  const any = Math.max(weigh("application/*"), weigh("*/*"));
  return offered
    .filter(({ mediaType }) => weigh(mediaType) > json && weigh(mediaType) >= any)
    .toSorted((a, b) => weigh(b.mediaType) - weigh(a.mediaType))[0];
}

/** Whether a body may be sent in this coding, by `Accept-Encoding` (RFC 9110, section 12.5.3). */
export function isCodingAllowed(accept: string | null, coding: string): boolean {
  const weights = readWeights(accept);
  return (weights.get(coding) ?? weights.get("*") ?? 0) > 0;
}

function readWeights(accept: string | null): ReadonlyMap<string, number> {
  return new Map((accept ?? "").split(",").map(readRange));
}

/** Weight 0 for what cannot be read. */
function readRange(range: string): [type: string, weight: number] {
  const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2) ?? "1";
  return [type, /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(weight) ? Number(weight) : 0];
}
