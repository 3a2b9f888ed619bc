// GraphQL queries that cost much for their size: some valid, some not, each near the bounds on a query or beyond one of them.
function repeat(times: number, one: (at: number) => string): string {
  return Array.from({ length: times }, (_, at) => one(at)).join(" ");
}

const page =
  '(site_id: "demo-shop", source_ids: ["app"], query: "", from: "2026-01-15T11:59:59Z", to: "2026-01-15T12:00:00Z", pagination: { per_page: 1, order: DESC })';
const line = "id timestamp message severity hostname json group source_id";
const described = "types { name description fields { name description } }";

export const largeQueries: Readonly<Record<string, string>> = {
  "90 unknown aliases": `{ ${repeat(90, (n) => `a${n}: nothing${n}`)} }`,
  "1,900 unknown fields": `{ ${repeat(1_900, (n) => `field_unknown_${n}_abcdefghijkl`)} }`,
  "1,900 short unknown fields": `{ ${repeat(1_900, (n) => `f${n}`)} }`,
  "300 unknown fields of 200 characters": `{ ${repeat(300, (n) => `logs_lines${"x".repeat(190)}${n}`)} }`,
  "1,900 times one field": `{ viewer { ${repeat(1_900, () => "id")} } }`,
  "1,900 times one unknown field": `{ viewer { ${repeat(1_900, () => "ide")} } }`,
  "200 fragments": `{ ${repeat(200, (n) => `...F${n}`)} } ${repeat(200, (n) => `fragment F${n} on Query { nothing }`)}`,
  "90 fragments": `{ ${repeat(90, (n) => `...F${n}`)} } ${repeat(90, (n) => `fragment F${n} on Query { nothing viewer { id } }`)}`,
  "60 fragments that overlap": `{ ${repeat(60, (n) => `...F${n}`)} } ${repeat(60, (n) => `fragment F${n} on Query { viewer { id name } a${n}: auth { message } }`)}`,
  "a chain of 90 fragments": `{ ...F0 } ${repeat(89, (n) => `fragment F${n} on Query { ...F${n + 1} nothing }`)} fragment F89 on Query { viewer { id } }`,
  "90 unused fragments": `{ viewer { id } } ${repeat(90, (n) => `fragment F${n} on Query { viewer { id } viewer { name } viewer { id } }`)}`,
  "inline fragments": `{ viewer { ${repeat(280, () => "... on Viewer { id name }")} } }`,
  "inline fragments within each other": `{ ${repeat(50, () => "... on Query { ... on Query { ... on Query { ... on Query { ... on Query { viewer { id } } } } } }")} }`,
  "640 unknown arguments": `{ logs_lines(${repeat(640, (n) => `a${n}: 1`)}) { id } }`,
  "1,900 wrong values": `{ logs_lines(source_ids: [${repeat(1_900, () => "1")}]) { id } }`,
  "100 wrong objects": `{ metrics_list(select: [${repeat(100, (n) => `{ a${n}: 1, nam: 2, tgs: 3 }`)}]) { id } }`,
  "90 aliases without arguments": `{ ${repeat(90, (n) => `a${n}: logs_lines { idd messag hostnam timestam severit }`)} }`,
  "280 unused variables": `query(${repeat(280, (n) => `$v${n}: String`)}) { viewer { id } }`,
  "90 variables": `query(${repeat(90, (n) => `$v${n}: String`)}) { ${repeat(90, (n) => `a${n}: app(id: $v${n}) { id }`)} }`,
  "60 kB of escapes": `{ ${repeat(60, (n) => `a${n}: app(id: "${"\\u0041".repeat(160)}") { id }`)} }`,
  "60 kB of lines in a block": `{ a: app(id: """${"\n ".repeat(30_000)}""") { id } }`,
  "32,000 comments": `{ viewer { id } } ${"#\n".repeat(32_000)}`,
  "64,000 commas": `{ viewer { id ${",".repeat(64_000)} } }`,
  "the schema 90 times": `{ ${repeat(90, (n) => `a${n}: __schema { ${described} }`)} }`,
  "all names 90 times": `{ __schema { types { ${repeat(90, (n) => `a${n}: fields { name }`)} } } }`,
  "one type 90 times": `{ ${repeat(90, (n) => `a${n}: __type(name: "Query") { fields { name description args { name description } } }`)} }`,
  "the schema once": `{ __schema { ${described} } }`,
  "25 pages": `{ ${repeat(25, (n) => `a${n}: logs_lines${page} { ${line} }`)} }`,
  "10 pages with links": `{ ${repeat(10, (n) => `a${n}: logs_lines${page} { id trace { trace_id spans { span_id service_name pod { pod_name } } log_lines { id message } } pod { pod_name cpu(minutes: 5) { timestamp cpu_usage_nano_cores } } }`)} }`,
  "8 pages of rows with 10 links that fail": `{ ${repeat(8, (n) => `a${n}: logs_lines${page} { trace { ${repeat(10, (m) => `l${m}: log_lines(limit: 0) { id }`)} } }`)} }`,
};
