// Reads a YAML file as plain values, substitutes environment variables and files, and says at which line an issue stands.
// Messages quote neither what was substituted nor a file that is no YAML: either may be a password.

import { dirname, isAbsolute, join } from "node:path";
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type ParsedNode,
  parseDocument,
  type YAMLError,
  type YAMLMap,
  type YAMLSeq,
} from "yaml";
import type { Steps } from "../../core/async/turns.ts";
import { readOwn } from "../../core/collections.ts";
import { ConfigError, formatErrorCode, type Issue } from "../../core/errors.ts";
import { parseInParts } from "./document-parts.ts";

export interface InterpolationContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Reads a file named by `${file:…}`. The path is relative to the working directory or absolute. Throws. */
  readonly readText: (path: string) => string;
}

/** Turns a path that stands in `file` into one that is relative to the working directory, or absolute. */
export function resolveBeside(file: string, path: string): string {
  return isAbsolute(path) ? path : join(dirname(file), path);
}

export type Path = readonly string[];
export type LocatedIssue = { readonly path: Path; readonly message: string; readonly line?: number };

type Lines = ReadonlyMap<string, number>;

export interface YamlTree {
  readonly value: unknown;
  /** Returns the line of each path, by `formatPathKey`. */
  readonly findLines: () => Steps<Lines>;
  /** The text as written of each value with a substitution, also a failed one; by `formatPathKey`. */
  readonly templates: ReadonlyMap<string, string>;
  /** Every text that was substituted. */
  readonly secrets: ReadonlySet<string>;
  readonly issues: readonly LocatedIssue[];
}

// Nested aliases can make a tree of any size out of a small file, so what they add is bounded, and the depth of all.
const maxAliasedNodes = 50_000;
const maxDepth = 40;

/** Reads a file of another program without any substitution. @throws {ConfigError} when the text is no YAML */
export function readPlainYaml(text: string, file: string): unknown {
  const counter = new LineCounter();
  const document = parseDocument(text, { lineCounter: counter, prettyErrors: false });
  if (document.errors.length === 0) return toPlainValue(document, file);
  throw new ConfigError(
    file,
    document.errors.map(({ code, pos }) => ({
      path: "",
      line: counter.linePos(pos[0]).line,
      message: yamlMessages[code] ?? "is not YAML",
    })),
  );
}

function toPlainValue(document: Document.Parsed, file: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    // The parser finds out about aliases only here.
    if (!(error instanceof ReferenceError)) throw error;
    const message = error.message.startsWith("Excessive") ? tooManyValues : missingAnchor;
    throw new ConfigError(file, [{ path: "", message }]);
  }
}

/**
 * Reads a file, a step for each part of it.
 *
 * @throws {ConfigError} when the text is no YAML, so that its content cannot be checked
 */
export function* readYamlTree(text: string, file: string, context: InterpolationContext): Steps<YamlTree> {
  const reading = beginReading(file, context);
  reading.issues.push(...listUndecodedLines(text));
  const value = yield* readParts(reading, text);
  const { templates, secrets, issues } = reading;
  return { value, findLines: () => findLines(text, file), templates, secrets, issues };
}

/** With what is not UTF-8, a value would be another than its writer sees. */
function listUndecodedLines(text: string): readonly LocatedIssue[] {
  if (!isUndecoded(text)) return [];
  return text
    .split("\n")
    .flatMap((line, index) =>
      isUndecoded(line)
        ? [{ path: [], line: index + 1, message: "a character that cannot be read: save the file as UTF-8" }]
        : [],
    );
}

/** Whether a file has bytes that are not UTF-8: they are read as lone surrogates, which no UTF-8 holds. */
function isUndecoded(text: string): boolean {
  return !text.isWellFormed();
}

/** Reads the file once more, without substitutions: only a file with a fault needs its lines. */
function* findLines(text: string, file: string): Steps<Lines> {
  const lines = new Map<string, number>();
  yield* readParts({ ...beginReading(file), lines }, text);
  return lines;
}

type Collection = Record<string, unknown> | unknown[];

/** One reading of a file: what it needs, and what it collects. */
interface Reading {
  readonly file: string;
  /** Absent: nothing is substituted. */
  readonly context: InterpolationContext | undefined;
  readonly counter: LineCounter;
  /** Absent: they are not wanted. */
  readonly lines?: Map<string, number>;
  readonly templates: Map<string, string>;
  readonly secrets: Set<string>;
  readonly issues: LocatedIssue[];
  /** The root as far as it is read, and by its key each value of it: more parts may follow. */
  readonly begun: Map<string | undefined, Collection>;
  /** The newest node of each anchor. */
  readonly anchors: Map<string, ParsedNode>;
  /** What each alias stands for: its anchor may have another node later. */
  readonly aliases: Map<Alias.Parsed, ParsedNode | undefined>;
  /** The aliases that the node being read is behind. */
  openAliases: number;
  /** How many nodes behind aliases were read, each as often as it was. */
  aliasedNodes: number;
}

