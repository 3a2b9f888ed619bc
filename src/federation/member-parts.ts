// The counters of which a series is made: one, or those of a histogram or summary. Other values have none.
import type { CounterSamples } from "../metrics/samples.ts";
import type { SampledMember, SeriesMember } from "../store/metrics.ts";

export function listParts(member: SeriesMember): readonly CounterSamples[] {
  if ("samples" in member) return [member.samples];
  if (!("observations" in member)) return [];
  const { count, sum, buckets } = member.observations;
  return [count, sum, ...buckets.map(({ samples }) => samples)];
}

type ChangePart = (part: CounterSamples) => CounterSamples;

export function mapParts(member: SampledMember, change: ChangePart): SampledMember;
export function mapParts(member: SeriesMember, change: ChangePart): SeriesMember;
export function mapParts(member: SeriesMember, change: ChangePart): SeriesMember {
  if ("samples" in member) return { ...member, samples: change(member.samples) };
  if (!("observations" in member)) return member;
  const { count, sum, buckets } = member.observations;
  const parts = buckets.map(({ bound, samples }) => ({ bound, samples: change(samples) }));
  return { ...member, observations: { count: change(count), sum: change(sum), buckets: parts } };
}
