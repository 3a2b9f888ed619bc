// The front-end error intake as OpenAPI has it. It is no operation: it takes whatever is sent, on an origin
// that may be another, and answers at once.
import * as z from "zod";
import { describeSchema, type JsonSchema, textField } from "../operations/runtime/json-schema.ts";

const describeTexts = (description: string, example: Readonly<Record<string, string>>) =>
  z
    .record(z.string(), z.string())
    .exactOptional()
    .meta({ description, examples: [example] });

const breadcrumb = z
  .object({
    category: textField("What kind of thing happened.", "navigation"),
    action: textField("What happened.", "opened /checkout"),
    message: textField("More about it.", "").exactOptional(),
    metadata: describeTexts("Further values.", { url: "/checkout" }),
    timestamp: z
      .int()
      .exactOptional()
      .meta({ description: "When.", "x-unit": "s since 1970", examples: [1_769_860_800] }),
  })
  .meta({ id: "Breadcrumb", description: "What happened before an error." });

const report = z
  .object({
    timestamp: z
      .int()
      .meta({ description: "When the error occurred.", "x-unit": "s since 1970", examples: [1_769_860_800] }),
    namespace: textField("Where it occurred.", "frontend"),
    error: z
      .object({
        name: textField("The error's type.", "TypeError"),
        message: textField("What it says.", "x is undefined").exactOptional(),
        backtrace: z
          .array(z.string())
          .exactOptional()
          .meta({ description: "One line each.", examples: [["at pay (checkout.js:12:7)"]] }),
      })
      .meta({ id: "FrontendError", description: "What was thrown." }),
    action: textField("Where it occurred, more closely.", "CheckoutPage").exactOptional(),
    revision: textField("The full revision hash of the application.", "4f1c2a9").exactOptional(),
    tags: describeTexts("To filter by, or for context.", { plan: "pro" }),
    params: describeTexts("What the failing function was given.", { order: "17" }),
    environment: describeTexts("What was set at the time.", { origin: "https://shop.example" }),
    breadcrumbs: z
      .array(breadcrumb)
      .exactOptional()
      .meta({ description: "What happened before, newest first." }),
    language: textField(
      "Formats the backtrace: `ruby`, `javascript`, or empty for others.",
      "javascript",
    ).exactOptional(),
  })
  .meta({ id: "FrontendReport", description: "An error of front-end code." });

/** What stands under `paths`, and the schemas that it refers to. */
export function describeIntake() {
  const definitions = new Map<string, JsonSchema>();
  const schema = describeSchema(report, "input", definitions);
  const describeAnswer = (description: string, body: object) => ({
    description,
    content: { "application/json": { schema: { type: "object" }, example: body } },
  });
  const path = {
    post: {
      operationId: "report_error",
      tags: ["intake"],
      summary: "Take an error report of front-end code",
      description:
        "Answers 200 to any key and any body within the limit, so 200 does not mean that the report was kept. Any Content-Type is read; any origin may send. Where `intake.listen` names an address of its own, this route is there.",
      security: [],
      parameters: [
        {
          name: "api_key",
          in: "query",
          required: true,
          description: "The front-end key of the site.",
          schema: { type: "string" },
          example: "demo-key",
        },
      ],
      requestBody: {
        required: true,
        content: {
          "application/json": {
            schema,
            examples: {
              example_1: {
                value: {
                  timestamp: 1_769_860_800,
                  namespace: "frontend",
                  error: {
                    name: "TypeError",
                    message: "x is undefined",
                    backtrace: ["at pay (checkout.js:12:7)"],
                  },
                  action: "CheckoutPage",
                  tags: { plan: "pro" },
                },
              },
            },
          },
        },
      },
      responses: {
        200: describeAnswer("Taken.", {}),
        413: describeAnswer("The body is larger than 200 KiB.", { error: "Payload too large" }),
      },
    },
  };
  return { path, definitions };
}
