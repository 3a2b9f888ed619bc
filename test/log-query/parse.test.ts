import { describe, expect, test } from "vitest";
import { Unprocessable } from "#src/core/errors.ts";
import {
  type Filter,
  lineFields,
  operators,
  type Path,
  queryLimits,
  type SourceSpan,
} from "#src/log-query/ast.ts";
import { parse } from "#src/log-query/parse.ts";
import { print } from "#src/log-query/print.ts";

/** A compact notation of a tree: `(and [0,9] a=1 b=2)`, each comparison as `path operator "value" [start,end]`. */
function sketch(filter: Filter): string {
  switch (filter.kind) {
    case "all":
      return "all";
    case "and":
    case "or":
      return `(${filter.kind} ${at(filter.span)} ${filter.operands.map(sketch).join(" ")})`;
    case "compare": {
      const { field, operator, value, span } = filter;
      const name =
        field.kind === "line"
          ? field.name
          : [field.path, ...(field.alternatives ?? [])].map((path) => JSON.stringify(path)).join("|");
      return `${name}${operator}${JSON.stringify(value)}${at(span)}`;
    }
    default:
      return filter satisfies never;
  }
}

function at(span: SourceSpan): string {
  return `[${span.start},${span.end}]`;
}

function refusal(query: string, legacy = false): unknown {
  try {
    return parse(query, { legacy });
  } catch (error) {
    if (!(error instanceof Unprocessable)) throw error;
    expect(error.message).toMatch(/^\S.*\.$/s);
    return [error.slug, error.details];
  }
}

