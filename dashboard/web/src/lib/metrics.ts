/** What programs have recorded, by `get_meter` or by marks of steps, over time: of all ranks the smallest, the median and the largest. */
import type { Answer } from "./api";
import type { Series } from "./series";

/** One metric over time. */
export interface Metric {
  name: string;
  unit: string;
  ranks: number;
  at: number[];
  /** The smallest, the median and the largest of its ranks. */
  band: Series[];
}

interface MetricRow {
  name: string;
  kind: string;
  unit: string;
  part: number;
  least: number;
  middle: number;
  most: number;
  ranks: number;
}

export const SPANS: Record<string, number> = { "ten minutes": 600, "an hour": 3600, "the whole run": 0 };

const POINTS = 120;
const LATE = 4; // points that are asked for again

/**
 * A counter is told by what it gains in a second, a histogram by the mean of what came; both are kept as sums. Sets of attributes are added up for
 * each rank, but those of gauges, of which a rank has the mean.
 */
const METRICS = (from: number, until: number, seconds: number) => `
  WITH points AS (
    SELECT name, kind, unit, proc_id, attributes_json, timestamp_us // ${Math.round(seconds * 1e6)} AS part, arg_max(value, timestamp_us) AS value,
      arg_max(count, timestamp_us) AS count, max(timestamp_us) / 1e6 AS told
    FROM metric_history WHERE timestamp_us >= ${Math.round(from * 1e6)} AND timestamp_us < ${Math.round(until * 1e6)} GROUP BY ALL),
  changes AS (
    SELECT *, value - lag(value) OVER w AS gained, count - lag(count) OVER w AS more, told - lag(told) OVER w AS took FROM points
    WINDOW w AS (PARTITION BY name, proc_id, attributes_json ORDER BY part)),
  ranks AS (
    SELECT name, kind, unit, proc_id, part,
      CASE kind WHEN 'gauge' THEN avg(value) WHEN 'sum' THEN sum(gained / took) ELSE sum(gained) / nullif(sum(more), 0) END AS value
    FROM changes GROUP BY name, kind, unit, proc_id, part)
  SELECT name, kind, unit, part, min(value) AS least, median(value) AS middle, max(value) AS most, count(*) AS ranks
  FROM ranks WHERE isfinite(value)
  GROUP BY ALL
  UNION ALL BY NAME
  SELECT 'step time' AS name, 'gauge' AS kind, 's' AS unit, timestamp_us // ${Math.round(seconds * 1e6)} AS part, min(took) AS least, median(took) AS middle,
    max(took) AS most, count(DISTINCT proc_id) AS ranks
  FROM (SELECT timestamp_us, proc_id, duration_us / 1e6 AS took FROM steps
    WHERE duration_us IS NOT NULL AND timestamp_us >= ${Math.round(from * 1e6)} AND timestamp_us < ${Math.round(until * 1e6)}) GROUP BY ALL
  ORDER BY part`;

/** The metrics of one span: asks for all of it once, then, as long as it is live, for what is new. */
export class MetricHistory {
  #rows: MetricRow[] = [];
  #from = 0; // the point of which a part alone was asked for

  constructor(readonly span: number) {}

  get seconds(): number {
    return this.span ? Math.max(1, this.span / POINTS) : 10;
  }

  question(until: number, live: boolean): string {
    const last = live ? this.#rows.reduce((most, { part }) => Math.max(most, part), 0) : 0;
    this.#from = last - LATE;
    return METRICS(last ? this.#from * this.seconds : this.span && until - this.span, until, this.seconds);
  }

  take({ rows }: Answer, until: number): Metric[] {
    const news = (rows as unknown as MetricRow[]).filter(({ part }) => part > this.#from);
    const begin = this.span ? (until - this.span) / this.seconds : 0;
    this.#rows = [...this.#rows.filter(({ part }) => part >= begin && part <= this.#from), ...news];
    return metricsOf(this.#rows, this.seconds);
  }
}

function metricsOf(rows: MetricRow[], seconds: number): Metric[] {
  const found = new Map<string, MetricRow[]>();
  for (const row of rows) found.set(row.name, [...(found.get(row.name) ?? []), row]);
  return [...found].sort(([one], [other]) => one.localeCompare(other)).map(([name, points]) => ({
    name,
    unit: points[0]!.kind === "sum" ? `${points[0]!.unit.replace(/^1$/, "")}/s` : points[0]!.unit,
    ranks: Math.max(...points.map(({ ranks }) => ranks)),
    at: points.map(({ part }) => part * seconds),
    band: (["least", "middle", "most"] as const).map((which, number) => ({
      name: ["smallest", "median", "largest"][number]!,
      values: points.map((point) => point[which]),
    })),
  }));
}
