// A search server whose data outlive a run of the benchmark, because filling it takes long: outside of the
// checkout. What a step of the run gave is kept too until all have ended, so that a run that was cut goes on.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServerName, start } from "../../test/servers/servers.ts";

interface KeptState {
  /** Milliseconds. */
  readonly dayBegins: number;
  readonly results: Record<string, unknown>;
}

export interface KeptServer {
  readonly url: string;
  readonly dayBegins: number;
  /** Runs a step, or returns what it gave in a run before, which has to be JSON. */
  readonly run: <Result>(step: string, make: () => Promise<Result>) => Promise<Result>;
  /** Forgets the results of all steps but one, whose effects are in the data. */
  readonly finish: (kept: string) => void;
  readonly stop: () => Promise<void>;
}

interface KeptOptions {
  readonly server: ServerName;
  /** Of the data: others begin with an empty folder. */
  readonly name: string;
  /** Where the data are new, or too old for the retention of a site. */
  readonly dayBegins: number;
  /** Whether anything is kept. */
  readonly isKept: boolean;
}

const maxAge = 20 * 24 * 3_600_000;
/** It outlives a start of the machine, and the account that a server runs as may enter it. */
export const keptFolder = "/var/tmp/readout-bench";

export async function openKeptServer({ server, name, dayBegins, isKept }: KeptOptions): Promise<KeptServer> {
  const folder = join(keptFolder, `${server}-${name}`);
  const file = join(folder, "state.json");
  const state = (isKept ? readState(file, dayBegins) : undefined) ?? { dayBegins, results: {} };
  const save = (): void => {
    if (isKept) writeFileSync(file, `${JSON.stringify(state, null, 2)}\n`);
  };
  if (isKept) {
    if (Object.keys(state.results).length === 0) rmSync(folder, { recursive: true, force: true });
    mkdirSync(join(folder, "data"), { recursive: true });
  }
  const running = await start(server, undefined, isKept ? { data: join(folder, "data") } : {});
  return {
    url: running.url,
    dayBegins: state.dayBegins,
    run: async <Result>(step: string, make: () => Promise<Result>) => {
      // A step of one name always gives one type.
      if (step in state.results) return state.results[step] as Result;
      const result = await make();
      state.results[step] = result ?? null;
      save();
      return result;
    },
    finish: (kept) => {
      for (const step of Object.keys(state.results)) if (step !== kept) delete state.results[step];
      save();
    },
    stop: running.stop,
  };
}

/** Undefined where there is none, or it is of data that are too old. */
function readState(file: string, dayBegins: number): KeptState | undefined {
  if (!existsSync(file)) return undefined;
  const state: KeptState = JSON.parse(readFileSync(file, "utf8"));
  return dayBegins - state.dayBegins > maxAge ? undefined : state;
}
