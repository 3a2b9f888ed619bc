// The OpenAPI 3.1 document, built from the operations: what REST takes and answers, in the words of their schemas.
import { isDeepStrictEqual } from "node:util";
import { version } from "../core/version.ts";
import { describeIntake } from "../intake/openapi.ts";
import { slugSchemas } from "../operations/runtime/error-response.ts";
import { explanationSchema, explanationType } from "../operations/runtime/explain.ts";
import {
  type DescribedOperation,
  describeOperations,
  describeSchema,
  type JsonSchema,
} from "../operations/runtime/json-schema.ts";
import type { Endpoint } from "../operations/runtime/operation.ts";

type Json = Readonly<Record<string, unknown>>;

const introduction = `Reads logs, traces, metrics and Kubernetes data of the sites that a token may see.

Bodies are JSON of at most 1 MiB, whatever their Content-Type. \`null\` means absent, and unknown keys are ignored. \
Times are ISO 8601 with a zone and at most nine fraction digits; answers are in UTC. Answers are exact or they are \
errors: a source that answers in part, too late or not at all is a 500, which is worth a retry. Every other error is \
final, but for 429.`;

/** @throws {Error} two different schemas under one name, which is a mistake of ours */
export function buildOpenApi(endpoints: readonly Endpoint[]): Json {
  const { operations, inputs, outputs } = describeOperations(endpoints);
  const schemas = new Map<string, JsonSchema>();
  for (const [name, schema] of [...inputs, ...outputs]) {
    const known = schemas.get(name);
    if (known !== undefined && !isDeepStrictEqual(known, schema)) {
      throw new Error(`the schema ${name} differs between requests and answers`);
    }
    schemas.set(name, schema);
  }
  const intake = describeIntake();
  for (const [name, schema] of intake.definitions) schemas.set(name, schema);
  const paths: Record<string, Json> = {};
  for (const operation of operations) {
    const { path, method } = operation.endpoint;
    const { examples = [], ...request } = resolveReference(operation.request, inputs);
    if (method === "POST") schemas.set(formatRequestName(operation.endpoint), request);
    paths[path] = {
      ...paths[path],
      [method.toLowerCase()]: describeOperation(operation, request, examples),
    };
  }
  paths["/errors"] = toPublicSchema(intake.path);
  return {
    openapi: "3.1.1",
    info: {
      title: "Readout",
      summary: "The monitoring data read API (V2)",
      version: version,
      description: introduction,
    },
    servers: [{ url: "/", description: "This server." }],
    tags: [...new Set([...endpoints.map(deriveTag), "intake"])].map((name) => ({ name })),
    security: [{ bearer: [] }, { token: [] }],
    paths,
    components: {
      schemas: {
        ...toPublicSchema(Object.fromEntries(schemas)),
        Explanation: toPublicSchema(describeSchema(explanationSchema, "output", new Map())),
        ...buildErrorSchemas(),
      },
      responses: errorResponses,
      headers,
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          description: "A personal API token. The header wins over the query parameter.",
        },
        token: {
          type: "apiKey",
          in: "query",
          name: "token",
          description: "The same token, for clients that cannot set a header.",
        },
      },
    },
  };
}

