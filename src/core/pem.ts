// Certificates in PEM text.
import { X509Certificate } from "node:crypto";

/**
 * The certificates of a text, in its order, also those that OpenSSL would leave out in silence. Throws what it says of the first one
 * that is none, and of a text without any.
 */
export function parseCertificates(text: string): readonly X509Certificate[] {
  const blocks = text
    .split(/^(?=-----BEGIN )/m)
    .filter((block) => /^-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----/.test(block));
  return (blocks.length === 0 ? [text] : blocks).map((block) => new X509Certificate(block));
}
