// Parses the one document of a YAML file in parts, each with some entries of its root or of what stands under one key of the
// root, such as `sites`. What the library makes of a file has fifty times its size: a configuration of ten thousand sites would
// need it at once, and hold up all requests while it is parsed.
//
// The library's parser keeps the collection that it is in, with all its entries. Entries that are complete are taken out of it
// and composed as a document of their own; the last part is what the parser has left at the end.
import { Composer, type CST, type Document, Lexer, type LineCounter, Parser, YAMLParseError } from "yaml";

/** Some entries of the root of a file, or of the collection that is the value of one of its keys; in the order of the file. */
interface DocumentPart {
  /** The key; undefined for entries of the root, and for the whole root where it is no map. */
  readonly key: string | undefined;
  readonly document: Document.Parsed;
}

/** How many entries make a part: some milliseconds of work where each is a site. */
const entriesPerPart = 50;

const options = { prettyErrors: false, uniqueKeys: false };

/** Each part comes when it is complete. The last one is of the root, and has the faults of what follows the first document. */
export function* parseInParts(text: string, counter: LineCounter): Generator<DocumentPart> {
  const parser = new Parser(counter.addNewLine);
  const composer = new Composer(options);
  const documents: Document.Parsed[] = [];
  // Directives change what tags mean, so parts cannot be composed without them.
  let isPlain = true;
  const add = (tokens: Iterable<CST.Token>): void => {
    for (const token of tokens) {
      if (["directive", "document"].includes(token.type)) isPlain = false;
      documents.push(...composer.next(token));
    }
  };
  counter.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    add(parser.next(lexeme));
    if (isPlain && hasManyEntries(parser.stack[2])) yield* takeEntries(parser.stack);
  }
  add(parser.end());
  documents.push(...composer.end(true, text.length));
  const [first, second] = documents;
  if (first === undefined) return; // `end` has made one at the latest
  if (second !== undefined) {
    const [from, to] = second.range;
    first.errors.push(new YAMLParseError([from, to], "MULTIPLE_DOCS", ""));
  }
  yield { key: undefined, document: first };
}

/** Asked after each lexeme. The last entry is not complete. */
function hasManyEntries(collection: CST.Token | undefined): boolean {
  return collection !== undefined && "items" in collection && collection.items.length > entriesPerPart;
}

/** Takes out complete entries of the collection that the parser is in. `stack` begins with the outermost. */
function* takeEntries([document, root, inner]: readonly CST.Token[]): Generator<DocumentPart> {
  if (document?.type !== "document" || root?.type !== "block-map") return;
  if (inner?.type !== "block-map" && inner?.type !== "block-seq") return;
  const entry = root.items.at(-1);
  const key = findPlainKey(entry);
  // An alias of the whole would be one of its last entries only.
  if (key === undefined || document.start.some(isProperty) || entry?.sep?.some(isProperty)) return;
  if (root.items.length > 1) yield composePart(undefined, takeFirst(root, root.items.length - 1));
  yield composePart(key, takeFirst(inner, inner.items.length - 1));
}

/** Takes entries out. Both what is taken and what is left begin where the first of their own entries does. */
function takeFirst<T extends CST.BlockMap | CST.BlockSequence>(collection: T, count: number): T {
  const taken = { ...collection, items: collection.items.splice(0, count) };
  const [first] = collection.items;
  collection.offset = first?.start[0]?.offset ?? first?.key?.offset ?? collection.offset;
  return taken;
}

/** The key of an entry whose value is being parsed, where it is plain text. */
function findPlainKey(entry: CST.BlockMap["items"][number] | undefined): string | undefined {
  if (entry?.explicitKey || entry?.key?.type !== "scalar" || entry.value !== undefined) return undefined;
  return entry.key.source;
}

function isProperty({ type }: CST.SourceToken): boolean {
  return type === "anchor" || type === "tag";
}

function composePart(key: string | undefined, entries: CST.BlockMap | CST.BlockSequence): DocumentPart {
  const composer = new Composer(options);
  const token: CST.Document = { type: "document", offset: entries.offset, start: [], value: entries };
  const [document] = [...composer.next(token), ...composer.end()];
  if (document === undefined) throw new Error("no document was composed");
  return { key, document };
}
