// The image of the Dockerfile: what it holds, that it is built twice alike, and that its program runs as the image says.
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { askEveryRoute } from "../../support/demo-questions.ts";
import { buildImage, buildUnshareArguments, type Image, openImage, startImage } from "../../support/image.ts";

let image: Image;
beforeAll(() => {
  image = openImage();
}, 900_000);
afterAll(() => image?.close());

const measure = (path: string): number =>
  Number(execFileSync("du", ["-sxm", path], { encoding: "utf8" }).split("\t")[0]);

describe("the image", () => {
  test("has the same digest when somebody with another umask builds it again", { timeout: 600_000 }, () => {
    const checkout = mkdtempSync(join(tmpdir(), "readout-checkout-"));
    const copy = `git ls-files -z | tar --create --null --files-from=- --mode=g+w | tar --extract --preserve-permissions`;
    execFileSync("sh", ["-ec", `umask 002; ${copy} --directory='${checkout}'`]);
    const before = process.umask(0o002);
    try {
      expect(image.digest).toMatch(/^sha256:/);
      expect(buildImage("second", checkout)).toBe(image.digest);
    } finally {
      process.umask(before);
      rmSync(checkout, { recursive: true });
    }
  });

  test("adds at most 120 MB to its base, and nothing that only developers read", () => {
    const added = measure(join(image.root, "app"));
    expect(added).toBeGreaterThan(20);
    expect(added).toBeLessThanOrEqual(120);
    const unread = execFileSync(
      "find",
      [join(image.root, "app"), "-name", "*.map", "-o", "-name", "*.d.ts"],
      {
        encoding: "utf8",
      },
    );
    expect(unread).toBe("");
    for (const tool of ["vitest", "rolldown"])
      expect(existsSync(join(image.root, "app/node_modules", tool))).toBe(false);
    expect(existsSync(join(image.root, "build"))).toBe(false);
  });

  test("says what it is, and runs without rights", () => {
    expect(image.config.User).toBe("1000:1000");
    expect(image.config.Labels["org.opencontainers.image.version"]).toBe(
      JSON.parse(execFileSync("cat", ["package.json"], { encoding: "utf8" })).version,
    );
    expect(image.config.Labels["org.opencontainers.image.revision"]).toMatch(/^[0-9a-f]{40}$/);
  });
});

describe("the program of the image", () => {
  test("answers all routes, on a read-only file system, as a user without rights", async () => {
    const { address, stop } = await startImage(image, "demo", "--port", "0", "--token", "t");
    try {
      expect(await askEveryRoute(address, "t")).toEqual([]);
    } finally {
      stop();
    }
  });

  test("finds the configuration where its command says, and answers what is wrong with it", () => {
    const folder = mkdtempSync(join(tmpdir(), "readout-image-"));
    writeFileSync(join(folder, "readout.yaml"), "sites: {}\n");
    chmodSync(folder, 0o755);
    const call = () =>
      execFileSync(
        "unshare",
        buildUnshareArguments(image, ["check", "--config", "/mnt/readout.yaml"], folder),
        {
          stdio: "pipe",
        },
      );
    try {
      expect(call).toThrow(/tokens|sites|backends/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
