// Reads and checks the configuration file of a command, in the same way for all of them.
import { parseArgs } from "node:util";
import { type Config, parseConfigInSteps } from "../../config/config.ts";
import { type LocatedIssue, locateIssues } from "../../config/yaml/yaml.ts";
import { runSteps, type Steps } from "../../core/async/turns.ts";
import { ConfigError, formatErrorCode, isFileMissing, toErrorMessage } from "../../core/errors.ts";
import { createKindLookup } from "./backend-kinds.ts";
import { exitCodes, printUsageError, type Shell } from "./shell.ts";

interface ConfigFile {
  /** Paths within the configuration are relative to it. */
  readonly file: string;
  readonly config: Config;
}

/** Returns the file of a command whose only option is `--config`, or the exit code after it has printed a fault. */
export function openConfigFile(
  command: string,
  usage: string,
  args: readonly string[],
  shell: Shell,
): ConfigFile | number {
  let file: string;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { config: { type: "string", default: "readout.yaml" } },
    });
    file = values.config;
  } catch (error) {
    return printUsageError(`${command}: ${toErrorMessage(error)}`, usage, shell);
  }
  try {
    return { file, config: readConfig(file, shell) };
  } catch (error) {
    return printConfigError(error, file, shell);
  }
}

/** Prints the issues of the file and returns the exit code. Throws any other error. */
export function printConfigError(error: unknown, file: string, shell: Shell): number {
  if (!(error instanceof ConfigError)) throw error;
  const { length } = error.issues;
  shell.err(`${error.message}\n${length > 1 ? `\n${length} problems in ${file}\n` : ""}`);
  return exitCodes.failed;
}

/** @throws {ConfigError} all issues at once; that the file cannot be read is one */
export function readConfig(file: string, shell: Shell): Config {
  return runSteps(readConfigInSteps(file, shell));
}

/** As `readConfig`, for a program that has other work. */
export function* readConfigInSteps(file: string, shell: Shell): Steps<Config> {
  const context = { ...shell, kinds: createKindLookup(file, shell) };
  const text = readConfigText(file, shell, "; `readout init` writes one, and --config names another");
  return yield* parseConfigInSteps(text, file, context);
}

/** Faults that only the use of a configuration shows, with their lines as far as its file is as before. */
export function* createLateConfigError(
  file: string,
  issues: readonly LocatedIssue[],
  shell: Shell,
): Steps<ConfigError> {
  try {
    return new ConfigError(file, yield* locateIssues(issues, shell.readText(file), file));
  } catch {
    return new ConfigError(
      file,
      issues.map(({ path, message }) => ({ path: path.join("."), message })),
    );
  }
}

/** `advice` is for a file that is missing. @throws {ConfigError} */
export function readConfigText(file: string, shell: Shell, advice = ""): string {
  try {
    return shell.readText(file);
  } catch (error) {
    const message = `cannot be read${formatErrorCode(error)}${isFileMissing(error) ? advice : ""}`;
    throw new ConfigError(file, [{ path: "", message }]);
  }
}
