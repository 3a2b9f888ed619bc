// A verifier of another hand before a real source: Amazon's own library for Python (botocore).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { installPythonPackage } from "../servers/python-package.ts";

interface VerifierState {
  readonly keys: Readonly<Record<string, { readonly secret: string; readonly token?: string | undefined }>>;
  /** How far its clock is ahead of this machine's, in seconds. */
  readonly ahead: number;
}

export interface AwsVerifier {
  readonly url: string;
  readonly set: (state: Partial<VerifierState>) => Promise<void>;
  /** How many requests it has let through and refused. */
  readonly count: () => Promise<{ readonly passed: number; readonly refused: number }>;
  readonly stop: () => void;
}

/** Lets only requests through to `target` that are signed for this service. */
export async function startAwsVerifier(
  target: string,
  region: string,
  service: string,
): Promise<AwsVerifier> {
  const script = fileURLToPath(new URL("aws-verifier.py", import.meta.url));
  const python = join(installPythonPackage("botocore", "1.44.8"), "python");
  const child = spawn(python, [script, target, region, service], { stdio: ["ignore", "pipe", "inherit"] });
  const [port] = await once(child.stdout, "data");
  const url = `http://127.0.0.1:${Number(port)}`;
  const ask = async (init: RequestInit) => (await fetch(`${url}/-/state`, init)).json();
  return {
    url,
    set: async (state) => void (await ask({ method: "PUT", body: JSON.stringify(state) })),
    count: () => ask({}),
    stop: () => void child.kill(),
  };
}
