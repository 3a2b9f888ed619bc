// Log lines in files of a folder. Each line of a file is a JSON object: id, time, severity, message, hostname, group, json.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** @import { BackendFactory, LogLine, LogSource, LogStore } from "readout/backend" */
/** @type {BackendFactory<{ readonly folder: string }>} */
export default ({ BackendError, Refused, compareLines, compileMatcher, parseInstant, parseSeverity }) => ({
  kind: "ndjson",

  parseConfig(settings) {
    const { folder, ...others } = /** @type {Record<string, unknown>} */ (settings);
    if (typeof folder !== "string") throw new Error("folder: expected the path of a folder");
    if (Object.keys(others).length > 0) throw new Error(`unknown keys: ${Object.keys(others).join(", ")}`);
    return { folder };
  },

  create(name, { folder }) {
    /** @type {(source: LogSource) => LogLine[]} */
    const read = ({ id: source_id, index }) => {
      try {
        const texts = readFileSync(join(folder, index), "utf8").split("\n").filter(Boolean);
        return texts.map((text) => {
          const { time, severity, json = "{}", ...line } = JSON.parse(text);
          return { ...line, source_id, time: parseInstant(time), severity: parseSeverity(severity), json };
        });
      } catch (error) {
        const { code, message } = /** @type {NodeJS.ErrnoException} */ (error);
        throw new BackendError(name, code ? "unreachable" : "malformed", message);
      }
    };

    /** @type {LogStore["lines"]} */
    async function* lines({ sources, range, moments, filter, order, documentLimit, tieLimit }, signal) {
      signal.throwIfAborted();
      const inRange = sources
        .flatMap(read)
        .filter(({ time }) => time >= range.from && time <= range.to)
        .filter(({ time }) => moments?.some((moment) => moment === time - (time % 1_000_000n)) ?? true)
        .sort(order === "asc" ? compareLines : (a, b) => compareLines(b, a));
      const matches = compileMatcher(filter);
      const batches = Map.groupBy(
        inRange.slice(0, documentLimit).filter(matches),
        ({ time }) => time / 1_000_000n,
      );
      for (const batch of batches.values()) {
        signal.throwIfAborted();
        if (batch.length > tieLimit) throw tooLarge(tieLimit);
        yield batch;
      }
      if (inRange.length > documentLimit) throw tooLarge(documentLimit);
    }
    const tooLarge = (/** @type {number} */ limit) =>
      new Refused("result_too_large", `More than ${limit} lines`, { limit });

    return {
      name,
      kind: "ndjson",
      stores: { logs: { lines } },
      probe: async () => {
        try {
          return { product: "ndjson", version: `${readdirSync(folder).length} files` };
        } catch (error) {
          throw new BackendError(name, "unreachable", /** @type {Error} */ (error).message);
        }
      },
      inspections: {
        // This store cannot separate tenants within a file, so a source with `where` must not be served.
        logs: async (source) => {
          const newest = read(source).sort(compareLines).at(-1)?.time;
          const fault = source.tenantFilter && "where: this backend has none; use one file for each site";
          const problems = fault ? [fault] : [];
          const found = { layout: "ndjson", indices: 1, newest, limitations: [], problems };
          return fault ? { ...found, tenantFilterFault: fault } : found;
        },
      },
      close: async () => {},
    };
  },
});
