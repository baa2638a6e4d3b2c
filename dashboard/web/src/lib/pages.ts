import type { Component } from "svelte";
import { modules } from "pages";

/** What each file of `src/pages` says of itself in its `<script module>`: to add a page is to add a file. */
export interface Page {
  /** In the URL, behind `#/`. */
  path: string;
  title: string;
  /** Its place in the menu; the hundreds are the group: see `GROUPS`. */
  order: number;
  /** What it answers, in a sentence. */
  about: string;
  /** Whether it shows what was at an earlier time: see `past`. */
  past?: boolean;
}

export interface Shown extends Page {
  component: Component;
  /** The key that leads there; the tenth page has "0", those after it none. */
  key: string;
}

/** What pages are for, by the hundreds of their order. */
export const GROUPS = ["", "Find out", "Look at", "Do"];

export const pages: Shown[] = modules
  .map(({ page, default: component }) => ({ ...page, component, key: "" }))
  .sort((one, other) => one.order - other.order)
  .map((page, at) => ({ ...page, key: "1234567890"[at] ?? "" }));
