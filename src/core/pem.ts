// Certificates in PEM text.
import { X509Certificate } from "node:crypto";

const certificate =
  /-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[^-]*-----END (?:TRUSTED |X509 )?CERTIFICATE-----/g;

/** The certificates of a text, in its order. @throws {Error} where there is none, or one that cannot be read */
export function parseCertificates(text: string): readonly X509Certificate[] {
  const blocks = text.match(certificate) ?? [];
  if (blocks.length === 0) throw new Error("has no certificate");
  return blocks.map((block) => new X509Certificate(block));
}
