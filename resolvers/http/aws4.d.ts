// What is used of the package, which has no types of its own.
declare module "aws4" {
  interface SignableRequest {
    readonly method: string;
    readonly host: string;
    /** With its query. */
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly service: string;
    readonly region: string;
    readonly extraHeadersToIgnore?: Readonly<Record<string, boolean>>;
  }
  interface Credentials {
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly sessionToken?: string | undefined;
  }
  /** Puts the headers of the signature into those of the request. */
  export function sign<Request extends SignableRequest>(
    request: Request,
    credentials: Credentials,
  ): { readonly headers: Record<string, string> };
  const aws4: { readonly sign: typeof sign };
  export default aws4;
}