function beginReading(file: string, context?: InterpolationContext): Reading {
  return {
    file,
    context,
    counter: new LineCounter(),
    templates: new Map(),
    secrets: new Set(),
    issues: [],
    begun: new Map(),
    anchors: new Map(),
    aliases: new Map(),
    openAliases: 0,
    aliasedNodes: 0,
  };
}

/** Returns the value of the root. @throws {ConfigError} when the text is no YAML */
function* readParts(reading: Reading, text: string): Steps<unknown> {
  const { file, counter, issues } = reading;
  const faults = new Map<string, LocatedIssue>(); // one broken line may bring a thousand equal errors
  let isYaml = true;
  let root: unknown = null;
  for (const { key, document } of parseInParts(text, counter)) {
    for (const error of [...document.errors, ...document.warnings]) {
      const [position] = error.pos;
      const line = counter.linePos(position).line;
      const isReference = text.startsWith("${", position - 1);
      const message = isReference ? unquotedReference : (yamlMessages[error.code] ?? "is not YAML");
      faults.set(`${line} ${message}`, { path: [], line, message });
    }
    isYaml &&= document.errors.length === 0;
    if (isYaml && key === undefined) root = readNode(reading, document.contents, []);
    if (isYaml && key !== undefined) readEntries(reading, key, document.contents);
    yield;
  }
  if (!isYaml) throw new ConfigError(file, dropFollowing([...faults.values()]).map(toIssue));
  issues.unshift(...faults.values());
  return root;
}

/** What the parser says behind a brace that it takes for a map's is wrong of lines that are right. */
function dropFollowing(faults: readonly LocatedIssue[]): readonly LocatedIssue[] {
  const first = faults.findIndex(({ message }) => message === unquotedReference);
  return faults.filter(({ message }, at) => first === -1 || at < first || message === unquotedReference);
}

/** Reads entries of the value of a key of the root, but for the last ones. */
function readEntries(reading: Reading, key: string, entries: ParsedNode | null): void {
  const root = reading.begun.get(undefined) ?? {};
  // A wrong key is reported where its own entry is read; its value is not read.
  if (findKeyProblem(key) === undefined && !Object.hasOwn(root, key)) readCollection(reading, entries, [key]);
}

/** @throws {ConfigError} when there are too many nodes, or they are nested too deeply */
function readNode(reading: Reading, node: ParsedNode | null, path: Path): unknown {
  if (reading.openAliases > 0) reading.aliasedNodes += 1;
  if (reading.aliasedNodes > maxAliasedNodes || path.length > maxDepth) {
    const line = node === null ? 1 : findLine(reading, node);
    const issue = { path, line, message: tooManyValues };
    throw new ConfigError(reading.file, [toIssue(issue)]);
  }
  if (node === null) return null;
  keepFirstLine(reading, path, node);
  if (isAlias(node)) return readAlias(reading, node, path);
  keepAnchor(reading, node);
  return isScalar(node) ? readScalar(reading, node.value, path) : readCollection(reading, node, path);
}

function readCollection(reading: Reading, node: ParsedNode | null, path: Path): Collection | null {
  const mayBegin = path.length < 2;
  const begun = mayBegin ? reading.begun.get(path[0]) : undefined;
  let value: Collection;
  if (isSeq<ParsedNode>(node)) value = readList(reading, node, path, Array.isArray(begun) ? begun : []);
  else if (isMap<ParsedNode, ParsedNode | null>(node))
    value = readMap(reading, node, path, begun === undefined || Array.isArray(begun) ? {} : begun);
  else return null;
  if (mayBegin) reading.begun.set(path[0], value);
  return value;
}

function findLine({ counter }: Reading, { range }: ParsedNode): number {
  return counter.linePos(range[0]).line;
}

function keepFirstLine(reading: Reading, path: Path, node: ParsedNode): void {
  const { lines } = reading;
  const key = lines && formatPathKey(path);
  if (key !== undefined && !lines?.has(key)) lines?.set(key, findLine(reading, node));
}

function keepAnchor({ anchors }: Reading, node: Exclude<ParsedNode, Alias.Parsed>): void {
  if (node.anchor !== undefined) anchors.set(node.anchor, node);
}

function readAlias(reading: Reading, alias: Alias.Parsed, path: Path): unknown {
  const { aliases, anchors } = reading;
  if (!aliases.has(alias)) aliases.set(alias, anchors.get(alias.source));
  const target = aliases.get(alias);
  if (target !== undefined) {
    reading.openAliases += 1;
    const value = readNode(reading, target, path);
    reading.openAliases -= 1;
    return value;
  }
  reading.issues.push({ path, line: findLine(reading, alias), message: missingAnchor });
  reading.templates.set(formatPathKey(path), `*${alias.source}`);
  return null;
}

/** Adds the items to those of earlier parts. */
function readList(reading: Reading, { items }: YAMLSeq<ParsedNode>, path: Path, list: unknown[]): Collection {
  for (const item of items) list.push(readNode(reading, item, [...path, String(list.length)]));
  return list;
}

