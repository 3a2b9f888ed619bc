// Which version is the latest one, on npm and on the forge.
import { expect, test } from "vitest";
import { chooseChannel } from "../../release/channel.ts";

const tags = ["v0.9.0", "v1.9.0", "v1.10.0", "v2.0.0", "v3.0.0-rc.1", "vnext", ""];

test.each([
  ["2.0.1", "latest", "--latest"],
  ["2.1.0", "latest", "--latest"],
  ["10.0.0", "latest", "--latest"],
  // Whose tag is there already, since it has started the workflow.
  ["2.0.0", "latest", "--latest"],
  ["3.0.0-rc.2", "next", "--prerelease"],
  ["1.10.1-rc.1", "next-1.10", "--prerelease"],
  // A fix of an older version, after a newer one.
  ["1.10.1", "latest-1.10", "--latest=false"],
  ["1.9.1", "latest-1.9", "--latest=false"],
])("%s is shown as %s", (version, npmTag, releaseFlag) => {
  expect(chooseChannel(version, tags)).toEqual({ npmTag, releaseFlag });
});

test("the first version is the latest", () => {
  expect(chooseChannel("0.1.0", [])).toEqual(chooseChannel("0.1.0", ["v0.1.0"]));
  expect(chooseChannel("0.1.0", [])).toMatchObject({ npmTag: "latest" });
});
