// What a client takes of the forms of an answer, by its headers `Accept` and `Accept-Encoding`. A weight of 0 refuses what it
// stands behind.

/**
 * The form of an answer that a client asks for by `Accept` (RFC 9110, section 12.5.1). Undefined is JSON, which everybody
 * gets who does not name another: it wins where it is named and weighs as much; a wildcard gives way to what is named.
 */
export function chooseRepresentation<Form extends { readonly mediaType: string }>(
  accept: string | null,
  offered: readonly Form[],
): Form | undefined {
  const chosen = chooseNamedType(readWeights(accept), [json, ...offered.map(({ mediaType }) => mediaType)]);
  return offered.find(({ mediaType }) => mediaType === chosen);
}

const json = "application/json";
const graphqlTypes = ["application/graphql-response+json", json] as const;

/** The media type of an answer of GraphQL: its own where it is named and JSON does not weigh more. Undefined where neither is taken. */
export function chooseGraphqlType(accept: string | null): (typeof graphqlTypes)[number] | undefined {
  const named = chooseNamedType(readWeights(accept), graphqlTypes);
  return named ?? graphqlTypes.findLast((type) => isMediaTypeAccepted(accept, type));
}

/** Of equal weights the first one offered. Undefined where none is named, or a wildcard weighs more. */
function chooseNamedType<Type extends string>(
  weights: ReadonlyMap<string, number>,
  offered: readonly Type[],
): Type | undefined {
  const weigh = (type: string) => weights.get(type) ?? 0;
  const any = Math.max(weigh("application/*"), weigh("*/*"));
  return offered
    .filter((type) => weigh(type) > 0 && weigh(type) >= any)
    .toSorted((a, b) => weigh(b) - weigh(a))[0];
}

/** Whether a client asks for this form by its name. */
export function isMediaTypeNamed(accept: string | null, mediaType: string): boolean {
  return (readWeights(accept).get(mediaType) ?? 0) > 0;
}

/**
 * Whether a client takes an answer in this form; the range that names it most closely tells. An empty header is as none, and a
 * weight that cannot be read refuses nothing: clients with one would else get no answer at all.
 */
export function isMediaTypeAccepted(accept: string | null, mediaType: `${string}/${string}`): boolean {
  const weights = readWeights(accept?.trim() || "*/*", 1);
  const [kind] = mediaType.split("/", 1);
  return (weights.get(mediaType) ?? weights.get(`${kind}/*`) ?? weights.get("*/*") ?? 0) > 0;
}

/** Whether a client takes an answer that lacks parts: `application/json; partial=allow` in `Accept`. */
export function isPartialAccepted(accept: string | null): boolean {
  return (accept ?? "").split(",").some((range) => {
    const [type, ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
    const isTaken = (readRange(range)[1] ?? 0) > 0;
    const isAllowed = parameters.some((parameter) => /^partial=("?)allow\1$/.test(parameter));
    return type === "application/json" && isAllowed && isTaken;
  });
}

/** Whether a body may be sent in this coding, by `Accept-Encoding` (RFC 9110, section 12.5.3). */
export function isCodingAllowed(accept: string | null, coding: string): boolean {
  const weights = readWeights(accept);
  return (weights.get(coding) ?? weights.get("*") ?? 0) > 0;
}

/**
 * The offered coding that a client likes best, by `Accept-Encoding` (RFC 9110, section 12.5.3); the first of those that it
 * likes as much. Undefined where none is better to it than the plain body. Zstandard has to be named: some decoders of
 * `*` are older than it is.
 */
export function chooseCoding<Name extends string>(
  accept: string,
  offered: readonly Name[],
): { readonly name: Name | undefined; readonly isPlainRefused: boolean } {
  const weights = readWeights(accept);
  const any = weights.get("*");
  const weigh = (name: Name) =>
    weights.get(name) ?? (name === "gzip" ? (weights.get("x-gzip") ?? any) : undefined) ?? 0;
  const plain = weights.get("identity") ?? (any === 0 ? 0 : undefined);
  const [best] = offered
    .filter((name) => weigh(name) > 0 && weigh(name) >= (plain ?? 0))
    .toSorted((a, b) => weigh(b) - weigh(a));
  return { name: best, isPlainRefused: plain === 0 };
}

/** A range whose weight cannot be read has the weight `unreadable`, or is left out. */
function readWeights(accept: string | null, unreadable?: number): ReadonlyMap<string, number> {
  const ranges = (accept ?? "").split(",").map(readRange);
  return new Map(
    ranges.flatMap(([type, weight = unreadable]) => (weight === undefined ? [] : [[type, weight] as const])),
  );
}

/** There are clients that write `.2`, as Java does, or more than three digits. */
function readRange(range: string): readonly [type: string, weight: number | undefined] {
  const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
  const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2) ?? "1";
  return [type, /^(?:0?\.\d+|0\.?|1(?:\.0*)?)$/.test(weight) ? Number(weight) : undefined];
}
