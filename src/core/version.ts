import manifest from "../../package.json" with { type: "json" };

/** The version of this program, as `package.json` has it. */
export const version: string = manifest.version;
