// Whose figures are kept: every setting by which the cluster may know the user makes another view.
import { describe, expect, test } from "vitest";
import { elastic } from "#resolvers/elastic/elastic.ts";
import { describeView } from "../../../resolvers/elastic/view.ts";
import { testIO } from "../../support/io.ts";
import { pem, readPem } from "../../support/tls.ts";

type Config = ReturnType<typeof elastic.parseConfig>;
type Auth = NonNullable<Config["auth"]>;
type KeysOfEach<Union> = Union extends unknown ? keyof Union : never;
/** Two values of a setting, and of what lies beside it. */
type Pair = readonly [object, object];

const url = "http://es.internal";
const describeSettings = (settings: object): string => {
  const { auth, headers, tls } = elastic.parseConfig({ url, ...settings });
  const certificate = tls?.cert === undefined ? undefined : readPem(tls.cert);
  return describeView({ auth, headers, certificate }, undefined);
};

const basic = { username: "a", password: "p" };
const oauth2 = { token_url: "https://id.internal/a", client_id: "a", client_secret: "s", scopes: ["a"] };
const aws = { region: "eu-central-1", service: "es", role: "arn:aws:iam::1:role/a" };

/** Of each key of each form of login, logins of two users. A key that is missing here is an error of the compiler. */
const usersByKey: Record<Exclude<KeysOfEach<Auth>, "password">, readonly Pair[]> = {
  username: [[basic, { ...basic, username: "b" }]],
  api_key: [[{ api_key: "a" }, { api_key: "b" }]],
  bearer: [[{ bearer: "a" }, { bearer: "b" }]],
  oauth2: [
    { client_id: "b" },
    // Another tenant, in which the same client is another user; and fewer rights.
    { token_url: "https://id.internal/b" },
    { scopes: ["a", "b"] },
  ].map((over) => [{ oauth2 }, { oauth2: { ...oauth2, ...over } }]),
  aws: [{ region: "eu-west-1" }, { service: "aoss" }, { role: "arn:aws:iam::1:role/b" }].map((over) => [
    { aws },
    { aws: { ...aws, ...over } },
  ]),
};

/** Of each setting, what may be another user. */
const usersBySetting: Record<keyof Config, readonly Pair[]> = {
  auth: Object.values(usersByKey).flatMap((pairs) =>
    pairs.map(([one, other]): Pair => [{ auth: one }, { auth: other }]),
  ),
  headers: [[{ headers: { "es-security-runas-user": "a" } }, { headers: { "es-security-runas-user": "b" } }]],
  tls: [
    [{ tls: pem.ana }, { tls: pem.client }],
    // Of the same names, by another authority.
    [{ tls: pem.ana }, { tls: pem.forged }],
    [
      { tls: pem.ana, auth: basic },
      { tls: pem.client, auth: basic },
    ],
  ],
  url: [],
  timeout: [],
  answer_bytes: [],
};

describe("the view of a user", () => {
  test.each(
    Object.entries(usersBySetting).flatMap(([key, pairs]) =>
      pairs.map((pair, number) => [key, number, pair] as const),
    ),
  )("is another one for another user by %s (%d)", (_, __, [one, other]) => {
    const views = [one, other, {}].map(describeSettings);
    expect(new Set(views).size).toBe(3);
    const io = { ...testIO, readText: readPem };
    const { stores } = elastic.create("es", elastic.parseConfig({ url, ...one }), io);
    const isRead = views.map((view) => {
      const text = JSON.stringify({ view, patterns: [] });
      return stores.traces?.parseVersion?.(text) !== undefined;
    });
    expect(isRead).toEqual([true, false, false]);
  });

  test("is the same where what lets this user in is renewed", () => {
    const [before, after] = [basic, { ...basic, password: "q" }].map((auth) => describeSettings({ auth }));
    expect(after).toBe(before);
    const secret = (client_secret: string) =>
      describeSettings({ auth: { oauth2: { ...oauth2, client_secret } } });
    expect(secret("t")).toBe(secret("s"));
  });

  test("is of the names in a certificate, and not of those in the chain behind it", () => {
    const own = readPem(pem.ana.cert);
    const describe = (certificate: string) => describeView({ headers: {}, certificate }, undefined);
    expect(describe(`${own}\n${readPem(pem.clientsCa)}`)).toBe(describe(own));
    expect(describe(own)).toContain("spiffe://acme/agent");
  });

  test("holds no secret", () => {
    const secrets = { auth: { bearer: "hush-token" }, headers: { "x-key": "hush-key" } };
    expect(describeSettings(secrets)).not.toContain("hush");
  });
});
