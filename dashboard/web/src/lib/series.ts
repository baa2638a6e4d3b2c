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

/** Points of ten minutes: asks for all of them once, then, as long as they are live, for what is new. */
class Points<P extends { part: number }> {
  protected points: P[] = [];
  #from = 0;

  /** From when on is to be asked, in SQL. */
  protected since(until: string): string {
    if (!past.live) this.points = [];
    const last = this.points.at(-1)?.part;
    this.#from = last === undefined ? 0 : last - LATE;
    return last === undefined ? `(${until} // 10000000 - ${POINTS}) * 10000000` : String(this.#from * WIDE * 1e6);
  }

  /** Take what came; the part behind the last one. */
  protected add(found: P[]): number {
    const end = Math.max(Math.floor(past.moment / WIDE), (found.at(-1)?.part ?? 0) + 1);
    this.points = [...this.points.filter(({ part }) => part < this.#from), ...found].filter(({ part }) => part >= end - POINTS);
    return end;
  }
}

export class Activities extends Points<Point> {
  question(until: string): string {
    return ASKED(this.since(until), until, Math.floor(past.end / WIDE) - POINTS);
  }

  /** What is known with the answer to the last question. */
  take({ rows, left_out }: Answer): Activity {
    const end = this.add(rows as unknown as Point[]);
    return { ...charted(this.points, end), left_out };
  }
}

const FIGURES = ["load", "memory", "cpu", "network", "disk"] as const;
type Figure = (typeof FIGURES)[number];

/** What machines did over the last ten minutes: load, memory in use, processors busy and the fullest disk in per cent, bytes of the network in a second. */
export type Machines = Pick<Answer, "left_out"> & { at: number[] } & Record<Figure, Series[]>;

type MachinePoint = { machine: string; part: number } & Record<Figure, number | null>;

const each = (how: string) => FIGURES.map((name) => `${how}(${name})`).join(", ");

/** A line for each machine; of more than eight the highest, the median and the lowest. */
const OF_MACHINES = (from: string, until: string) => `
  WITH rows AS (
    SELECT h.machine, h.cpus, y.*, (y.timestamp_us - lag(y.timestamp_us) OVER w) / 1e6 AS took, y.cpu_seconds - lag(y.cpu_seconds) OVER w AS worked,
      y.rx_bytes + y.tx_bytes - lag(y.rx_bytes + y.tx_bytes) OVER w AS moved
    FROM host_history y JOIN hosts h ON h.id = y.host_id
    WHERE y.timestamp_us >= ${from} AND y.timestamp_us < ${until} // 10000000 * 10000000 WINDOW w AS (PARTITION BY y.host_id ORDER BY y.timestamp_us)),
  points AS (
    SELECT machine, timestamp_us // 10000000 AS part, avg(load_1m) AS load, avg(memory_used_bytes) AS memory,
      100 * avg(worked / took / cpus) AS cpu, avg(moved / took) AS network, avg(disk_percent) AS disk
    FROM rows WHERE took > 1 GROUP BY ALL),
  many AS (SELECT count(DISTINCT machine) > ${LINES} AS are FROM hosts)
  SELECT machine, part, ${FIGURES.join(", ")} FROM points, many WHERE NOT are
  UNION ALL SELECT 'highest', part, ${each("max")} FROM points, many WHERE are GROUP BY part
  UNION ALL SELECT 'median', part, ${each("median")} FROM points, many WHERE are GROUP BY part
  UNION ALL SELECT 'lowest', part, ${each("min")} FROM points, many WHERE are GROUP BY part
  ORDER BY part`;

export class MachineHistory extends Points<MachinePoint> {
  question(until: string): string {
    return OF_MACHINES(this.since(until), until);
  }

  /** What is known with the answer to the last question. */
  take({ rows, left_out }: Answer): Machines {
    this.add(rows as unknown as MachinePoint[]);
    const begin = this.points[0]?.part ?? 0;
    const count = this.points.length ? this.points.at(-1)!.part - begin + 1 : 0;
    const names = [...new Set(this.points.map(({ machine }) => machine))].sort();
    const line = (what: Figure): Series[] => {
      const found = names.map((name) => ({ name, values: new Array<number | null>(count).fill(null) }));
      for (const point of this.points) found[names.indexOf(point.machine)]!.values[point.part - begin] = point[what];
      return found;
    };
    const at = Array.from({ length: count }, (_, part) => (begin + part) * WIDE);
    return { at, load: line("load"), memory: line("memory"), cpu: line("cpu"), network: line("network"), disk: line("disk"), left_out };
  }
}

/** What GPUs did over the last ten minutes, in per cent: the lowest, the median and the highest of all. */
export interface Gpus {
  at: number[];
  busy: Series[];
  memory: Series[];
}

type GpuPoint = { part: number } & Record<string, number | null>;

/** Hosts tell of their GPUs the lowest, the median and the highest. */
const OF_GPUS = (from: string, until: string) => `
  SELECT timestamp_us // 10000000 AS part, ${["busy", "memory"].map((what) => `min(gpu_${what}_low) AS ${what}0, median(gpu_${what}_median) AS ${what}1, max(gpu_${what}_high) AS ${what}2`).join(", ")}
  FROM host_history WHERE timestamp_us >= ${from} AND timestamp_us < ${until} // 10000000 * 10000000
  GROUP BY ALL HAVING busy1 IS NOT NULL OR memory1 IS NOT NULL ORDER BY part`;

export class GpuHistory extends Points<GpuPoint> {
  question(until: string): string {
    return OF_GPUS(this.since(until), until);
  }

  take({ rows }: Answer): Gpus {
    this.add(rows as unknown as GpuPoint[]);
    const line = (what: string) => ["lowest", "median", "highest"].map((name, number) => ({ name, values: this.points.map((each) => each[`${what}${number}`] ?? null) }));
    return { at: this.points.map(({ part }) => part * WIDE), busy: line("busy"), memory: line("memory") };
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
