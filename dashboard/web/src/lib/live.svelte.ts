/** What comes from the server as long as somebody looks: streams of events, and answers that are asked for again and again. */
import { ApiError } from "./api";

/** `off`: nobody looks at it. `lost`: it is tried again. `ended`: the program has ended, and what is shown is the last of it. */
export type Link = "off" | "connecting" | "live" | "lost" | "ended";

let link = $state.raw<Link>("off");
let since = $state.raw(Date.now());

/** The state of the connection that the visible page has. */
export const connection = {
  get link() {
    return link;
  },
  /** When something was heard last, in milliseconds since 1970. */
  get since() {
    return since;
  },
};

function set(state: Link): void {
  link = state;
  if (state === "live") since = Date.now();
}

const AGAIN = 2000; // milliseconds after which a connection that the browser has given up is tried again

type Handlers = Record<string, (data: never) => void>;

/**
 * Listen to a stream while the document is visible; for `$effect`, as it returns what ends it. A hidden tab has no connection, and the
 * server asks nobody for it.
 */
export function listen(url: string, handlers: Handlers): () => void {
  let source: EventSource | undefined;
  let again = 0;

  function open(): void {
    set("connecting");
    const opened = (source = new EventSource(url));
    for (const [name, handler] of Object.entries(handlers)) {
      opened.addEventListener(name, (event) => {
        if (!(event instanceof MessageEvent)) return; // of the connection, which has the same name
        set("live");
        handler(JSON.parse(event.data as string) as never);
      });
    }
    opened.addEventListener("end", () => {
      opened.close();
      set("ended");
    });
    opened.onopen = () => set("live");
    opened.onerror = () => {
      if (link === "ended" || source !== opened) return;
      set("lost");
      if (opened.readyState === EventSource.CLOSED) {
        again = window.setTimeout(open, AGAIN);
      }
    };
  }

  function close(): void {
    window.clearTimeout(again);
    source?.close();
    source = undefined;
    set("off");
  }

  function turn(): void {
    if (document.hidden) close();
    else if (source === undefined) open();
  }

  document.addEventListener("visibilitychange", turn);
  turn();
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

  /** Ask; who asks again meanwhile gets only the later answer. Tells whether there is one. */
  async ask(question: (signal: AbortSignal) => Promise<T>): Promise<boolean> {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    this.busy = true;
    try {
      const value = await question(asking.signal);
      if (asking.signal.aborted) return false;
      this.value = value;
      this.at = Date.now();
      this.error = "";
      set("live");
      return true;
    } catch (problem) {
      if (asking.signal.aborted) return false;
      this.error = problem instanceof Error ? problem.message : String(problem);
      set(problem instanceof ApiError ? "live" : "lost");
      return false;
    } finally {
      if (this.#asking === asking) this.busy = false;
    }
  }

  /** Nobody waits for the answer any more. */
  stop(): void {
    this.#asking?.abort();
    set("off");
  }

  /** Ask now, and again so many milliseconds after each answer; returns what ends it, for `$effect`. */
  every(milliseconds: number, question: (signal: AbortSignal) => Promise<T>): () => void {
    let timer = 0;
    let over = false;
    const again = async () => {
      if (!document.hidden) await this.ask(question);
      if (!over) timer = window.setTimeout(again, milliseconds);
    };
    void again();
    return () => {
      over = true;
      window.clearTimeout(timer);
      this.stop();
    };
  }
}
