/** The time that is looked at: `at` in the URL, in seconds since 1970, or now. Of the file of a run, when that was made. */
import { get, sql, type Answer } from "./api";
import { isFinal, LATEST, SOON, type Asked } from "./live.svelte";
import { route, setQuery } from "./route.svelte";

interface Told {
  now: number;
  runs: boolean;
}

let told = $state.raw<Told | undefined>();
const AGAIN = 10_000; // milliseconds
let ahead = 0; // seconds that the clock there is ahead of ours

/** Ask what time it is there, until that is told; of a file again and again, as another run may take its place. */
async function ask(pause = SOON): Promise<void> {
  try {
    const found = document.hidden && told ? told : await get<Told>("v1/time");
    ahead = found.now - Date.now() / 1000;
    told = found;
    if (found.runs) return;
    window.setTimeout(ask, AGAIN);
  } catch (problem) {
    told ??= { now: Date.now() / 1000, runs: true }; // what is wrong with the connection the page says
    if (!isFinal(problem)) window.setTimeout(ask, pause, Math.min(2 * pause, LATEST));
  }
}

void ask();

const MICROSECONDS = 1e6;

export const past = {
  /** The moment that is asked for; undefined: what is shown is live, or the end of a run. */
  get at(): number | undefined {
    const at = Number(route.query.at);
    return at > 0 ? at : undefined;
  },
  /** Whether the server has said what time it is there. */
  get ready(): boolean {
    return told !== undefined;
  },
  /** Whether what is looked at goes on. */
  get runs(): boolean {
    return told?.runs ?? true;
  },
  /** Whether it is now that is looked at, and something goes on. */
  get live(): boolean {
    return past.at === undefined && past.runs;
  },
  /** Until when there is something to see: now, or the end of a run. */
  get end(): number {
    return told && !told.runs ? told.now : Date.now() / 1000 + ahead;
  },
  /** The moment that is looked at. */
  get moment(): number {
    return past.at ?? past.end;
  },
  /** For SQL: that moment in microseconds, or what gives it. A literal, so that hosts send nothing of other times. */
  get us(): string {
    return past.live ? "epoch_us(now())" : String(Math.round(past.moment * MICROSECONDS));
  },
};

/** Look at another moment; from the end on it is live. */
export function lookAt(at: number | undefined, quietly = false): void {
  setQuery({ at: at === undefined || at >= past.end ? "" : at.toFixed(3) }, quietly);
}

/** A moment with its date, by the clock of this browser. */
export const dated = (at: number) => new Date(at * 1000).toLocaleString("sv");

/**
 * Ask in SQL for what is shown: again every five seconds as long as it is live, else once for each moment; for `$effect`.
 *
 * `made`: what becomes of an answer.
 */
export function looked<T = Answer>(asked: Asked<T>, text: (until: string) => string, made = (found: Answer) => found as T): (() => void) | undefined {
  if (!past.ready) return undefined;
  if (past.live) return asked.every(5000, async (signal) => made(await sql(text(past.us), signal)));
  const question = text(past.us);
  return asked.until(async (signal) => made(await sql(question, signal)));
}
