// YAML as plain values that know their line, with environment variables and files already put in. Nothing that was
// put in is ever quoted in a message, nor is the file where it is no YAML: either may be a password.
import { dirname, isAbsolute, join } from "node:path";
import {
  Document,
  isAlias,
  isCollection,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parseDocument,
  visit,
  type YAMLError,
} from "yaml";
import { ConfigError, formatErrorCode, type Issue } from "../core/errors.ts";

export interface InterpolationContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Reads a file named by `${file:…}`. The path is relative to the working directory or absolute. Throws. */
  readonly readText: (path: string) => string;
}

/** A path that the configuration file names, as seen from the working directory. */
export function resolveBeside(file: string, path: string): string {
  return isAbsolute(path) ? path : join(dirname(file), path);
}

export type Path = readonly string[];
type LocatedIssue = { readonly path: Path; readonly message: string; readonly line?: number };

export interface YamlTree {
  readonly value: unknown;
  /** Where each path stands in the file, by `formatPathKey`. */
  readonly lines: ReadonlyMap<string, number>;
  /** The text as written of each value that something was, or could not be, put into, by `formatPathKey`. */
  readonly templates: ReadonlyMap<string, string>;
  /** Everything that was put in. */
  readonly secrets: ReadonlySet<string>;
  readonly issues: readonly LocatedIssue[];
}

// Aliases make a tree larger than its file, without end if they are nested: both ends of that are bounded.
const maxNodes = 50_000;
const maxDepth = 40;

/** The values of a file that is not ours, as it stands. @throws {ConfigError} when the text is no YAML */
export function readPlainYaml(text: string, file: string): unknown {
  const counter = new LineCounter();
  const document = parseDocument(text, { lineCounter: counter, prettyErrors: false });
  if (document.errors.length === 0) return document.toJS({ maxAliasCount: 100 });
  throw new ConfigError(
    file,
    document.errors.map(({ code, pos }) => ({
      path: "",
      line: counter.linePos(pos[0]).line,
      message: yamlMessages[code] ?? "is not YAML",
    })),
  );
}

/** @throws {ConfigError} when the text is no YAML, so that nothing can be said of its content */
export function readYamlTree(text: string, file: string, world: InterpolationContext): YamlTree {
  const counter = new LineCounter();
  const document = parseDocument(text, { lineCounter: counter, prettyErrors: false, uniqueKeys: false });
  const lineAt = (offset: number): number => counter.linePos(offset).line;
  const faults = new Map<string, LocatedIssue>(); // one broken line may bring a thousand equal errors
  for (const error of [...document.errors, ...document.warnings]) {
    const [line, message] = [lineAt(error.pos[0]), yamlMessages[error.code] ?? "is not YAML"];
    faults.set(`${line} ${message}`, { path: [], line, message });
  }
  const issues: LocatedIssue[] = [...faults.values()];
  if (document.errors.length > 0) throw new ConfigError(file, issues.map(printIssue));
  const lines = new Map<string, number>();
  const templates = new Map<string, string>();
  const secrets = new Set<string>();
  let nodes = 0;

  const read = (node: ParsedNode | null, path: Path): unknown => {
    nodes += 1;
    if (nodes > maxNodes || path.length > maxDepth) {
      const line = lineAt(node?.range[0] ?? 0);
      throw new ConfigError(file, [
        printIssue({ path, line, message: "too many or too deeply nested values" }),
      ]);
    }
    if (node === null) return null;
    if (!lines.has(formatPathKey(path))) lines.set(formatPathKey(path), lineAt(node.range[0]));
    if (isAlias(node)) {
      const target = node.resolve(document as Document) as ParsedNode | undefined;
      if (target !== undefined) return read(target, path);
      issues.push({ path, line: lineAt(node.range[0]), message: missingAnchor });
      templates.set(formatPathKey(path), `*${node.source}`);
      return null;
    }
    if (isSeq<ParsedNode>(node)) return node.items.map((item, index) => read(item, [...path, String(index)]));
    if (isMap<ParsedNode, ParsedNode | null>(node)) {
      const value: Record<string, unknown> = {};
      for (const { key, value: child } of node.items) {
        const name = isScalar(key) ? (key.source ?? String(key.value)) : undefined;
        const line = key.range === undefined ? undefined : lineAt(key.range[0]);
        if (name === undefined || name === "__proto__" || name === "<<") {
          const message =
            name === "<<" ? "merge keys are not supported: write the keys out" : "this key is not allowed";
          issues.push({ path: name === undefined ? path : [...path, name], message, ...(line && { line }) });
          continue;
        }
        const childPath = [...path, name];
        if (line !== undefined && !lines.has(formatPathKey(childPath)))
          lines.set(formatPathKey(childPath), line);
        if (Object.hasOwn(value, name)) {
          issues.push({ path: childPath, message: "this key stands here twice", ...(line && { line }) });
        } else value[name] = read(child, childPath);
      }
      return value;
    }
    if (typeof node.value !== "string" || !node.value.includes("${")) return node.value;
    const { result, put, problems } = substitute(node.value, file, world);
    for (const message of problems) issues.push({ path, message });
    if (put.length > 0 || problems.length > 0) templates.set(formatPathKey(path), node.value);
    for (const secret of put) secrets.add(secret);
    return result;
  };
  const value = read(document.contents, []);
  return { value, lines, templates, secrets, issues };
}

