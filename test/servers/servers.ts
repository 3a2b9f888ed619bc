// Real servers for the tests, without Docker: Elasticsearch and OpenSearch from Maven
// artifacts, started on a free port with an empty data folder and removed with everything
// they wrote. Which server needs what is the table; how a product is started is the second
// half of this file. The Elasticsearch distribution is the real one with few modules: no
// Painless, no `wildcard` or `constant_keyword` fields, and `GET /` of 8 and 9 answers 405.

import { chown, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Command, type Daemon, launch } from "./daemon.ts";
import { type Artifact, fetchDistribution } from "./distribution.ts";
import { findJdk, type JavaRange, needProgram, run } from "./java.ts";

export type Product = "elasticsearch" | "opensearch";

export interface Server {
  readonly product: Product;
  readonly version: string;
  readonly maven: Artifact;
  readonly java: JavaRange;
  /** Answers 200 with the cluster's name once the server serves. */
  readonly ready: string;
}
