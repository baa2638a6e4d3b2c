/** Numbers over time, for `Chart`; those of actors come from the table `history`. */
import type { Answer } from "./api";
import { past } from "./past.svelte";

/** A line of a chart; null: nothing is known there. */
export interface Series {
  name: string;
  values: (number | null)[];
}

/** What actors did over the last ten minutes. */
export interface Activity extends Pick<Answer, "left_out"> {
  /** Where points are, in seconds since 1970. */
  at: number[];
  /** Messages in a second, by actor. */
  handled: Series[];
  /** Messages that wait, by actor. */
  waiting: Series[];
}

interface Point {
  /** Null: of all that are not among the busiest. */
  actor: string | null;
  part: number;
  handled: number;
  waiting: number;
}

const WIDE = 10; // seconds of a point: those of the coarsest rows that are kept
const POINTS = 59; // for ten minutes there are rows of seconds
const LATE = 6; // points that are asked for again: rows of hosts whose clock is behind come late
const LINES = 8; // actors that have a line of their own

/** Ten seconds are a point; rows of seconds count from the point `fine` on, as there are not all of those before. Many actors of a name are one. */
const ASKED = (from: string, until: string, fine: number) => `
  WITH parts AS (
    SELECT actor_id, timestamp_us // 10000000 AS part, CASE WHEN part < ${fine} THEN -seconds::BIGINT ELSE seconds END AS coarse,
      sum(handled) AS handled, arg_max(queue_depth, timestamp_us) AS waiting
    FROM history WHERE timestamp_us >= ${from} AND timestamp_us < ${until} // 10000000 * 10000000 GROUP BY ALL),
  chosen AS (SELECT actor_id, part, arg_min(handled, coarse) AS handled, arg_min(waiting, coarse) AS waiting FROM parts GROUP BY ALL),
  named AS (
    SELECT a.name AS actor, part, sum(c.handled) AS handled, sum(waiting) AS waiting,
      sum(sum(c.handled)) OVER (PARTITION BY a.name) AS all_handled, sum(sum(waiting)) OVER (PARTITION BY a.name) AS all_waiting
    FROM chosen c JOIN actors a ON a.id = c.actor_id GROUP BY a.name, part),
  ranked AS (
    SELECT *, dense_rank() OVER (ORDER BY all_handled DESC, actor) AS by_handled, dense_rank() OVER (ORDER BY all_waiting DESC, actor) AS by_waiting
    FROM named)
  SELECT CASE WHEN least(by_handled, by_waiting) <= 20 THEN actor END AS actor, part, sum(handled)::BIGINT AS handled, sum(waiting)::BIGINT AS waiting
  FROM ranked GROUP BY ALL ORDER BY part`;

/** Asks for all ten minutes once, then, as long as they are live, for what is new. */
export class Activities {
  #points: Point[] = [];
  #from = 0;

  question(until: string): string {
    if (!past.live) this.#points = [];
    const last = this.#points.at(-1)?.part;
    this.#from = last === undefined ? 0 : last - LATE;
    const from = last === undefined ? `(${until} // 10000000 - ${POINTS}) * 10000000` : String(this.#from * WIDE * 1e6);
    return ASKED(from, until, Math.floor(past.end / WIDE) - POINTS);
  }

  /** What is known with the answer to the last question. */
  take({ rows, left_out }: Answer): Activity {
    const found = rows as unknown as Point[];
    const end = Math.max(Math.floor(past.moment / WIDE), (found.at(-1)?.part ?? 0) + 1);
    this.#points = [...this.#points.filter(({ part }) => part < this.#from), ...found].filter(({ part }) => part >= end - POINTS);
    return { ...charted(this.#points, end), left_out };
  }
}

function charted(points: readonly Point[], end: number): Pick<Activity, "at" | "handled" | "waiting"> {
  const begin = points[0]?.part ?? end;
  const total = { handled: 0, waiting: 0 };
  const sums = new Map<string | null, typeof total>();
  for (const { actor, handled, waiting } of points) {
    const sum = sums.get(actor) ?? { handled: 0, waiting: 0 };
    sums.set(actor, { handled: sum.handled + handled, waiting: sum.waiting + waiting });
    total.handled += handled;
    total.waiting += waiting;
  }
  const share = ({ handled, waiting }: typeof total) => handled / (total.handled || 1) + waiting / (total.waiting || 1);
  const names = [...sums].filter(([actor]) => actor !== null).sort(([, one], [, other]) => share(other) - share(one));
  const busiest = names.slice(0, LINES).map(([actor]) => actor as string).sort(); // in an order that stays, and so do colours
  const line = (what: "handled" | "waiting", seconds: number): Series[] => {
    const found = [...busiest, ...(sums.size > busiest.length ? ["all others"] : [])].map((name) => ({ name, values: new Array<number>(end - begin).fill(0) }));
    for (const { actor, part, ...point } of points) {
      const at = actor === null ? -1 : busiest.indexOf(actor);
      const values = found.at(at)!.values;
      values[part - begin] = (values[part - begin] ?? 0) + point[what] / seconds;
    }
    return found;
  };
  return { at: Array.from({ length: end - begin }, (_, part) => (begin + part) * WIDE), handled: line("handled", WIDE), waiting: line("waiting", 1) };
}
