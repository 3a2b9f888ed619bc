// Kinds of backends outside of the program: modules that a configuration names as `kind`.
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { z } from "zod";
import { toErrorMessage } from "../src/core/errors.ts";
import type { BackendKind } from "../src/store/backend.ts";
import { type BackendFactory, backendToolkit } from "./backend-toolkit.ts";

type FindFault = NonNullable<BackendKind<unknown>["findTenantFilterFault"]>;

const kindSchema = z.looseObject({
  parseConfig: z.custom<BackendKind<unknown>["parseConfig"]>((value) => typeof value === "function"),
  create: z.custom<BackendKind<unknown>["create"]>((value) => typeof value === "function"),
  findTenantFilterFault: z.custom<FindFault>((value) => typeof value === "function").optional(),
});

/** By the path of the module: a kind is made once, however often the configuration is read. */
const made = new Map<string, BackendKind<unknown>>();

/**
 * Loads the kind that a module exports. A path begins with `.` or `/` and is relative to the configuration file; anything else
 * is a package that is installed beside that file or above it. Returns undefined where there is no such module.
 * @throws {Error} what the module throws, or that it exports no kind
 */
export function loadOwnKind(module: string, file: string): BackendKind<unknown> | undefined {
  const require = createRequire(resolve(file));
  let path: string;
  try {
    path = require.resolve(module);
  } catch {
    return undefined;
  }
  // The name of a module of Node's own, such as `http`.
  if (!path.startsWith("/") && !/^[A-Z]:/i.test(path)) return undefined;
  const kind = made.get(path) ?? makeKind(module, require(path));
  made.set(path, kind);
  return kind;
}

function makeKind(module: string, exported: unknown): BackendKind<unknown> {
  const { default: factory } = z
    .object({ default: z.unknown() })
    .catch({ default: undefined })
    .parse(exported);
  if (typeof factory !== "function") throw new Error("its default export is no function");
  const { data, success } = kindSchema.safeParse((factory as BackendFactory)(backendToolkit));
  if (!success)
    throw new Error(
      "its function returns no backend kind: parseConfig and create are functions of one, and findTenantFilterFault where it has one",
    );
  const parseConfig = (value: unknown): unknown => {
    try {
      return data.parseConfig(value);
    } catch (error) {
      throw new z.ZodError(readIssues(error));
    }
  };
  const { findTenantFilterFault: findFault, ...others } = data;
  const kind = { ...others, kind: module, parseConfig };
  return findFault === undefined ? kind : { ...kind, findTenantFilterFault: reportThrown(findFault) };
}

/** What is thrown is a fault as well. */
function reportThrown(findFault: FindFault): FindFault {
  return (where) => {
    try {
      const fault: unknown = findFault(where);
      return typeof fault === "string" ? fault : undefined;
    } catch (error) {
      return toErrorMessage(error);
    }
  };
}

const issueSchema = z.object({ path: z.array(z.union([z.string(), z.number()])), message: z.string() });
const issuesSchema = z.object({ issues: z.array(issueSchema).min(1) });

/** Any version of zod, and any error with such issues, tells what is wrong with the settings; else its message does. */
function readIssues(error: unknown): z.core.$ZodIssue[] {
  const { issues } = issuesSchema
    .catch({ issues: [{ path: [], message: toErrorMessage(error) }] })
    .parse(error);
  return issues.map(({ path, message }) => ({ code: "custom", path, message, input: undefined }));
}
