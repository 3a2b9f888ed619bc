// Rollups in memory: what a store of them is, at its shortest.
import type { NewDocument, RollupStore } from "../../../src/store/rollups.ts";

export function createMemoryRollups(): RollupStore {
  const documents = new Map<string, NewDocument & { readonly revision: number }>();
  let revisions = 0;
  const write = (document: NewDocument): void => {
    revisions += 1;
    documents.set(document.id, { ...document, revision: revisions });
  };
  return {
    async read(ids, signal) {
      signal.throwIfAborted();
      return ids.flatMap((id) => {
        const found = documents.get(id);
        return found === undefined ? [] : [{ id, body: found.body, revision: String(found.revision) }];
      });
    },
    async create(created, signal) {
      signal.throwIfAborted();
      for (const document of created) if (!documents.has(document.id)) write(document);
    },
    async replace(document, revision, signal) {
      signal.throwIfAborted();
      const known = documents.get(document.id);
      if ((known === undefined ? undefined : String(known.revision)) !== revision) return false;
      write(document);
      return true;
    },
    async *list(signal) {
      signal.throwIfAborted();
      const all = [...documents.values()].map(({ id, site, made }) => ({ id, site, made }));
      if (all.length > 0) yield all;
    },
    async remove(ids, signal) {
      signal.throwIfAborted();
      for (const id of ids) documents.delete(id);
    },
  };
}
