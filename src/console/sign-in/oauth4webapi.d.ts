// Types of `oauth4webapi.js`, which the server serves beside this module from the npm package.
export * from "oauth4webapi";
