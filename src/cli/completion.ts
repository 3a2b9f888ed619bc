// `readout completion`: a script for a shell that completes commands, options and the names of files. It is made of the
// commands' help, so that it knows what they know.
import type { CommandHelp } from "./support/command-help.ts";
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
  const print = Object.hasOwn(printers, name) ? printers[name] : undefined;
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

function listPathOptions(commands: readonly CommandHelp[]): readonly string[] {
  const options = commands.flatMap((command) => command.options.filter(({ takesPath }) => takesPath));
  return [...new Set(options.map(({ name }) => name))];
}

function printBash(commands: readonly CommandHelp[]): string {
  const names = commands.map(({ name }) => name);
  const cases = commands.map((command) => `    ${command.name}) words="${listArguments(command)}" ;;\n`);
  return `# Completes the commands and options of readout in bash.
_readout() {
  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="${[...names, ...programOptions].join(" ")}"
  else
    case "$before" in
    ${listPathOptions(commands).join("|")})
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return ;;
    esac
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
  case "$words[CURRENT-1]" in
    ${listPathOptions(commands).join("|")}) _files; return ;;
  esac
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

function printFish(commands: readonly CommandHelp[]): string {
  const lines = commands.flatMap((command) => {
    const { name, summary, words, options } = command;
    const inCommand = `complete -c readout -n '__fish_seen_subcommand_from ${name}'`;
    const takesPath = (option: string) => options.some((other) => other.name === option && other.takesPath);
    return [
      `complete -c readout -n __fish_use_subcommand -a ${name} -d '${summary.replaceAll("'", "\\'")}'`,
      ...(words.length === 0 ? [] : [`${inCommand} -a '${words.join(" ")}'`]),
      ...options.map(
        ({ name: option }) => `${inCommand} -l ${option.slice(2)}${takesPath(option) ? " -rF" : ""}`,
      ),
      `${inCommand} -l help`,
    ];
  });
  const own = programOptions.map(
    (option) => `complete -c readout -n __fish_use_subcommand -l ${option.slice(2)}`,
  );
  return `# Completes the commands and options of readout in fish.\n${["complete -c readout -f", ...lines, ...own].join("\n")}\n`;
}
