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

async function answer(response: Response): Promise<Response> {
  if (response.ok) return response;
  let code = "";
  let message = `the server answered ${response.status}`;
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    ({ code, message } = error);
  } catch {
    // it was no JSON: a proxy has answered
  }
  throw new ApiError(response.status, code, message);
}

type Values = Record<string, string | number | boolean | undefined>;

function query(values: Values): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

export async function get<T>(path: string, values: Values = {}, signal?: AbortSignal): Promise<T> {
  const response = await fetch(`${path}?${query(values)}`, { signal: signal ?? null });
  return (await (await answer(response)).json()) as T;
}

export async function post<T>(path: string, body: object = {}, signal?: AbortSignal): Promise<T> {
  return (await (await send(path, body, signal)).json()) as T;
}

/** As `post`, of an answer that is a file. */
export async function postForFile(path: string, body: object = {}): Promise<Blob> {
  return await (await send(path, body)).blob();
}

async function send(path: string, body: object, signal?: AbortSignal): Promise<Response> {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: signal ?? null }));
}

export type Row = Record<string, unknown>;

export interface Answer<R = Row> {
  rows: R[];
  columns: string[];
  silent: Record<string, string>;
  left_out: Record<string, number>;
}

/** Ask in SQL. Integers that a number here can't hold, such as ids, come as texts of their digits. */
export async function sql<R = Row>(text: string, signal?: AbortSignal): Promise<Answer<R>> {
  const body = await (await send("v1/query", { sql: text }, signal)).text();
  return JSON.parse(body, exact) as Answer<R>;
}

/** Browsers that do not tell the source of a value show it rounded. */
const exact = (_key: string, value: unknown, told?: { source?: string }) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) ? (told?.source ?? value) : value;

/** The URL of a stream of events. */
export const stream = (path: string, values: Values = {}) => `${path}?${query(values)}`;
