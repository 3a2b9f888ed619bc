// What the log and the state of GraphQL show of texts with credentials.
import { expect, test } from "vitest";
import { redactCredentials } from "#src/telemetry/telemetry.ts";

test.each([
  ["Authorization: Bearer abc.d-e_f", "Authorization: Bearer [redacted]"],
  ["authorization: ApiKey YTpi==", "authorization: ApiKey [redacted]"],
  ["basic YTpi", "basic [redacted]"],
  ["GET /x?token=abc&site=1", "GET /x?token=[redacted]&site=1"],
  ["GET /x?api_key=abc#top", "GET /x?api_key=[redacted]#top"],
  ["/x?apikey=abc", "/x?apikey=[redacted]"],
  ["/x?api-key=abc", "/x?api-key=[redacted]"],
  ["/x?access_token=abc, refused", "/x?access_token=[redacted], refused"],
  ["id_token=abc&refresh_token=d", "id_token=[redacted]&refresh_token=[redacted]"],
  ["/x?accessToken=abc", "/x?accessToken=[redacted]"],
  ["X-Amz-Security-Token=abc&X-Amz-Date=1", "X-Amz-Security-Token=[redacted]&X-Amz-Date=1"],
  ["client_id=a&client_secret=b;", "client_id=a&client_secret=[redacted];"],
  ["username=a&password=b", "username=a&password=[redacted]"],
  ['{"url":"/x?client_secret=abc"}', '{"url":"/x?client_secret=[redacted]"}'],
  ["of eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln.", "of [redacted]."],
])("redactCredentials: %s", (text, shown) => {
  expect(redactCredentials(text)).toBe(shown);
});

test.each(["token expired", "tokens=3", "secret_id=4", "keys=5", "a bearer"])(
  "redactCredentials leaves what is no credential: %s",
  (text) => {
    expect(redactCredentials(text)).toBe(text);
  },
);
