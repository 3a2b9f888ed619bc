// What the server serves beside this module: the package's own file.
export * from "oauth4webapi";