/** Adds the entries to those of earlier parts. */
function readMap(
  reading: Reading,
  map: YAMLMap<ParsedNode, ParsedNode | null>,
  path: Path,
  value: Record<string, unknown>,
): Collection {
  for (const { key, value: child } of map.items) {
    const name = isScalar(key) ? (key.source ?? String(key.value)) : undefined;
    const line = findLine(reading, key);
    const wrong = findKeyProblem(name);
    if (name === undefined || wrong !== undefined) {
      const message = wrong ?? forbiddenKey;
      reading.issues.push({ path: name === undefined ? path : [...path, name], message, line });
      continue;
    }
    const childPath = [...path, name];
    keepFirstLine(reading, childPath, key);
    if (!isAlias(key)) keepAnchor(reading, key);
    if (Object.hasOwn(value, name)) {
      reading.issues.push({ path: childPath, message: duplicateKey, line });
    } else value[name] = readNode(reading, child, childPath);
  }
  return value;
}

const forbiddenKey = "this key is not allowed";

function findKeyProblem(name: string | undefined): string | undefined {
  if (name === "<<") return "merge keys are not supported: write the keys out";
  return name === undefined || name === "__proto__" ? forbiddenKey : undefined;
}

function readScalar(reading: Reading, value: unknown, path: Path): unknown {
  const { file, context } = reading;
  if (typeof value !== "string" || !value.includes("${") || context === undefined) return value;
  const { result, put, problems } = substitute(value, file, context);
  for (const message of problems) reading.issues.push({ path, message });
  if (put.length > 0 || problems.length > 0) reading.templates.set(formatPathKey(path), value);
  for (const secret of put) reading.secrets.add(secret);
  return result;
}

const duplicateKey = "duplicate key";

const tooManyValues = "too many or too deeply nested values";

const missingAnchor =
  "an alias (*name) needs an anchor (&name) before it; text that begins with * needs quotes";

const unquotedReference = `inside { } and [ ], a value with \${…} needs quotes`;

// Our own words, because the parser's messages quote the file, and the file may hold a password.
const yamlMessages: Partial<Record<YAMLError["code"], string>> = {
  BAD_ALIAS: missingAnchor,
  BAD_DQ_ESCAPE: "unknown escape in double quotes; single quotes take a backslash as it is",
  BAD_INDENT: "wrong indentation",
  BAD_SCALAR_START: "a value that begins with this character needs quotes",
  BLOCK_AS_IMPLICIT_KEY: "two colons in one line: a value that holds a colon and a space needs quotes",
  BLOCK_IN_FLOW: "a block value inside { } or [ ]",
  DUPLICATE_KEY: duplicateKey,
  MISSING_CHAR: "something is not closed or separated: a quote, a bracket, a comma or a colon is missing",
  MULTILINE_IMPLICIT_KEY: "a key runs over several lines: a colon is missing or the indentation is wrong",
  MULTIPLE_DOCS: "more than one document (---) in the file",
  RESOURCE_EXHAUSTION: "too deeply nested",
  TAB_AS_INDENT: "a tab in the indentation: YAML takes spaces only",
  TAG_RESOLVE_FAILED: "tags (!name) are not supported; text that begins with ! needs quotes",
};

/** Substitutes environment variables and files. `put` is what was substituted, `problems` what is missing. */
function substitute(
  text: string,
  file: string,
  { env, readText }: InterpolationContext,
): { readonly result: string; readonly put: readonly string[]; readonly problems: readonly string[] } {
  const put: string[] = [];
  const problems: string[] = [];
  const lookUp = (reference: string): string => {
    if (/^file:./s.test(reference)) {
      const path = reference.slice("file:".length);
      try {
        const content = readText(resolveBeside(file, path)).replace(/\r?\n$/, "");
        if (content === "") problems.push(`the file ${path} is empty`);
        if (isUndecoded(content)) problems.push(`the file ${path} is not UTF-8`);
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
    const value = readOwn(env, reference);
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

/** Quotes a value in a message as the file has it, so that what was substituted is not repeated. */
export function quoteAsWritten(tree: YamlTree, path: Path, value: string): string {
  return JSON.stringify(tree.templates.get(formatPathKey(path)) ?? value);
}

/** Returns the issues of a file that was read before, by line. @throws {ConfigError} when it is no YAML any more */
export function* locateIssues(
  issues: readonly LocatedIssue[],
  text: string,
  file: string,
): Steps<readonly (Issue & { readonly line?: number })[]> {
  return sortInFileOrder(issues, yield* findLines(text, file));
}

/** Returns the issues by line. An issue has the line of its path, or of the nearest path above that has one. */
export function sortInFileOrder(
  issues: readonly LocatedIssue[],
  lines: Lines,
): readonly (Issue & { readonly line?: number })[] {
  const lineOf = (path: Path): number => {
    for (let length = path.length; length > 0; length -= 1) {
      const line = lines.get(formatPathKey(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return 1;
  };
  return issues
    .map((issue) => ({ ...issue, line: issue.line ?? lineOf(issue.path) }))
    .toSorted((a, b) => a.line - b.line)
    .map(toIssue);
}

function toIssue({ path, message, line }: LocatedIssue): Issue & { readonly line?: number } {
  return { path: path.join("."), message, ...(line !== undefined && { line }) };
}

export function formatPathKey(path: Path): string {
  return path.join("\0");
}
