// What every store of rollups must do.
import { describe, expect, test } from "vitest";
import type { NewDocument, RollupStore } from "#src/store/rollups.ts";

const signal = new AbortController().signal;

interface RollupSubject {
  /** An empty store. */
  readonly open: () => Promise<RollupStore>;
  /** Returns when what was written is listed. */
  readonly refresh: () => Promise<void>;
}

export function describeRollups(name: string, { open, refresh }: RollupSubject): void {
  const make = (id: string, body: string): NewDocument => ({ id, site: `site of ${id}`, made: 5, body });
  const readBodies = async (store: RollupStore, ids: readonly string[]) =>
    Object.fromEntries((await store.read(ids, signal)).map(({ id, body }) => [id, body]));

  describe(`rollups in ${name}`, () => {
    test("are read as they were created, and stay as they are", async () => {
      const store = await open();
      expect(await readBodies(store, ["a"])).toEqual({});
      const text = `${'€\n\u2028"'.repeat(1_000)}`;
      await store.create([make("a", "1"), make("b", text)], signal);
      await store.create([make("b", "other"), make("c", "3")], signal);
      expect(await readBodies(store, ["a", "b", "c", "d"])).toEqual({ a: "1", b: text, c: "3" });
    });

    test("are replaced only as they were read", async () => {
      const store = await open();
      expect(await store.replace(make("a", "1"), "5 1", signal).catch(() => false)).toBe(false);
      expect(await store.replace(make("a", "1"), undefined, signal)).toBe(true);
      expect(await store.replace(make("a", "2"), undefined, signal)).toBe(false);
      const [first] = await store.read(["a"], signal);
      expect(await store.replace(make("a", "3"), first?.revision, signal)).toBe(true);
      expect(await store.replace(make("a", "4"), first?.revision, signal)).toBe(false);
      expect(await readBodies(store, ["a"])).toEqual({ a: "3" });
    });

    test("let one of several win who replace at the same time", async () => {
      const store = await open();
      await store.create([make("a", "")], signal);
      const [found] = await store.read(["a"], signal);
      const writers = ["1", "2", "3", "4"];
      const won = await Promise.all(
        writers.map((body) => store.replace(make("a", body), found?.revision, signal)),
      );
      expect(won.filter((one) => one)).toHaveLength(1);
      expect(await readBodies(store, ["a"])).toEqual({ a: writers[won.indexOf(true)] });
    });

    test("are listed without bodies, also more than a page of them, until they are removed", async () => {
      const store = await open();
      const ids = Array.from({ length: 2_500 }, (_, n) => `n${n}`);
      await store.create(
        ids.map((id) => make(id, "x")),
        signal,
      );
      await store.remove([...ids.slice(10), "none"], signal);
      await refresh();
      const listed: string[] = [];
      for await (const batch of store.list(signal)) {
        for (const document of batch) listed.push(JSON.stringify(document));
      }
      const expected = ids.slice(0, 10).map((id) => JSON.stringify({ id, site: `site of ${id}`, made: 5 }));
      expect(listed.sort()).toEqual(expected.sort());
    });

    test("lists nothing where nothing is", async () => {
      const store = await open();
      for await (const batch of store.list(signal)) expect(batch).toEqual([]);
    });
  });
}
