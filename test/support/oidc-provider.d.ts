// The package has no types of its own: as far as it is used here.
declare module "oidc-provider" {
  import type { IncomingMessage, ServerResponse } from "node:http";

  /** Of Koa. */
  interface Context {
    readonly path: string;
    querystring: string;
    body: unknown;
    readonly response: { get(name: string): string | undefined };
    set(name: string, value: string): void;
  }
  interface Grant {
    addOIDCScope(scope: string): void;
    addResourceScope(resource: string, scope: string): void;
    save(): Promise<string>;
  }
  export default class Provider {
    constructor(issuer: string, configuration: Readonly<Record<string, unknown>>);
    readonly Grant: new (of: {
      readonly accountId: string;
      readonly clientId: string;
    }) => Grant;
    use(handle: (context: Context, next: () => Promise<void>) => Promise<void>): void;
    callback(): (request: IncomingMessage, response: ServerResponse) => void;
    interactionFinished(
      request: IncomingMessage,
      response: ServerResponse,
      result: { readonly login: { readonly accountId: string }; readonly consent: object },
    ): Promise<void>;
  }
}

declare module "oidc-provider/lib/adapters/memory_adapter.js" {
  /** `clockTolerance` in seconds. */
  export function createMemoryAdapter(clockTolerance: number): object;
}
