// Checks a `.meshrc.yaml` without loading Mesh, so that a file which cannot work is reported when the server starts.
import { z } from "zod";
import { ConfigError } from "../core/errors.ts";
import { explainIssue } from "./validation.ts";
import { readPlainYaml } from "./yaml/yaml.ts";

/** The name of the source that is Readout itself. */
export const ownSource = "telemetry";

/** The least that Mesh needs in order to report by itself what else is wrong. */
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
  const parsed = shape.safeParse(readPlainYaml(text, file), { error: explainIssue });
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    file,
    parsed.error.issues.map(({ path, message }) => ({ path: path.join("."), message })),
  );
}
