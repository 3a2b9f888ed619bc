// `readout completion`: a script for a shell that completes commands, options and the names of files. It is made of the
// commands' help, so that it knows what they know.
import { readOwn } from "../core/collections.ts";
import type { CommandHelp, OptionHelp } from "./support/command-help.ts";
import { exitCodes, printUsageError, type Shell } from "./support/shell.ts";

export const usage = `Usage: readout completion bash|zsh|fish

Prints a script that completes commands and options. For each new shell:

  bash  readout completion bash > ~/.local/share/bash-completion/completions/readout
  zsh   readout completion zsh > "\${fpath[1]}/_readout"
  fish  readout completion fish > ~/.config/fish/completions/readout.fish
`;

const printers: Readonly<Record<string, (commands: readonly CommandHelp[]) => string>> = {
  bash: printBash,
  zsh: printZsh,
  fish: printFish,
};

/** Prints the script. Exit code 2 for a shell that it does not know. */
export async function run([name = "", ...rest]: readonly string[], shell: Shell): Promise<number> {
  const print = readOwn(printers, name);
  if (print === undefined || rest.length > 0) {
    const known = Object.keys(printers).join(", ");
    return printUsageError(`completion: expected one of ${known}`, usage, shell);
  }
  shell.out(print(await shell.readHelp()));
  return exitCodes.done;
}

const programOptions = ["--version", "--help"];

/** What may follow the command, before anything of it is typed. */
function listArguments({ words, options }: CommandHelp): string {
  return [...words, ...options.map(({ name }) => name), "--help"].join(" ");
}

/**
 * The cases of a shell's `case`, in which what follows an option with a value is completed: a path, one of a list, or nothing, as
 * nobody knows the value. An option means the same to each command that has it.
 */
function printValueCases(
  commands: readonly CommandHelp[],
  printPath: string,
  printChoices: (values: string) => string,
): string {
  const options = commands.flatMap((command) => command.options);
  const valued = options.filter(({ value }) => value !== "none");
  const byCompletion = Map.groupBy(valued, ({ value }) => {
    if (value === "path") return printPath;
    return typeof value === "string" ? "return" : printChoices(value.join(" "));
  });
  return [...byCompletion]
    .map(
      ([completion, of]) => `    ${[...new Set(of.map(({ name }) => name))].join("|")}) ${completion} ;;\n`,
    )
    .join("");
}

const bashPath = `compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return`;
const bashChoices = (values: string) => `mapfile -t COMPREPLY < <(compgen -W "${values}" -- "$word"); return`;

function printBash(commands: readonly CommandHelp[]): string {
  const names = commands.map(({ name }) => name);
  const cases = commands.map((command) => `    ${command.name}) words="${listArguments(command)}" ;;\n`);
  return `# Completes the commands and options of readout in bash.
_readout() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" words=""
  # bash parts \`--config=file\` at the sign, and replaces what is after it.
  if [ "$word" = "=" ]; then
    word=""
  elif [ "$before" = "=" ]; then
    before="\${COMP_WORDS[COMP_CWORD-2]}"
  fi
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${[...names, ...programOptions].join(" ")}"
  else
    case "$before" in
${printValueCases(commands, bashPath, bashChoices)}    esac
    case "\${COMP_WORDS[1]}" in
${cases.join("")}    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _readout readout
`;
}

function printZsh(commands: readonly CommandHelp[]): string {
  const described = commands.map(({ name, summary }) => `    '${name}:${quoteZsh(summary)}'\n`);
  const cases = commands.map((command) => `    ${command.name}) compadd -- ${listArguments(command)} ;;\n`);
  return `#compdef readout
# Completes the commands and options of readout in zsh.
_readout() {
  local -a commands=(
${described.join("")}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    compadd -- ${programOptions.join(" ")}
    return
  fi
  local before="$words[CURRENT-1]"
  if [[ "$words[CURRENT]" == --*=* ]]; then
    before="\${words[CURRENT]%%=*}"
    compset -P '*='
  fi
  case "$before" in
${printValueCases(commands, "_files; return", (values) => `compadd -- ${values}; return`)}  esac
  case "$words[2]" in
${cases.join("")}  esac
}
if [ "$funcstack[1]" = _readout ]; then _readout "$@"; else compdef _readout readout; fi
`;
}

/** A single quote ends the text of \`_describe\`, and a colon its first half. */
function quoteZsh(text: string): string {
  return text.replaceAll("'", "'\\''").replaceAll(":", "\\:");
}

/** What follows an option: a path, one of a list, a text that nobody knows (\`-x\`), or nothing. */
function printFishValue(value: OptionHelp["value"]): string {
  if (typeof value !== "string") return ` -xa '${value.join(" ")}'`;
  return { path: " -rF", text: " -x", none: "" }[value];
}

function printFish(commands: readonly CommandHelp[]): string {
  const lines = commands.flatMap((command) => {
    const { name, summary, words, options } = command;
    const inCommand = `complete -c readout -n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c readout -n __fish_use_subcommand -a ${name} -d '${summary.replaceAll("'", "\\'")}'`,
      ...(words.length === 0 ? [] : [`${inCommand} -a '${words.join(" ")}'`]),
      ...options.map(
        ({ name: option, value }) => `${inCommand} -l ${option.slice(2)}${printFishValue(value)}`,
      ),
      `${inCommand} -l help`,
    ];
  });
  const own = programOptions.map(
    (option) => `complete -c readout -n __fish_use_subcommand -l ${option.slice(2)}`,
  );
  return `# Completes the commands and options of readout in fish.\n${["complete -c readout -f", ...lines, ...own].join("\n")}\n`;
}
