// `npm run --silent notes`: what the changelog has of this version, for the page of the release.
import { readFileSync } from "node:fs";
import manifest from "../package.json" with { type: "json" };
import { readNotes } from "./changelog.ts";

process.stdout.write(readNotes(readFileSync("CHANGELOG.md", "utf8"), manifest.version));