function describeOperation(
  { endpoint, answer }: DescribedOperation,
  request: JsonSchema,
  examples: readonly unknown[],
): Json {
  const {
    name,
    access,
    summary,
    description,
    deprecation,
    method,
    isExplainable: explains,
    canBePartial,
    mediaType = "application/json",
  } = endpoint;
  const told = [description, deprecation?.instead].filter(Boolean).join("\n\n");
  const asked =
    method === "GET"
      ? { parameters: buildParameters(request) }
      : {
          ...(explains ? { parameters: [explainParameter] } : {}),
          requestBody: {
            required: true,
            content: {
              "application/json": {
                schema: { $ref: `#/components/schemas/${formatRequestName(endpoint)}` },
                examples: Object.fromEntries(examples.map((value, at) => [`example_${at + 1}`, { value }])),
              },
            },
          },
        };
  const error = (name: keyof typeof errorResponses) => ({ $ref: `#/components/responses/${name}` });
  return {
    operationId: name.replaceAll(".", "_"),
    tags: [deriveTag(endpoint)],
    summary,
    ...(told === "" ? {} : { description: told }),
    ...(deprecation === undefined ? {} : { deprecated: true }),
    ...(access === "public" ? { security: [] } : {}),
    ...asked,
    responses: {
      200: {
        description: "The whole answer.",
        headers: {
          "X-Request-Id": { $ref: "#/components/headers/X-Request-Id" },
          ...(deprecation === undefined ? {} : deprecationHeaders),
          ...(canBePartial && {
            "X-Readout-Missing": { $ref: "#/components/headers/X-Readout-Missing" },
          }),
        },
        content: {
          [mediaType]: { schema: toPublicSchema(answer) },
          ...Object.fromEntries(
            endpoint.representations.map(({ mediaType, answer }) => [
              mediaType,
              { schema: toPublicSchema(describeSchema(answer, "output", new Map())) },
            ]),
          ),
          ...(explains
            ? { [explanationRange]: { schema: { $ref: "#/components/schemas/Explanation" } } }
            : {}),
        },
      },
      ...(access === "public" ? {} : { 401: error("Unauthorized") }),
      404: error("NotFound"),
      406: error("NotAcceptable"),
      422: error("Unprocessable"),
      429: error("TooMany"),
      500: error("Failed"),
    },
  };
}

/**
 * What explanations are, as a range: clients that know two types of JSON of one answer tell them apart by the whole header
 * (oapi-codegen), which has a charset, and would find no rows in it.
 */
const explanationRange = "application/*";

const explainParameter = {
  name: "explain",
  in: "query",
  description: `\`true\` answers how the request is answered instead of its rows: what it means, each request to a source, what was read and kept, and how long it took. Such an answer has a media type of its own, \`${explanationType}\`, whatever \`Accept\` says.`,
  schema: { type: "boolean", default: false },
};

function buildParameters({ properties = {} }: JsonSchema): readonly Json[] {
  return Object.entries(properties).map(([name, { description, examples = [], ...schema }]) => ({
    name,
    in: "path",
    required: true,
    description,
    schema: toPublicSchema(schema),
    ...(examples.length === 0 ? {} : { example: examples[0] }),
  }));
}

/** `logs.lines` stands under `logs`. */
function deriveTag({ name }: Endpoint): string {
  return name.split(".", 1)[0] ?? name;
}

/** `logs.lines` takes a `LogsLinesRequest`. Some generators get bodies wrong that are alike and have no names. */
function formatRequestName({ name }: Endpoint): string {
  return `${name.replace(/(?:^|[._])(\w)/g, (_, letter: string) => letter.toUpperCase())}Request`;
}

function resolveReference(schema: JsonSchema, definitions: ReadonlyMap<string, JsonSchema>): JsonSchema {
  const name = schema.$ref?.replace("#/$defs/", "");
  return (name === undefined ? undefined : definitions.get(name)) ?? schema;
}

/** References as the document has them; what we answer today does not bind what we answer tomorrow to no more. */
function toPublicSchema<T extends object>(node: T): T;
function toPublicSchema(node: unknown): unknown {
  if (Array.isArray(node))
    return node.map((one) => (typeof one === "object" && one !== null ? toPublicSchema(one) : one));
  if (typeof node !== "object" || node === null) return node;
  return Object.fromEntries(
    Object.entries(node).flatMap(([key, value]) => {
      if (key === "additionalProperties" && value === false) return [];
      if (key === "examples" || key === "enum") return [[key, value]];
      if (key === "anyOf" && isChoice(value)) return [["oneOf", toPublicSchema(value)]];
      if (key === "$ref") return [[key, String(value).replace("#/$defs/", "#/components/schemas/")]];
      return [[key, typeof value === "object" && value !== null ? toPublicSchema(value) : value]];
    }),
  );
}

/**
 * Not just "or null". Of our choices exactly one ever fits, a text or an object, and of an `anyOf` some generators keep the
 * object alone: their clients would send `{}` for a text.
 */
function isChoice(value: unknown): value is readonly JsonSchema[] {
  return Array.isArray(value) && !value.some(({ type }: JsonSchema) => type === "null");
}

// ---- Errors -------------------------------------------------------------------------------------------------

