// What the help of a command says, as data: for the completions of shells and the manual page.

export interface CommandHelp {
  readonly name: string;
  /** What it does: a verb and its object. */
  readonly summary: string;
  /** The help itself. */
  readonly usage: string;
  /** What may stand as its first argument: `new` of `token new`. */
  readonly words: readonly string[];
  /** In the order of the help, each once. */
  readonly options: readonly OptionHelp[];
}

export interface OptionHelp {
  /** With its dashes: `--config`. */
  readonly name: string;
  /** Its value: the path of a file or folder, one of a list, any other text; none of a switch. */
  readonly value: "path" | "text" | "none" | readonly string[];
}

/** One option, or several of one kind, such as `--from, --to TIME`. */
const optionsPattern = /((?:--[a-z][a-z-]*, )*--[a-z][a-z-]*)(?: (?!-)([^\s\]|]+))?/g;

/** Reads the words and options off the help of a command, which does not list the values of each option. */
export function parseCommandHelp(
  name: string,
  summary: string,
  usage: string,
  choices: Readonly<Record<string, readonly string[]>> = {},
): CommandHelp {
  const options = new Map<string, OptionHelp>();
  for (const [, names = "", value = ""] of usage.matchAll(optionsPattern)) {
    const kind = value === "" ? "none" : /^(?:FILE|PATH|FOLDER)$|\.yaml$/.test(value) ? "path" : "text";
    for (const option of names.split(", ")) {
      // The help may name an option twice, once with its default and once with what it is.
      const known = options.get(option)?.value;
      const told = known === "path" || (known === "text" && kind === "none") ? known : kind;
      options.set(option, { name: option, value: choices[option] ?? told });
    }
  }
  const calls = [...usage.matchAll(new RegExp(`readout ${name} ([a-z|]+)(?![^\\s|])`, "g"))];
  const words = calls.flatMap(([, alternatives = ""]) => alternatives.split("|"));
  return { name, summary, usage, words: [...new Set(words)], options: [...options.values()] };
}
