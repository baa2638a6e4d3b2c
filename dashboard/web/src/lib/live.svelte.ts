/** What comes from the server as long as somebody looks: streams of events, and answers that are asked for again and again. */
import { untrack } from "svelte";
import { ApiError, events } from "./api";

/**
 * `off`: nobody looks at it. `silent`: the server is connected, and says nothing. `lost`: it is tried again. `refused`: it is not, as nothing
 * would change. `ended`: the program has ended, and what is shown is the last of it.
 */
export type Link = "off" | "connecting" | "live" | "silent" | "lost" | "refused" | "ended";

const QUIET = 12_000; // milliseconds without a byte: in a stream, the server says something every 5 s
const GIVEN_UP = 40_000; // likewise, after which another connection is tried: a network that is gone says nothing
const BEHIND = 15; // seconds that the server may not have seen the program
/** Milliseconds before a connection is tried again: twice as many each time. */
export const [SOON, LATEST] = [1000, 30_000];
const AGAIN = 5000; // milliseconds before something is asked for again that had no answer
const STEP = 5; // seconds: ages are shown in steps, so that nothing is drawn, or read out, each second

let link = $state.raw<Link>("off");
let why = $state.raw("");
let at = $state.raw(0);
let age = $state.raw(0);
let silence = $state.raw(0);
let behind = $state.raw(0);

let heard = 0; // when a byte came last, or something began to be waited for
let waiting = 0; // streams and questions

/** The state of the connection that the visible page has. */
export const connection = {
  get link() {
    return link;
  },
  /** Of a connection that is refused, or lost. */
  get why() {
    return why;
  },
  /** When what is shown was so, in milliseconds since 1970; 0 if nothing has come yet. */
  get at() {
    return at;
  },
  /** Seconds since then. */
  get age() {
    return age;
  },
  /** Seconds since the server has said something. */
  get silence() {
    return silence;
  },
  /** For how many seconds the server, which answers, has not seen the program; 0 where it sees it. */
  get behind() {
    return behind;
  },
};

function set(state: Link, reason = ""): void {
  link = state;
  why = reason;
  if (state === "off") at = behind = 0;
  count();
}

function count(): void {
  const now = Date.now();
  const steps = (since: number) => Math.floor((now - since) / 1000 / STEP) * STEP;
  if (waiting > 0 && now - heard > QUIET && (link === "live" || link === "connecting")) link = "silent";
  silence = link === "silent" ? steps(heard) : 0;
  age = at && link !== "live" ? steps(at) : 0;
}

window.setInterval(() => document.hidden || count(), 1000);

/** A byte has come. */
function hear(): void {
  heard = Date.now();
  if (link !== "live") set("live");
}

function show(seen: number): void {
  at = seen;
  behind = 0;
}

function wait(): void {
  if (waiting++ === 0 && link !== "silent") heard = Date.now();
}

/** Whether it makes no sense to ask again: who is not let in now will not be, and what there is not will not be there. */
export const isFinal = (problem: unknown): problem is ApiError =>
  problem instanceof ApiError && problem.status >= 400 && problem.status < 500 && ![408, 425, 429].includes(problem.status);

const told = (problem: unknown) => (problem instanceof Error ? problem.message : String(problem));

/** What happens to each event, by its name; `place` is where a stream goes on behind it, if it says so. */
type Handlers = Record<string, (data: never, place: string) => void>;

/**
 * Listen to a stream while the document is visible; for `$effect`, as it returns what ends it. A hidden tab has no connection, and the
 * server asks nobody for it. A stream that was cut off goes on at the place of the last event; the handler `again` is told it before.
 */