const missingAnchor =
  "an alias (*name) needs an anchor (&name) before it; text that begins with * needs quotes";

// Our own words, because the parser's messages quote the file, and the file may hold a password.
const yamlMessages: Partial<Record<YAMLError["code"], string>> = {
  BAD_ALIAS: missingAnchor,
  BAD_DQ_ESCAPE: "unknown escape in double quotes; single quotes take a backslash as it is",
  BAD_INDENT: "wrong indentation",
  BAD_SCALAR_START: "a value that begins with this character needs quotes",
  BLOCK_AS_IMPLICIT_KEY: "two colons in one line: a value that holds a colon and a space needs quotes",
  BLOCK_IN_FLOW: "a block value inside { } or [ ]",
  MISSING_CHAR: "something is not closed or separated: a quote, a bracket, a comma or a colon is missing",
  MULTILINE_IMPLICIT_KEY: "a key runs over several lines: a colon is missing or the indentation is wrong",
  MULTIPLE_DOCS: "more than one document (---) in the file",
  RESOURCE_EXHAUSTION: "too deeply nested",
  TAB_AS_INDENT: "a tab in the indentation: YAML takes spaces only",
  TAG_RESOLVE_FAILED: "tags (!name) are not supported; text that begins with ! needs quotes",
};

/** Puts environment variables and files into a text. `put` is what was put in, `problems` what is missing. */
function substitute(
  text: string,
  file: string,
  { env, readText }: InterpolationContext,
): { readonly result: string; readonly put: readonly string[]; readonly problems: readonly string[] } {
  const put: string[] = [];
  const problems: string[] = [];
  const lookUp = (reference: string): string => {
    if (reference.startsWith("file:")) {
      const path = reference.slice("file:".length);
      try {
        const content = readText(resolveBeside(file, path)).replace(/\r?\n$/, "");
        if (content === "") problems.push(`the file ${path} is empty`);
        return content;
      } catch (error) {
        problems.push(`the file ${path} cannot be read${formatErrorCode(error)}`);
        return "";
      }
    }
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(reference)) {
      problems.push(`\${${reference}} is neither \${NAME} nor \${file:PATH}; a literal \${ is written $\${`);
      return "";
    }
    const value = Object.hasOwn(env, reference) ? env[reference] : undefined;
    if (value === undefined) problems.push(`the environment variable ${reference} is not set`);
    if (value === "") problems.push(`the environment variable ${reference} is empty`);
    return value ?? "";
  };
  const result = text.replace(
    /\$\$\{|\$\{([^}]*)(\}?)/g,
    (whole, reference: string | undefined, end: string) => {
      if (reference === undefined) return "${";
      if (end === "") {
        problems.push(`\${ without }; a literal \${ is written $\${`);
        return whole;
      }
      const value = lookUp(reference);
      if (value !== "") put.push(value);
      return value;
    },
  );
  return { result, put, problems };
}

/** A value for a message: as written in the file, so that what was put in is not repeated. */
export function quoteAsWritten(tree: YamlTree, path: Path, value: string): string {
  return JSON.stringify(tree.templates.get(formatPathKey(path)) ?? value);
}

/** Issues as `ConfigError` takes them, each with the line of its path or of what is nearest above it. */
export function sortInFileOrder(
  issues: readonly LocatedIssue[],
  tree: YamlTree,
): readonly (Issue & { readonly line?: number })[] {
  const lineOf = (path: Path): number => {
    for (let length = path.length; length > 0; length -= 1) {
      const line = tree.lines.get(formatPathKey(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return 1;
  };
  return issues
    .map((issue) => ({ ...issue, line: issue.line ?? lineOf(issue.path) }))
    .toSorted((a, b) => a.line - b.line)
    .map(printIssue);
}

function printIssue({ path, message, line }: LocatedIssue): Issue & { readonly line?: number } {
  return { path: path.join("."), message, ...(line !== undefined && { line }) };
}

export function formatPathKey(path: Path): string {
  return path.join("\0");
}

/** A text as a value of the file: in quotes, so that it stays a text, and with nothing in it to be put in. */
export function printText(text: string): string {
  return JSON.stringify(text.replaceAll("${", () => "$${"));
}

/** A value as YAML for people; what stands under one of the `flow` keys is on one line, as JSON. */
export function printYaml(value: unknown, flow: ReadonlySet<string>): string {
  // One value that stands at two places is told at both: people read this, and know no anchors.
  const document = new Document(value, { aliasDuplicateObjects: false });
  visit(document, {
    Pair(_, { key, value: node }) {
      if (!isScalar(key) || !flow.has(String(key.value)) || !isCollection(node)) return undefined;
      node.flow = true;
      visit(node, {
        Scalar(_, scalar) {
          if (typeof scalar.value === "string") scalar.type = "QUOTE_DOUBLE";
        },
      });
      return visit.SKIP;
    },
  });
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}
