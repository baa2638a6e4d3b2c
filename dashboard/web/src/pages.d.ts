declare module "pages" {
  import type { Component } from "svelte";

  /** What a file of `src/pages` exports. */
  export const modules: { page: import("./lib/pages").Page; default: Component }[];
}
