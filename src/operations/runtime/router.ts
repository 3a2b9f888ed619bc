// From a request line to an operation, by the operations' own paths.
import type { Endpoint } from "./operation.ts";

export interface Route {
  readonly endpoint: Endpoint;
  readonly parameters: Readonly<Record<string, string>>;
}

/** Matches raw segments and decodes afterwards, so that a parameter may hold `%2F`. */
export function createRouter(
  operations: readonly Endpoint[],
): (method: string, path: string) => Route | undefined {
  const routes = operations.map((endpoint) => ({ endpoint, pattern: endpoint.path.split("/") }));
  return (method, path) => {
    const segments = path.split("/");
    for (const { endpoint, pattern } of routes) {
      if (endpoint.method !== method || pattern.length !== segments.length) continue;
      const parameters = bindParameters(pattern, segments);
      if (parameters !== undefined) return { endpoint, parameters };
    }
    return undefined;
  };
}

function bindParameters(
  pattern: readonly string[],
  segments: readonly string[],
): Readonly<Record<string, string>> | undefined {
  const parameters: Record<string, string> = {};
  for (const [index, part] of pattern.entries()) {
    const segment = segments[index] ?? "";
    const name = /^\{(.+)\}$/.exec(part)?.[1];
    if (name === undefined) {
      if (part !== segment) return undefined;
      continue;
    }
    if (segment === "") return undefined;
    try {
      parameters[name] = decodeURIComponent(segment);
    } catch {
      return undefined;
    }
  }
  return parameters;
}
