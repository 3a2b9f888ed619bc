// What of `.meshrc.yaml` can be checked without Mesh: enough to say at start that GraphQL will not work.
import { z } from "zod";
import { ConfigError } from "../core/errors.ts";
import { readPlainYaml } from "./yaml.ts";

/** The source that is this program. */
export const ownSource = "telemetry";

/** What has to be right for Mesh to say itself what else is wrong. */
const shape = z.looseObject({
  sources: z
    .array(z.looseObject({ name: z.string(), handler: z.record(z.string(), z.unknown()) }))
    .refine(
      (sources) => sources.some(({ name }) => name === ownSource),
      `expected a source named ${ownSource}`,
    ),
});
type Meshrc = z.output<typeof shape>;

/** @throws {ConfigError} */
export function parseMeshrc(text: string, file: string): Meshrc {
  const parsed = shape.safeParse(readPlainYaml(text, file));
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    file,
    parsed.error.issues.map(({ path, message }) => ({ path: path.join("."), message })),
  );
}