describe("parse: syntax trees and canonical text", () => {
  test.each([
    ["", "all", ""],
    [" \t\r\n ", "all", ""],
    ["x", 'message:"x"[0,1]', "message:x"],
    [" x ", 'message:"x"[1,2]', "message:x"],
    ['"a b"', 'message:"a b"[0,5]', 'message:"a b"'],
    ['""', 'message:""[0,2]', 'message:""'],
    ["a=1", '["a"]="1"[0,3]', "a=1"],
    ["a.b.0=1", '["a","b","0"]="1"[0,7]', "a.b.0=1"],
    ["a\\.b=1", '["a.b"]="1"[0,6]', "a\\.b=1"],
    ["a\\\\.b=1", '["a\\\\","b"]="1"[0,7]', "a\\\\.b=1"],
    ["a\\b=1", '["a\\\\b"]="1"[0,5]', "a\\\\b=1"],
    ["a\\=b=1", '["a=b"]="1"[0,6]', "a\\=b=1"],
    ["a.=1", '["a",""]="1"[0,4]', "a.=1"],
    ["..=1", '["","",""]="1"[0,4]', "..=1"],
    ['a="x y"', '["a"]="x y"[0,7]', 'a="x y"'],
    ['a="xy"', '["a"]="xy"[0,6]', "a=xy"],
    ['a=""', '["a"]=""[0,4]', 'a=""'],
    ['a="[x"', '["a"]="[x"[0,6]', 'a="[x"'],
    ['a=x"y', '["a"]="x\\"y"[0,5]', 'a=x"y'],
    ['a="\\"\\\\\\n"', '["a"]="\\"\\\\\\\\n"[0,10]', undefined],
    ["url=/a?b=c", '["url"]="/a?b=c"[0,10]', "url=/a?b=c"],
    ["a==b", '["a"]="=b"[0,4]', "a==b"],
    ["a=!b", '["a"]="!b"[0,4]', "a=!b"],
    ["a!b=c", '["a!b"]="c"[0,5]', "a!b=c"],
    ["a!=b", '["a"]!="b"[0,4]', "a!=b"],
    ["a!:b", '["a"]!:"b"[0,4]', "a!:b"],
    ["a>=1", '["a"]>="1"[0,4]', "a>=1"],
    ["a<-1.5e+3", '["a"]<"-1.5e+3"[0,9]', "a<-1.5e+3"],
    ['a>"1"', '["a"]>"1"[0,5]', "a>1"],
    ["http://x", '["http"]:"//x"[0,8]', "http://x"],
    ["a b", '(and [0,3] message:"a"[0,1] message:"b"[2,3])', "message:a AND message:b"],
    ["a AND b", '(and [0,7] message:"a"[0,1] message:"b"[6,7])', "message:a AND message:b"],
    ["a OR b", '(or [0,6] message:"a"[0,1] message:"b"[5,6])', "message:a OR message:b"],
    ["a and b", '(and [0,7] message:"a"[0,1] message:"and"[2,5] message:"b"[6,7])', undefined],
    ["ANDx ORy", '(and [0,8] message:"ANDx"[0,4] message:"ORy"[5,8])', undefined],
    ["AND=1", '["AND"]="1"[0,5]', "AND=1"],
    ["a=AND", '["a"]="AND"[0,5]', "a=AND"],
    ['"OR"', 'message:"OR"[0,4]', "message:OR"],
    ["(a=1)(b=2)", '(and [0,10] ["a"]="1"[1,4] ["b"]="2"[6,9])', "a=1 AND b=2"],
    ["a=1(b=2)", '(and [0,8] ["a"]="1"[0,3] ["b"]="2"[4,7])', "a=1 AND b=2"],
    ["(a=1)AND(b=2)", '(and [0,13] ["a"]="1"[1,4] ["b"]="2"[9,12])', "a=1 AND b=2"],
    ["((a=1))", '["a"]="1"[2,5]', "a=1"],
    ["p=1 q=2 OR r=3", '(or [0,14] (and [0,7] ["p"]="1"[0,3] ["q"]="2"[4,7]) ["r"]="3"[11,14])', undefined],
    [
      "p=1 AND (q=2 AND r=3)",
      '(and [0,21] ["p"]="1"[0,3] (and [9,20] ["q"]="2"[9,12] ["r"]="3"[17,20]))',
      "p=1 AND (q=2 AND r=3)",
    ],
    [
      "(p=1 OR q=2) r=3",
      '(and [0,16] (or [1,11] ["p"]="1"[1,4] ["q"]="2"[8,11]) ["r"]="3"[13,16])',
      undefined,
    ],
    ["😀=😀 b", '(and [0,7] ["😀"]="😀"[0,5] message:"b"[6,7])', "😀=😀 AND message:b"],
    ["a\\ b=1", '["a b"]="1"[0,6]', "a\\ b=1"],
    ["a\\ b", '(and [0,4] message:"a\\\\"[0,2] message:"b"[3,4])', undefined],
    ["\\", 'message:"\\\\"[0,1]', "message:\\"],
    ["\\message=1", '["message"]="1"[0,10]', "\\message=1"],
    ["\\message.x=1", '["\\\\message","x"]="1"[0,12]', "\\\\message.x=1"],
    ["message.x=1", '["message","x"]="1"[0,11]', "message.x=1"],
    ["\\x_int=1", '["x_int"]="1"[0,8]', "\\x_int=1"],
    ["\\attributes.a.\\x_int=1", '["attributes","a","x_int"]="1"[0,22]', "\\attributes.a.\\x_int=1"],
  ] as const)("parses %j", (query, tree, text) => {
    const filter = parse(query);
    expect(sketch(filter)).toBe(tree);
    if (text !== undefined) expect(print(filter)).toBe(text);
    expect(parse(print(filter), { legacy: true })).toEqual(parse(print(filter)));
  });

  test.each(lineFields)("reads %s as a line field only in its exact spelling", (name) => {
    expect(parse(`${name}=x`)).toMatchObject({ field: { kind: "line", name } });
    expect(parse(`${name.toUpperCase()}=x`)).toMatchObject({ field: { kind: "json" } });
    expect(parse(`x.${name}=x`)).toMatchObject({ field: { kind: "json" } });
  });

  test.each(operators)("reads the operator %s between a field and a value", (operator) => {
    expect(parse(`a${operator}1`)).toMatchObject({ operator, value: "1", field: { path: ["a"] } });
    expect(parse(`(a${operator}"1")`)).toMatchObject({ operator, value: "1" });
    expect(print(parse(`a${operator}1`))).toBe(`a${operator}1`);
  });
});

