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

interface OptionHelp {
  /** With its dashes: `--config`. */
  readonly name: string;
  /** Whether its value is the path of a file or folder. */
  readonly takesPath: boolean;
}

/** One option, or several of one kind, such as `--from, --to TIME`. */
const optionsPattern = /((?:--[a-z][a-z-]*, )*--[a-z][a-z-]*)(?: (?!-)([^\s\]|]+))?/g;

/** Reads the words and options off the help of a command. */
export function parseCommandHelp(name: string, summary: string, usage: string): CommandHelp {
  const options = new Map<string, OptionHelp>();
  for (const [, names = "", value = ""] of usage.matchAll(optionsPattern)) {
    const isPath = /^(?:FILE|PATH|FOLDER)$|\.yaml$/.test(value);
    for (const option of names.split(", ")) {
      const takesPath = isPath || options.get(option)?.takesPath === true;
      options.set(option, { name: option, takesPath });
    }
  }
  const calls = [...usage.matchAll(new RegExp(`readout ${name} ([a-z|]+)(?![^\\s|])`, "g"))];
  const words = calls.flatMap(([, alternatives = ""]) => alternatives.split("|"));
  return { name, summary, usage, words: [...new Set(words)], options: [...options.values()] };
}