const headers = {
  "X-Request-Id": {
    description: "The client's own where it can stand in a log, else a new one. The server's log has it.",
    schema: { type: "string", examples: ["6f0c4b0e-7c51-4a6e-9c55-0a3f5d0f4f6b"] },
  },
  "X-Readout-Missing": {
    description:
      "Labels of failed backends whose data the answer lacks. Only for a client that accepts `application/json; partial=allow`, where the site allows it.",
    schema: { type: "string", examples: ["eu"] },
  },
  "Retry-After": {
    description: "Seconds to wait before the next try.",
    schema: { type: "integer", minimum: 1, examples: [1] },
  },
  "RateLimit-Limit": {
    description:
      "How many requests the token may make within the seconds of `w` in `RateLimit-Policy`, or have under way at once.",
    schema: { type: "integer", minimum: 1, examples: [1_000] },
  },
  "RateLimit-Remaining": {
    description: "How many of those are left.",
    schema: { type: "integer", minimum: 0, examples: [0] },
  },
  "RateLimit-Reset": {
    description: "As `Retry-After`.",
    schema: { type: "integer", minimum: 1, examples: [1] },
  },
  "RateLimit-Policy": {
    description: "The name of the limit, and what it allows.",
    schema: { type: "string", examples: ['"rate";q=1000;w=10'] },
  },
};

/** An envelope for each slug, because the slug fixes the shape of its details. */
function buildErrorSchemas(): Json {
  const envelopes = Object.entries(slugSchemas).map(([slug, { when, details }]) => [
    `Error_${slug}`,
    {
      type: "object",
      description: when,
      required: ["error", "message", "details"],
      properties: {
        error: { type: "string", const: slug, description: "What clients branch on.", examples: [slug] },
        message: { type: "string", description: "For people; safe to display.", examples: [when] },
        details: {
          description: "What the slug says they are.",
          ...toPublicSchema(describeSchema(details, "output", new Map())),
        },
      },
    },
  ]);
  return {
    Error: {
      type: "object",
      description: "An error without details.",
      required: ["error"],
      properties: { error: { type: "string", description: "One sentence.", examples: ["Not found"] } },
    },
    Unprocessable: {
      description: "Why a request was refused for good.",
      oneOf: Object.keys(slugSchemas).map((slug) => ({ $ref: `#/components/schemas/Error_${slug}` })),
      discriminator: {
        propertyName: "error",
        mapping: Object.fromEntries(
          Object.keys(slugSchemas).map((slug) => [slug, `#/components/schemas/Error_${slug}`]),
        ),
      },
    },
    ...Object.fromEntries(envelopes),
  };
}

const deprecationHeaders = {
  Deprecation: {
    description: "Since when this is on its way out (RFC 9745).",
    schema: { type: "string", examples: ["@1798761600"] },
  },
  Sunset: {
    description: "From when on it may be missing (RFC 8594).",
    schema: { type: "string", examples: ["Thu, 01 Jul 2027 00:00:00 GMT"] },
  },
};

const retryAfter = { "Retry-After": { $ref: "#/components/headers/Retry-After" } };

const rateLimit = Object.fromEntries(
  ["Limit", "Remaining", "Reset", "Policy"].map((name) => [
    `RateLimit-${name}`,
    { $ref: `#/components/headers/RateLimit-${name}` },
  ]),
);

function buildErrorResponse(description: string, error: string, extra: Json = {}): Json {
  return {
    description,
    content: {
      "application/json": { schema: { $ref: "#/components/schemas/Error" }, example: { error } },
    },
    ...extra,
  };
}

const errorResponses = {
  Unauthorized: buildErrorResponse("The token is missing, unknown or expired.", "Unauthorized"),
  NotFound: buildErrorResponse(
    "No such resource, or a site that does not exist or that the token may not see.",
    "Not found",
  ),
  NotAcceptable: buildErrorResponse(
    "`Accept-Encoding` refuses the plain answer and each coding that is offered.",
    "Not acceptable",
  ),
  Unprocessable: {
    description: "The request was understood and is refused for good.",
    content: { "application/json": { schema: { $ref: "#/components/schemas/Unprocessable" } } },
  },
  TooMany: buildErrorResponse("The token asks too often, or has too much under way.", "Too many requests", {
    headers: { ...retryAfter, ...rateLimit },
  }),
  Failed: buildErrorResponse(
    "A source is down, slow, overloaded, or answers in part. Worth a retry.",
    "A data source did not answer in time",
    { headers: retryAfter },
  ),
};