describe("parse with legacy syntax", () => {
  test.each([
    ["a=[x]", '["a"]="x"[0,5]', "a=x"],
    ["a=[x,y]", '(or [0,7] ["a"]="x"[3,4] ["a"]="y"[5,6])', "a=x OR a=y"],
    ["a!=[x,y]", '(and [0,8] ["a"]!="x"[4,5] ["a"]!="y"[6,7])', "a!=x AND a!=y"],
    ["a:[x,y]", '(or [0,7] ["a"]:"x"[3,4] ["a"]:"y"[5,6])', "a:x OR a:y"],
    ["a!:[x,y]", '(and [0,8] ["a"]!:"x"[4,5] ["a"]!:"y"[6,7])', "a!:x AND a!:y"],
    ['a=[ "x, y" , (z) ]', '(or [0,18] ["a"]="x, y"[4,10] ["a"]="(z)"[13,16])', 'a="x, y" OR a="(z)"'],
    ["a=[x,y](b=1)", undefined, "(a=x OR a=y) AND b=1"],
    ["b=1 OR a=[x,y]", undefined, "b=1 OR (a=x OR a=y)"],
    ["[x]", 'message:"[x]"[0,3]', 'message:"[x]"'],
    ["attributes.a=1", '["attributes","a"]|["a"]="1"[0,14]', "attributes.a=1"],
    ["a_int=1", '["a_int"]|["a"]="1"[0,7]', "a_int=1"],
    [
      "attributes.a.b_bool=1",
      '["attributes","a","b_bool"]|["a","b_bool"]|["attributes","a","b"]|["a","b"]="1"[0,21]',
      "attributes.a.b_bool=1",
    ],
    ["attributes.a\\.b_string=x", undefined, "attributes.a\\.b_string=x"],
    ["attributes.message=1", '["attributes","message"]|["message"]="1"[0,20]', "attributes.message=1"],
    ["_int=1", '["_int"]="1"[0,6]', "\\_int=1"],
    ["\\a_int=1", '["a_int"]="1"[0,8]', "\\a_int=1"],
    ["attributes.\\a_int=1", '["attributes","a_int"]="1"[0,19]', "\\attributes.\\a_int=1"],
    ["attributes=1", '["attributes"]="1"[0,12]', "attributes=1"],
    // A backslash that escapes nothing stands for itself.
    ["\\x.a_int=1", '["\\\\x","a_int"]|["\\\\x","a"]="1"[0,10]', "\\\\x.a_int=1"],
  ] as const)("parses %j", (query, tree, text) => {
    const filter = parse(query, { legacy: true });
    if (tree !== undefined) expect(sketch(filter)).toBe(tree);
    expect(print(filter)).toBe(text);
    expect(print(parse(text, { legacy: true }))).toBe(text);
  });
});

