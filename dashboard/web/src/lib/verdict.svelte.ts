/** The verdict that all pages show: Now tells it as it comes, on other pages it is asked for now and then. */
import { get } from "./api";
import { isFinal } from "./live.svelte";
import { TONES } from "./picture.svelte";

const AGAIN = 30_000; // milliseconds: a verdict takes two looks at all ranks

export interface Told {
  status: "looking" | keyof typeof TONES;
  sentence: string;
}

export const MARKS = { looking: "…", fine: "✓", slow: "◷", stuck: "✗", degraded: "◑", unknown: "?" };

let told = $state.raw<Told>({ status: "looking", sentence: "" });

export const verdict = {
  get status() {
    return told.status;
  },
  get sentence() {
    return told.sentence;
  },
  get tone() {
    return told.status in TONES ? TONES[told.status as keyof typeof TONES] : "quiet"; // a server may be of another version
  },
  take(found: Told) {
    told = found;
  },
};

/** Ask for it while this page, which is not Now, is visible; for `$effect`. */
export function ask(): () => void {
  let over = false;
  let timer = 0;
  async function again(): Promise<void> {
    try {
      if (!document.hidden) {
        const found = await get<Told>("v1/why");
        if (!over) told = found;
      }
    } catch (problem) {
      if (isFinal(problem)) return; // what the page itself asks says why
    }
    if (!over) timer = window.setTimeout(again, AGAIN);
  }
  timer = window.setTimeout(again, told.sentence ? AGAIN : 0);
  return () => {
    over = true;
    window.clearTimeout(timer);
  };
}
