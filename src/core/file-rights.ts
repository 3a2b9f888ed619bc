// What this process may do with files, tried without a change to any.
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { isFileMissing } from "./errors.ts";

/**
 * Throws what the system throws where a file, with the folders above it that are missing, may not be made. Whether a file that
 * exists may be written is another question.
 */
export async function requireCreatableFile(path: string): Promise<void> {
  const folder = dirname(path);
  // With the slash it must be a folder.
  const found = await stat(`${folder}/`).catch((error: unknown) => {
    if (!isFileMissing(error) || folder === path) throw error;
  });
  if (found === undefined) return requireCreatableFile(folder);
  await access(folder, constants.W_OK | constants.X_OK);
}
