/** What the server answers. URLs are relative: the server may stand behind a path of a proxy. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The path of the server, which may stand behind that of a proxy; saved runs are below it. */
export const root = location.pathname.replace(/(login|runs\/[0-9a-f]{16}\/)$/, "");

/** Where the session is kept: for this origin, of which the port is a part. A cookie would go to each server of this host. */
const KEY = `monarch-session ${root}`;

/** The link that has led here is exchanged, once, for a session; all that is asked waits for that. */
const entered = location.pathname.endsWith("/login") ? enter() : undefined;

async function enter(): Promise<void> {
  try {
    const response = await fetch(`login${location.search}`, { method: "POST" });
    if (response.ok) localStorage.setItem(KEY, ((await response.json()) as { session: string }).session);
    history.replaceState(null, "", `./${location.hash}`); // the link is used up; perhaps it was before, by this browser
  } catch {
    // nobody answers: what is asked next says so, and the link is still there for another try
  }
}

async function ask(path: string, how: { method?: string; headers?: Record<string, string>; body?: string; signal?: AbortSignal | null } = {}): Promise<Response> {
  await entered;
  const headers = { ...how.headers, "X-Monarch-Session": localStorage.getItem(KEY) ?? "" };
  return answer(await fetch(path, { ...how, headers }));
}

async function answer(response: Response): Promise<Response> {
  if (response.ok) return response;
  let code = "";
  let message = `the server answered ${response.status}`;
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    ({ code, message } = error);
  } catch {
    if (response.status === 429) message = "too many questions: the server, or a proxy before it, answers 429"; // and no JSON
  }
  throw new ApiError(response.status, code, message);
}

type Values = Record<string, string | number | boolean | undefined>;

function query(values: Values): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

export async function get<T>(path: string, values: Values = {}, signal?: AbortSignal): Promise<T> {
  const response = await ask(`${path}?${query(values)}`, { signal: signal ?? null });
  return (await response.json()) as T;
}

/** As `get`, of an answer that is a file. */
export async function getFile(path: string, values: Values = {}): Promise<Blob> {
  return await (await ask(`${path}?${query(values)}`)).blob();
}

export async function post<T>(path: string, body: object = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, body, signal)).json()) as T;
}

/** As `post`, of an answer that is a file. */
export async function postForFile(path: string, body: object = {}): Promise<Blob> {
  return await (await send(path, body)).blob();
}

/** Have the browser save a file. */
export function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function send(path: string, body: object, signal?: AbortSignal): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
  return ask(path, { method: "POST", headers, body: JSON.stringify(body), signal: signal ?? null });
}

export type Row = Record<string, unknown>;

export interface Answer<R = Row> {
  rows: R[];
  columns: string[];
  silent: Record<string, string>;
  left_out: Record<string, number>;
}

const PATIENCE = 30; // seconds that a question may take, which is the most that the server takes: several at once do on 10,000 ranks

/** Ask in SQL. Integers that a number here can't hold, such as ids, come as texts of their digits. */
export async function sql<R = Row>(text: string, signal?: AbortSignal): Promise<Answer<R>> {
  const body = await (await send("v1/query", { sql: text, timeout: PATIENCE }, signal)).text();
  return JSON.parse(body, exact) as Answer<R>;
}

/** Browsers that do not tell the source of a value show it rounded. */
const exact = (_key: string, value: unknown, told?: { source?: string }) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) ? (told?.source ?? value) : value;

/** The URL of a stream of events. */
export const stream = (path: string, values: Values = {}) => `${path}?${query(values)}`;

/** `id`: where a stream goes on behind it; empty if it says nothing of that. */
export interface Sent {
  name: string;
  data: unknown;
  id: string;
}

/**
 * Server-sent events as they come, several at a time. Read by hand: an `EventSource` does not say why it was refused, nor that nothing comes.
 *
 * `place`: behind which they go on; empty for where they begin.
 */
export async function* events(url: string, place: string, signal: AbortSignal): AsyncGenerator<Sent[]> {
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (place) headers["Last-Event-ID"] = place;
  const response = await ask(url, { headers, signal });
  if (!response.body || !response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    throw new ApiError(404, "", "this is no stream of events: a proxy has answered");
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts: string[] = []; // of an event that has not come as a whole: a large one comes in many
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const last = parts.at(-1) ?? "";
    parts.push(value);
    if (!(last.slice(-1) + value).includes("\n\n")) {
      yield [];
      continue;
    }
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop() ?? ""];
    yield blocks.flatMap(parsed);
  }
}

function parsed(block: string): Sent[] {
  const fields: Record<string, string> = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(": ");
    fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  const { event: name, data, id = "" } = fields;
  return name !== undefined && data !== undefined ? [{ name, data: JSON.parse(data) as unknown, id }] : []; // not a comment
}