export function listen(url: string, handlers: Handlers): () => void {
  let attempt: AbortController | undefined;
  let place = "";

  async function read(): Promise<void> {
    for (let pause = SOON; ; pause = Math.min(2 * pause, LATEST)) {
      const mine = (attempt = new AbortController());
      const begun = Date.now();
      const watch = window.setInterval(() => Date.now() - Math.max(heard, begun) > GIVEN_UP && mine.abort(), 1000);
      if (link === "off") set("connecting");
      wait();
      try {
        if (place) handlers.again?.(undefined as never, place);
        for await (const all of events(url, place, mine.signal)) {
          hear();
          pause = SOON;
          for (const { name, data, id } of all) {
            place = id || place;
            if (name === "end") set("ended");
            else if (name === "beat") beat((data as { age: number }).age);
            else if (name !== "error") show(Date.now());
            handlers[name]?.(data as never, id);
            if (name === "end") return;
          }
        }
        set("lost");
      } catch (problem) {
        if (attempt !== mine) return;
        if (isFinal(problem)) return set("refused", told(problem));
        if (!mine.signal.aborted) set("lost", problem instanceof ApiError ? told(problem) : "");
      } finally {
        waiting--;
        window.clearInterval(watch);
      }
      await new Promise((done) => window.setTimeout(done, pause));
      if (attempt !== mine) return;
    }
  }

  function beat(seconds: number): void {
    if (seconds < BEHIND) show(Date.now() - seconds * 1000);
    else behind = Math.floor(seconds / STEP) * STEP;
  }

  function close(): void {
    const last = attempt;
    attempt = undefined;
    last?.abort();
    set("off");
  }

  function turn(): void {
    if (document.hidden) close();
    else if (attempt === undefined) void read();
  }

  document.addEventListener("visibilitychange", turn);
  untrack(turn); // what calls this depends on nothing that it reads
  return () => {
    document.removeEventListener("visibilitychange", turn);
    close();
  };
}

/** Something that is asked for once, or again and again while the document is visible. */
export class Asked<T> {
  value = $state.raw<T | undefined>();
  error = $state.raw("");
  busy = $state.raw(false);
  /** When the answer came, in milliseconds since 1970. */
  at = $state.raw(0);
  #asking: AbortController | undefined;
  #refused = false;

  /** Ask; who asks again meanwhile gets only the later answer. Tells whether there is one. */
  async ask(question: (signal: AbortSignal) => Promise<T>): Promise<boolean> {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    this.busy = true;
    untrack(wait); // who asks in an effect depends on nothing of this
    try {
      const value = await question(asking.signal);
      if (asking.signal.aborted) return false;
      this.value = value;
      this.error = "";
      hear();
      show((this.at = Date.now()));
      return true;
    } catch (problem) {
      if (asking.signal.aborted) return false;
      this.error = told(problem);
      this.#refused = isFinal(problem) && problem.status !== 400; // the same question may have an answer later
      if (isFinal(problem) && problem.status === 401) set("refused", this.error);
      else if (problem instanceof ApiError) hear();
      else set("lost");
      return false;
    } finally {
      waiting--;
      if (this.#asking === asking) this.busy = false;
    }
  }

  /** Nobody waits for the answer any more. */
  stop(): void {
    this.#asking?.abort();
    set("off");
  }

  /** As `every`, until there is an answer. */
  until(question: (signal: AbortSignal) => Promise<T>): () => void {
    return this.every(AGAIN, question, true);
  }

  /**
   * Ask now, and again so many milliseconds after each answer, until it is refused; returns what ends it, for `$effect`. Where there is no
   * answer, each pause is twice as long as the one before.
   */
  every(milliseconds: number, question: (signal: AbortSignal) => Promise<T>, once = false): () => void {
    let timer = 0;
    let over = false;
    let pause = milliseconds;
    const again = async () => {
      const asks = !document.hidden;
      const answered = asks && (await this.ask(question));
      if (over || (answered && once)) return;
      if (this.#refused) return set("refused", this.error);
      if (answered) pause = milliseconds;
      timer = window.setTimeout(again, pause);
      if (asks && !answered) pause = Math.min(2 * pause, LATEST);
    };
    untrack(() => void again());
    return () => {
      over = true;
      window.clearTimeout(timer);
      this.stop();
    };
  }
}

/** Whether each has an answer, or a reason why there is none: what is shown from then on moves nothing when others come. */
export const answered = (...asked: { value: unknown; error: string }[]) => asked.every(({ value, error }) => value !== undefined || error !== "");
