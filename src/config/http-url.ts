// Where something is reached over HTTP: a source, or a collector of traces.
import * as z from "zod";

/** Clients differ in what they make of the other parts of an address, and some drop them in silence. */
export const httpUrl = z
  .url({
    protocol: /^https?$/,
    error: ({ input }) => (input == null ? undefined : "expected an http:// or https:// address"),
  })
  .refine((text) => {
    const { username, password } = URL.parse(text) ?? { username: "", password: "" };
    return username === "" && password === "";
  }, "expected an address without user and password: they are given apart from it")
  .refine(
    (text) => !/[?#]/.test(text),
    "expected an address without a query and a fragment: they would not be sent",
  );
