// `listen` with a certificate, and users by certificates: what is wrong with them is said where it stands.
import { expect, test } from "vitest";
import { pem, readPem } from "../support/tls.ts";
import { listIssues, parse } from "./fixture.ts";

const top = "backends: {}\nsites: { shop: {} }\n";
const files: Readonly<Record<string, string>> = {
  "cert.pem": readPem(pem.server.cert),
  "key.pem": readPem(pem.server.key),
  "other.key": readPem(pem.client.key),
  "ca.pem": readPem(pem.clientsCa),
  "text.pem": "no certificate",
  "weak.pem": readPem(pem.weak.cert),
  "weak.key": readPem(pem.weak.key),
  "chain.pem": readPem(pem.server.cert) + readPem(pem.clientsCa),
  "turned.pem": readPem(pem.clientsCa) + readPem(pem.server.cert),
  "both.pem": readPem(pem.server.key) + readPem(pem.server.cert),
  "broken.pem": `${readPem(pem.server.cert)}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`,
  "cut.pem": `${readPem(pem.server.cert)}-----BEGIN CERTIFICATE-----\nAAAA\n`,
};
const readText = (path: string) => {
  const text = files[path.split("/").at(-1) ?? ""];
  if (text === undefined) throw Object.assign(new Error("no such file"), { code: "ENOENT" });
  return text;
};

test("an address alone is as it was, and beside a certificate it is the same", () => {
  const plain = parse(`${top}listen: 127.0.0.1:9000`, { readText });
  const tls = parse(`${top}listen: { address: "127.0.0.1:9000", cert: cert.pem, key: key.pem }`, {
    readText,
  });
  expect([plain.listen, plain.tls]).toEqual([{ host: "127.0.0.1", port: 9000 }, undefined]);
  expect([tls.listen, tls.tls]).toEqual([
    plain.listen,
    { cert: files["cert.pem"], key: files["key.pem"], clientCa: undefined },
  ]);
});

test.each([
  ["cert: none.pem, key: key.pem", /listen\.cert: cannot be used \(ENOENT\)/],
  ["cert: text.pem, key: key.pem", /listen\.cert: cannot be used/],
  ["cert: cert.pem, key: text.pem", /listen\.key: cannot be used/],
  ["cert: cert.pem, key: other.key", /listen\.key: is not the key of the certificate/],
  ["cert: both.pem, key: other.key", /^3 listen\.key: is not the key of the certificate$/],
  ["cert: weak.pem, key: weak.key", /^3 listen\.cert: cannot be used \(ERR_SSL_EE_KEY_TOO_SMALL\)$/],
  [
    "cert: turned.pem, key: key.pem",
    /^3 listen\.cert: certificate 2 is that of the key: it has to be the first$/,
  ],
  ["cert: broken.pem, key: key.pem", /^3 listen\.cert: cannot be used \(ERR_OSSL_ASN1_WRONG_TAG\)$/],
  ["cert: cut.pem, key: key.pem", /^3 listen\.cert: cannot be used \(ERR_OSSL_PEM_BAD_END_LINE\)$/],
  ["cert: cert.pem, key: key.pem, client_ca: broken.pem", /^3 listen\.client_ca: cannot be used \(ERR_OSSL/],
  ["cert: cert.pem, key: key.pem, client_ca: cut.pem", /^3 listen\.client_ca: cannot be used \(ERR_OSSL/],
  ["cert: cert.pem", /listen\.key: is missing/],
  ["cert: cert.pem, key: key.pem, client_ca: text.pem", /listen\.client_ca: cannot be used/],
])("listen with %s", (keys, message) => {
  const issues = listIssues(`${top}listen: { address: "127.0.0.1:9000", ${keys} }`, { readText }).join("\n");
  expect(issues).toMatch(message);
  expect(issues).not.toContain("PRIVATE KEY");
});

test.each(["cert: chain.pem, key: key.pem, client_ca: chain.pem", "cert: both.pem, key: both.pem"])(
  "takes %s",
  (keys) => {
    expect(listIssues(`${top}listen: { address: "127.0.0.1:9000", ${keys} }`, { readText })).toEqual([]);
  },
);

const withTls = `${top}public_url: https://a.example.com\nlisten: { address: "127.0.0.1:9000", cert: cert.pem, key: key.pem, client_ca: ca.pem }\n`;

test.each([
  [withTls, "subject: { CN: ana }", /name each attribute of the subject/],
  [withTls, "subject: { O: Acme, CN: ana }, san: URI:x", /name one of `subject` and `san`/],
  [withTls, "san: ana", /expected URI:…, DNS:… or email:…/],
  [withTls, "san: URI:x, sites: [none]", /sites\.0: unknown site "none"/],
  [top, "san: URI:x", /needs listen\.client_ca/],
  [top, "san: URI:x", /needs public_url/],
])("a user by a certificate: %#", (text, keys, message) => {
  const sites = keys.includes("sites") ? "" : ", sites: [shop]";
  const issues = listIssues(`${text}auth: { certificates: [{ user: ana, ${keys}${sites} }] }`, { readText });
  expect(issues.join("\n")).toMatch(message);
});

test.each([
  ["san: URI:x", "san: URI:x", "san"],
  ["subject: { O: Acme, CN: ana }", "subject: { CN: ana, O: Acme }", "subject"],
  ["subject: { O: Acme, CN: ana }", "subject: { CN: [ana], O: [Acme] }", "subject"],
])("two users by one certificate: %s", (first, second, key) => {
  const users = [first, "san: URI:y", second].map((keys, n) => `{ user: u${n}, ${keys}, sites: [shop] }`);
  const issues = listIssues(`${withTls}auth: { certificates: [${users.join(", ")}] }`, { readText });
  expect(issues).toEqual([
    expect.stringMatching(
      new RegExp(String.raw`auth\.certificates\.2\.${key}: is the same as auth\.certificates\.0\.${key}$`),
    ),
  ]);
});

test("the values of a repeated attribute are a list", () => {
  const subject = "{ O: Acme, OU: [ops, shop], CN: ana }";
  const text = `${withTls}auth: { certificates: [{ user: ana, subject: ${subject}, sites: [shop] }] }`;
  expect(parse(text, { readText }).certificates?.[0]?.subject).toEqual({
    O: ["Acme"],
    OU: ["ops", "shop"],
    CN: ["ana"],
  });
});
