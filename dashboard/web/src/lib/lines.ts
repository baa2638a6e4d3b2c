/** An answer in SQL as lines over time, where it has a column of times and others of numbers. */
import type { Answer } from "./api";
import type { Series } from "./series";

export interface Lines {
  at: number[];
  series: Series[];
}

const MOST = 9; // lines: more are not told apart

/** Seconds since 1970 of what is a time: microseconds, seconds, or text as duckdb writes it. */
function seconds(name: string, value: unknown): number | undefined {
  if (typeof value === "number") return name.endsWith("_us") && value > 1e14 ? value / 1e6 : /^(at|time|timestamp)$/.test(name) && value > 1e8 ? value : undefined;
  const found = typeof value === "string" && /^\d{4}-\d\d-\d\d[ T]\d\d:/.test(value) ? Date.parse(value.replace(" ", "T")) : NaN;
  return Number.isNaN(found) ? undefined : found / 1000;
}

/** A line for each column of numbers, and for each combination of what else there is. */
export function linesOf({ rows, columns }: Answer): Lines | undefined {
  const time = columns.find((name) => rows.length > 1 && rows.every((row) => seconds(name, row[name]) !== undefined));
  if (time === undefined) return undefined;
  const isNumber = (name: string) => rows.some((row) => typeof row[name] === "number") && rows.every((row) => row[name] === null || typeof row[name] === "number");
  const numbers = columns.filter((name) => name !== time && isNumber(name));
  const others = columns.filter((name) => name !== time && !numbers.includes(name));
  const when = rows.map((row) => seconds(time, row[time]) ?? 0);
  const at = [...new Set(when)].sort((one, other) => one - other);
  const places = new Map(at.map((each, place) => [each, place]));
  const found = new Map<string, Series>();
  rows.forEach((row, number) => {
    const of = others.map((name) => String(row[name]));
    for (const name of numbers) {
      const title = [...of, ...(numbers.length > 1 || !of.length ? [name] : [])].join(" ");
      const line = found.get(title) ?? { name: title, values: new Array<number | null>(at.length).fill(null) };
      line.values[places.get(when[number]!)!] = row[name] as number | null;
      if (found.size <= MOST) found.set(title, line);
    }
  });
  return at.length > 1 && found.size > 0 && found.size <= MOST ? { at, series: [...found.values()] } : undefined;
}
