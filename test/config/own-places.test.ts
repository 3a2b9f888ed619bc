// Addresses and files of the program itself: none may be named twice.
import { expect, test } from "vitest";
import { listIssues } from "./fixture.ts";

const top = "backends: {}\nsites: {}\n";

test.each([
  ["listen: 127.0.0.1:80\nadmin: { listen: 127.0.0.1:80 }", ["4 admin.listen: is the address of listen too"]],
  ["admin: { listen: 127.0.0.1:8080 }", ["3 admin.listen: is the address of listen too"]],
  ["listen: localhost:80\nadmin: { listen: LOCALHOST:80 }", ["4 admin.listen: is the address of listen too"]],
  ["listen: 0.0.0.0:80\nadmin: { listen: 127.0.0.1:80 }", ["4 admin.listen: is the address of listen too"]],
  ['listen: "[::]:80"\nadmin: { listen: 127.0.0.1:80 }', ["4 admin.listen: is the address of listen too"]],
  [
    "admin: { listen: 127.0.0.1:90 }\nintake: { listen: 127.0.0.1:90 }",
    ["4 intake.listen: is the address of admin.listen too"],
  ],
  [
    "listen: 127.0.0.1:80\nadmin: { listen: 127.0.0.1:80 }\nintake: { listen: 127.0.0.1:80 }",
    ["4 admin.listen: is the address of listen too", "5 intake.listen: is the address of listen too"],
  ],
  ["listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }", []],
  ["listen: 127.0.0.1:80\nadmin: { listen: 127.0.0.2:80 }\nintake: { listen: 127.0.0.1:81 }", []],
  ['listen: 0.0.0.0:80\nadmin: { listen: "[::1]:80" }', []],
])("%j", (text, issues) => {
  expect(listIssues(`${top}${text}\n`)).toEqual(issues);
});

const audit = (file: string) => `audit: { file: "${file}", key: "0123456789abcdef" }`;

test.each([
  [audit("r.yaml"), ["3 audit.file: is the file of this configuration"]],
  [audit("../conf/./r.yaml"), ["3 audit.file: is the file of this configuration"]],
  ["intake: { spool: r.yaml }", ["3 intake.spool: is the file of this configuration"]],
  [`intake: { spool: both }\n${audit("both")}`, ["4 audit.file: is the file of intake.spool"]],
  [`intake: {}\n${audit("data/spool.db")}`, ["4 audit.file: is the file of intake.spool"]],
  [`intake: { spool: spool.db }\n${audit("audit.jsonl")}`, []],
  [audit("data/spool.db"), []],
])("%j", (text, issues) => {
  expect(listIssues(`${top}${text}\n`)).toEqual(issues);
});
