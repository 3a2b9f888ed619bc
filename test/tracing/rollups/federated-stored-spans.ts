// The spans of `stored-spans.ts` divided over two backends that are read as one. Some documents lie in both.
import { requireAt } from "#src/core/collections.ts";
import type { Span } from "#src/core/rows.ts";
import type { TimeRange } from "#src/core/time.ts";
import { createFederatedSpans } from "#src/federation/federated-spans.ts";
import { createSpanAnalytics } from "#src/tracing/analytics.ts";
import { createStoredSpans, type DocumentCopies, type StoredSpans } from "./stored-spans.ts";

interface PlacedDocument {
  readonly copies: DocumentCopies;
  /** Of the backends. */
  readonly places: readonly number[];
}

/** As `createStoredSpans`, but that no copy falls behind. */
export function createFederatedStoredSpans(wait?: (range?: TimeRange) => Promise<void>): StoredSpans {
  const stores = [createStoredSpans(wait), createStoredSpans(wait)];
  /** What each backend holds, in its own order. */
  const held: PlacedDocument[][] = stores.map(() => []);
  const inBoth = new Set<string>();
  let documents: readonly PlacedDocument[] = [];
  let late: readonly PlacedDocument[] = [];

  const place = (copies: DocumentCopies): PlacedDocument | undefined => {
    const key = formatKey(copies[0]);
    // Documents of one span that differ are told apart within a backend only.
    if (inBoth.has(key)) return undefined;
    const isNew = documents.every((document) => formatKey(document.copies[0]) !== key);
    const number = [...key].reduce((sum, char) => sum + char.charCodeAt(0), 0) % 5;
    if (number < 4 || !isNew) return { copies, places: [number % 2] };
    inBoth.add(key);
    return { copies, places: [0, 1] };
  };
  const hold = (document: PlacedDocument): void => {
    for (const at of document.places) requireAt(held, at).push(document);
  };
  const add = (copies: DocumentCopies): void => {
    const document = place(copies);
    if (document === undefined) return;
    for (const at of document.places) requireAt(stores, at).add(copies);
    hold(document);
    documents = [...documents, document];
  };
  const remove = (number: number): DocumentCopies | undefined => {
    const document = documents[number % Math.max(documents.length, 1)];
    if (document === undefined) return undefined;
    for (const at of document.places) {
      const own = requireAt(held, at).indexOf(document);
      // Its index was removed there.
      if (own < 0) continue;
      requireAt(stores, at).remove(own);
      requireAt(held, at).splice(own, 1);
    }
    documents = documents.filter((other) => other !== document);
    return document.copies;
  };
  const change = ([first, ...others]: DocumentCopies, alter: (span: Span) => Span): DocumentCopies => [
    alter(first),
    ...others.map(alter),
  ];
  const backends = new Map(
    stores.map(({ reader }, at) => [String(at), { ...reader, ...createSpanAnalytics(reader) }] as const),
  );
  return {
    reader: createFederatedSpans({
      listPlaces: (source) => [...backends].map(([backend, store]) => ({ backend, store, source })),
      findStore: (backend) => backends.get(backend),
    }),
    countRead: () => stores.reduce((sum, { countRead }) => sum + countRead(), 0),
    add,
    addLate: (copies) => {
      const document = { copies, places: [0] };
      requireAt(stores, 0).addLate(copies);
      inBoth.add(formatKey(copies[0]));
      late = [...late, document];
    },
    reveal: () => {
      for (const { reveal } of stores) reveal();
      for (const document of late) hold(document);
      documents = [...documents, ...late];
      late = [];
    },
    remove: (number) => void remove(number),
    rollOver: () => {
      for (const { rollOver } of stores) rollOver();
    },
    removeIndex: (number) => {
      const at = number % stores.length;
      const removed = requireAt(stores, at).removeIndex(number);
      const isLeft = ({ copies }: PlacedDocument): boolean => !removed.includes(copies);
      held[at] = requireAt(held, at).filter(isLeft);
      documents = documents.filter((document) => held.some((own) => own.includes(document)));
      late = late.filter(isLeft);
      return removed;
    },
    replace: (number, alter) => {
      const copies = remove(number);
      if (copies !== undefined) add(change(copies, alter));
    },
    addAgain: (number, alter) => {
      const document = documents[number % Math.max(documents.length, 1)];
      if (document !== undefined) add(change(document.copies, alter));
    },
    fallBehind: () => undefined,
    catchUp: () => undefined,
    listSpans: () => documents.flatMap(({ copies }) => copies),
  };
}

/** Only documents with equal keys may be of one span. */
function formatKey({ trace_id, span_id, span_kind, start }: Span): string {
  return `${trace_id} ${span_id} ${span_kind} ${start}`;
}
