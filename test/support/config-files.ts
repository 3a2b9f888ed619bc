// Configurations in files, for the tests of one file.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { hashToken } from "#src/access/auth.ts";

/** A folder for the tests of a file; `configure` writes a configuration into it and returns its path. */
export function useConfigFolder() {
  let folder = "";
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "readout-"));
  });
  afterAll(() => rm(folder, { recursive: true }));
  let files = 0;
  const configure = async (text: string): Promise<string> => {
    files += 1;
    const file = join(folder, `${files}.yaml`);
    await writeFile(file, text);
    return file;
  };
  return {
    configure,
    get folder() {
      return folder;
    },
  };
}

/** A backend where no server listens. */
export const dead = '{ kind: elastic, url: "http://127.0.0.1:9" }';

/** A site with one source of log lines, and a token `t` for it. */
export const site = (backend: string, source: string): string => `
listen: 127.0.0.1:0
tokens:
  - { user: ana, sha256: "${hashToken("t")}", sites: "*" }
backends:
  one: ${backend}
sites:
  shop: { logs: { backend: one, sources: { app: ${source} } } }
`;
