/** Values as people read them. */

/** `trainers[0-3]`; the client, and a host that does not answer, have no number. */
export const rankName = (mesh: string, ranks: string | number) => (mesh === "client" || mesh.startsWith("host ") ? mesh : `${mesh}[${ranks}]`);

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  let left = count;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at++;
  }
  return `${left.toFixed(at && left < 100 ? 1 : 0)} ${units[at]}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(0)} h` : `${(seconds / 86400).toFixed(0)} d`;
}

export function number(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });
}

export const percent = (value: number | null | undefined) => (value === null || value === undefined ? "–" : `${value.toFixed(0)} %`);

/** Bytes in a second. */
export const rate = (value: number | null | undefined) => `${bytes(value)}/s`;

/** As `number`, and three digits of what is small. */
export const figure = (value: number | null | undefined) => (value && Math.abs(value) < 0.1 ? value.toPrecision(3) : number(value));

/** The time of the day by the clock of this browser, with the date if it is of another day. */
export function time(seconds: number): string {
  const at = new Date(seconds * 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return `${day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** The time of the day to the second, or to the millisecond. */
export function clock(seconds: number, finely: boolean): string {
  const at = new Date(seconds * 1000);
  return `${at.toLocaleTimeString("sv")}${finely ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : ""}`;
}

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])/g;
const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Text of a program without what terminals take for commands; what turns the direction of writing is shown as a mark. */
export const plain = (text: string) => text.replace(ESCAPES, "").replace(CONTROLS, "\ufffd");
