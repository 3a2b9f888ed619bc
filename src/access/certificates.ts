// Users who are known by their TLS certificates. A certificate is ambient: a browser presents it to whatever page asks for,
// so a request that has no other credential must show that no foreign page has made it.
import type { CertificateEntry } from "../config/edge-settings.ts";
import { fromMillis, type Instant, type Millis } from "../core/time.ts";
import { createScopeCheck, type FindCertificateUser, type PeerCertificate, type Principal } from "./auth.ts";

export function createCertificateUsers(
  entries: readonly CertificateEntry[],
  now: () => Instant,
): FindCertificateUser {
  const users = entries.map(createUser);
  return (certificate) => {
    if (fromMillis(certificate.notAfter) <= now()) return undefined;
    const [found, ...others] = users.filter(({ entry }) => isMeant(entry, certificate));
    // Two users in one certificate would be told apart by the order of the file alone.
    return others.length > 0 ? undefined : found?.findPrincipal(certificate.notAfter);
  };
}

function createUser(entry: CertificateEntry) {
  const { user, sites, scopes, limits } = entry;
  const allowed = sites === "*" ? undefined : new Set(sites);
  const name = entry.san ?? printSubject(entry.subject ?? {});
  const shared = {
    user,
    token: `certificate ${name}`,
    account: JSON.stringify(["certificate", name]),
    maySee: (site: string) => allowed === undefined || allowed.has(site),
    hasScope: createScopeCheck(scopes),
    limits,
  };
  // The same object for each request with a certificate, since what it may see is found out once for each.
  let known: { readonly notAfter: Millis; readonly principal: Principal } | undefined;
  const findPrincipal = (notAfter: Millis): Principal => {
    if (known?.notAfter !== notAfter) {
      known = { notAfter, principal: Object.freeze({ ...shared, expires: fromMillis(notAfter) }) };
    }
    return known.principal;
  };
  return { entry, findPrincipal };
}

function isMeant({ subject, san }: CertificateEntry, certificate: PeerCertificate): boolean {
  if (san !== undefined) return certificate.names.includes(san);
  return subject !== undefined && printSubject(subject) === printSubject(certificate.subject);
}

/** All attributes, sorted by name, so that the order in which a file or a certificate names them makes no difference. */
function printSubject(subject: PeerCertificate["subject"]): string {
  const attributes = Object.keys(subject).sort();
  return attributes
    .flatMap((name) => (subject[name] ?? []).map((value) => `${name}=${JSON.stringify(value)}`))
    .join();
}

/**
 * Whether a request without a token may be one of its certificate's user. Not one that a browser sends for a page of another
 * origin, or to a name that is not this server's, which such a page can choose (DNS rebinding).
 */
export function isCertificateEnough(headers: Pick<Headers, "get">, publicUrl: string | undefined): boolean {
  if (publicUrl === undefined) return false;
  const { origin, host, protocol } = new URL(publicUrl);
  const sent = headers.get("origin");
  const site = headers.get("sec-fetch-site");
  const asked = URL.parse(`${protocol}//${headers.get("host") ?? ""}`);
  return (
    (sent ?? origin).toLowerCase() === origin &&
    (site ?? "same-origin") === "same-origin" &&
    asked?.host === host
  );
}