describe("parse: refusals", () => {
  test.each([
    ["a\0b", 1, 2, "text without NUL and lone surrogates"],
    ["😀\ud83d", 2, 3, "text without NUL and lone surrogates"],
    ["\udc00", 0, 1, "text without NUL and lone surrogates"],
    ["a=1 OR\n", 7, 7, "an expression"],
    ["(", 1, 1, "an expression"],
    ["a=\t", 2, 2, "a value"],
    ['"', 0, 1, "a closing double quote"],
    ['a="\\', 2, 4, "a closing double quote"],
    ['""x', 2, 3, "a space or a parenthesis after the closing quote"],
    ["a>=1x", 3, 5, "a number"],
    ["a<1(b=2)c>d", 10, 11, "a number"],
    ["😀>x", 3, 4, "a number"],
  ])("refuses %j at [%i, %i)", (query, start, end, expected) => {
    expect(refusal(query)).toEqual(["invalid_log_query", { start, end, expected }]);
    expect(refusal(query, true)).toEqual(["invalid_log_query", { start, end, expected }]);
  });

  test.each([
    ["a=[x", 3, 4, "a closing bracket"],
    ['a=["x"', 2, 6, "a closing bracket"],
    ['a=["x"y b]', 6, 7, "a comma or a closing bracket"],
    ["a=[]", 3, 3, "a value"],
    ["a=[x,]", 5, 5, "a value"],
    ["a=[x]y", 5, 6, "a space or a parenthesis after the list"],
    ["a>[1]", 2, 5, "a number"],
  ])("refuses the list %j at [%i, %i)", (query, start, end, expected) => {
    expect(refusal(query, true)).toEqual(["invalid_log_query", { start, end, expected }]);
  });

  test.each(["_string", "_int", "_float", "_bool"])(
    "refuses the type suffix %s as legacy syntax",
    (suffix) => {
      for (const field of [`a${suffix}`, `a.b${suffix}`, `message${suffix}`, `a\\.b${suffix}`, suffix]) {
        expect(refusal(`(x=1 OR ${field}!=1`)).toEqual(["legacy_log_query_syntax", { field }]);
      }
      expect(refusal(`a${suffix}s=1`)).not.toBeInstanceOf(Array);
      expect(refusal(`a${suffix}.b=1`)).not.toBeInstanceOf(Array);
    },
  );

  test("reports the field of a legacy query as written", () => {
    expect(refusal("attributes.a\\.b\\ c=1")).toEqual([
      "legacy_log_query_syntax",
      { field: "attributes.a\\.b\\ c" },
    ]);
    expect(refusal("a\\.b=[x")).toEqual(["legacy_log_query_syntax", { field: "a\\.b" }]);
  });

  test("counts parentheses and lists as depth", () => {
    const nested = (levels: number) => `${"(".repeat(levels)}a=1${")".repeat(levels)}`;
    const tooDeep = ["log_query_too_complex", { limit: queryLimits.depth }];
    expect(sketch(parse(nested(queryLimits.depth)))).toMatch(/^\["a"\]/);
    expect(refusal(nested(queryLimits.depth + 1))).toEqual(tooDeep);
    expect(refusal(nested(queryLimits.depth).replace("a=1", "a=[1,2]"), true)).toEqual(tooDeep);
    expect(refusal(nested(queryLimits.depth - 1).replace("a=1", "a=[1,2]"), true)).not.toEqual(tooDeep);
    expect(parse(Array(500).fill("(a=1)").join(" "))).toMatchObject({ kind: "and" });
  });

  test("takes 65,536 bytes of UTF-8 and refuses one more, before anything else", () => {
    const tooLong = ["log_query_too_complex", { limit: 65_536 }];
    // One, two, three and four bytes a character.
    for (const [character, bytes] of [
      ["a", 1],
      ["ä", 2],
      ["€", 3],
      ["😀", 4],
    ] as const) {
      const full = character.repeat(65_536 / bytes);
      const longest = full.slice(0, Math.floor(65_536 / bytes) * character.length);
      expect(Buffer.byteLength(longest)).toBeGreaterThan(65_532);
      expect(parse(longest)).toMatchObject({ kind: "compare", value: longest });
      expect(refusal(`${longest}${character}`)).toEqual(tooLong);
    }
    expect(refusal(`(${" ".repeat(65_536)}`)).toEqual(tooLong);
    expect(refusal(`\0${"a".repeat(65_536)}`)).toEqual(tooLong);
  });

  test("takes a path of 100 segments and refuses one more", () => {
    const path = (segments: number) => Array.from({ length: segments }, (_, n) => `k${n}`).join(".");
    expect(parse(`${path(100)}=1`)).toMatchObject({ field: { path: { length: 100 } } });
    for (const query of [
      `${path(101)}=1`,
      `x ${path(9_000)}>1`,
      `(${path(101)}!:[a,b])`,
      `${".".repeat(100)}=1`,
    ])
      expect(refusal(query, true)).toEqual(["log_query_too_complex", { limit: 100 }]);
    // A word without an operator is no path.
    expect(parse(path(101))).toMatchObject({ field: { kind: "line" }, value: path(101) });
  });

  test("counts comparisons, including those of lists", () => {
    const tooMany = ["log_query_too_complex", { limit: queryLimits.leaves }];
    const leaves = (count: number) => Array(count).fill("a").join(" ");
    expect(parse(leaves(queryLimits.leaves))).toMatchObject({ kind: "and" });
    expect(refusal(leaves(queryLimits.leaves + 1))).toEqual(tooMany);
    expect(
      refusal(
        `a=[${Array(queryLimits.leaves + 1)
          .fill("x")
          .join(",")}]`,
        true,
      ),
    ).toEqual(tooMany);
  });
});

test("print writes a nested `all` as a filter that every line satisfies", () => {
  const leaf = parse("a=1");
  const filter: Filter = { kind: "or", operands: [{ kind: "all" }, leaf], span: { start: 0, end: 0 } };
  expect(print(filter)).toBe('severity:"" OR a=1');
});

test("print escapes a path that would be read as a legacy name", () => {
  const paths: Path[] = [
    ["message"],
    ["attributes", "x"],
    ["x_int"],
    ["a", ".x_int"],
    ["\\message"],
    ["\\x_int"],
  ];
  const texts = paths.map((path) => {
    const span = { start: 0, end: 0 };
    return print({ kind: "compare", field: { kind: "json", path }, operator: "=", value: "1", span });
  });
  expect(texts).toEqual([
    "\\message=1",
    "\\attributes.x=1",
    "\\x_int=1",
    "a.\\.x_int=1",
    "\\\\message=1",
    "\\\\x_int=1",
  ]);
});
