/** What the page Timeline asks for, and how rows of ranks are laid out. Times are seconds since 1970. */

/** Ranks that have a track each; more are drawn as bands. */
export const TRACKS = 64;
/** Parts of time that bands are drawn in. */
export const PARTS = 200;
/** Bands at most, of all meshes together. */
const BANDS = 100;

export interface Mesh {
  id: string;
  mesh: string;
  size: number;
}

/** A row: ranks of a mesh that lie side by side, or one. */
export interface Track extends Mesh {
  first: number;
  last: number;
}

export interface Band {
  id: string;
  band: number;
  part: number[];
  took: number[];
}

export interface Slices {
  id: string;
  rank: number;
  kind: "call" | "span" | "step";
  name: string[];
  begin: number[];
  took: (number | null)[];
}

export interface Happened {
  time: number;
  what: string;
  id: string;
  mesh: string;
  many: number;
  first: number;
  last: number;
  reason: string | null;
}

export interface Wait {
  id: string;
  rank: number;
  since: number;
  endpoint: string | null;
  waits_for: string;
}

/** How many ranks a row has: one, or as many as it takes to have few rows. */
export function perRow(meshes: readonly Mesh[], range: readonly [number, number] | undefined): number {
  const sizes = range ? [range[1] - range[0] + 1] : meshes.map(({ size }) => size);
  if (sizes.reduce((sum, size) => sum + size, 0) <= TRACKS) return 1;
  let ranks = 2;
  while (sizes.reduce((sum, size) => sum + Math.ceil(size / ranks), 0) > BANDS) ranks *= 2;
  return ranks;
}

export function tracksOf(meshes: readonly Mesh[], range: readonly [number, number] | undefined, ranks: number): Track[] {
  return meshes.flatMap((mesh) => {
    const [from, to] = range ? [range[0], Math.min(range[1], mesh.size - 1)] : [0, mesh.size - 1];
    const rows: Track[] = [];
    for (let band = Math.floor(from / ranks); band * ranks <= to; band++) {
      rows.push({ ...mesh, first: Math.max(from, band * ranks), last: Math.min(to, (band + 1) * ranks - 1) });
    }
    return rows;
  });
}

export const nameOf = ({ mesh, first, last }: Track) => `${mesh}[${first === last ? first : `${first}-${last}`}]`;

const us = (seconds: number) => Math.round(seconds * 1e6);

/** What is looked at: a time, and ranks of a mesh, or all. */
export interface View {
  from: number;
  to: number;
  mesh: string | undefined;
  range: readonly [number, number] | undefined;
  /** Whether it is how things are at its end, so that tables of how things are belong to it. */
  current: boolean;
}

/** A number of the URL, and nothing else, gets into SQL. */
const chosen = ({ mesh, range }: View) =>
  `p.mesh <> 'client'${mesh ? ` AND p.mesh_id = ${BigInt(mesh)}` : ""}${range ? ` AND p.rank BETWEEN ${range[0]} AND ${range[1]}` : ""}`;

const OF_ACTOR = "JOIN actors a ON a.id = actor JOIN procs p ON p.id = a.proc_id";

/** Calls that were handled in that time. One that began long before it and is over is not asked for, but where one looks back. */
function calls({ from, to, current }: View): string {
  const early = us(from - (current ? Math.max(60, to - from) : 3600));
  const since = `SELECT id AS actor, endpoint, since_us AS begin, ${us(to)} AS finish, true AS open FROM actors
      WHERE since_us < ${us(to)} AND status = 'Processing' AND id NOT IN (SELECT actor FROM kept WHERE open)`;
  return `kept AS (
      SELECT to_actor_id AS actor, endpoint, timestamp_us AS begin, least(coalesce(timestamp_us + duration_us, ${us(to)}), ${us(to)}) AS finish,
        coalesce(timestamp_us + duration_us > ${us(to)}, true) AS open
      FROM messages WHERE timestamp_us >= ${early} AND timestamp_us <= ${us(to)}),
    calls AS (SELECT * FROM kept${current ? ` UNION ALL ${since}` : ""})`;
}

export const meshesOf = (mesh: string | undefined) => `
  SELECT p.mesh_id::VARCHAR AS id, any_value(p.mesh) AS mesh, max(p.size) AS size FROM procs p
  WHERE ${chosen({ mesh, range: undefined, from: 0, to: 0, current: true })} GROUP BY p.mesh_id ORDER BY size DESC, mesh`;

/** Of each band, and each part of time, the seconds of the longest call that was handled in it. */
export function bandsOf(view: View, ranks: number): string {
  const part = Math.max(1, us(view.to - view.from) / PARTS);
  const [from, to] = [us(view.from), us(view.to)];
  return `
  WITH ${calls(view)},
    placed AS (
      SELECT p.mesh_id, p.rank // ${ranks} AS band, finish - begin AS took,
        unnest(range(((greatest(begin, ${from}) - ${from}) / ${part})::INT, least(${PARTS - 1}, ((finish - ${from}) / ${part})::INT) + 1)) AS part
      FROM calls ${OF_ACTOR} WHERE finish >= ${from} AND begin <= ${to} AND ${chosen(view)}),
    cells AS (SELECT mesh_id, band, part, max(took) / 1e6 AS took FROM placed GROUP BY ALL)
  SELECT mesh_id::VARCHAR AS id, band, list(part) AS part, list(round(took, 4)) AS took FROM cells GROUP BY ALL`;
}

/** All calls, spans and steps of a few ranks. */
export function slicesOf(view: View): string {
  const [from, to] = [us(view.from), us(view.to)];
  const early = us(view.from - Math.max(60, view.to - view.from));
  return `
  WITH ${calls(view)},
    found AS (
      SELECT p.mesh_id, p.rank, 'call' AS kind, coalesce(calls.endpoint, '') AS name, begin, CASE WHEN NOT open THEN finish - begin END AS took
        FROM calls ${OF_ACTOR} WHERE ${chosen(view)}
      UNION ALL SELECT p.mesh_id, p.rank, 'span', s.name, s.timestamp_us, s.duration_us FROM spans s JOIN procs p ON p.id = s.process_id
        WHERE s.timestamp_us >= ${early} AND s.timestamp_us <= ${to} AND ${chosen(view)}
      UNION ALL SELECT p.mesh_id, p.rank, 'step', s.step::VARCHAR, s.timestamp_us - coalesce(s.duration_us, 0), s.duration_us
        FROM steps s JOIN procs p ON p.id = s.proc_id WHERE s.timestamp_us >= ${from} AND s.timestamp_us <= ${to} AND ${chosen(view)}),
    latest AS (SELECT * FROM found WHERE begin <= ${to} AND coalesce(begin + took >= ${from}, true) ORDER BY begin DESC LIMIT 30000)
  SELECT mesh_id::VARCHAR AS id, rank, kind, list(name ORDER BY begin) AS name, list(begin / 1e6 ORDER BY begin) AS begin,
    list(took / 1e6 ORDER BY begin) AS took FROM latest GROUP BY mesh_id, rank, kind`;
}

/** The life of actors, equal events of a second together, and failures. */
export const happenedOf = (view: View) => `
  WITH life AS (
    SELECT min(e.timestamp_us) / 1e6 AS time, e.new_status AS what, p.mesh_id::VARCHAR AS id, p.mesh, count(*) AS many, min(p.rank) AS first,
      max(p.rank) AS last, any_value(e.reason) AS reason
    FROM actor_status_events e JOIN actors a ON a.id = e.actor_id JOIN procs p ON p.id = a.proc_id
    WHERE e.timestamp_us >= ${us(view.from)} AND e.timestamp_us <= ${us(view.to)} AND ${chosen(view)}
    GROUP BY e.timestamp_us // 1000000, e.new_status, p.mesh_id, p.mesh),
  failures AS (
    SELECT failure_occurred_at / 1e6, 'failure', NULL, coalesce(failure_root_cause_actor, node_id), 1, 0, 0, failure_error_message
    FROM actor_failures WHERE failure_occurred_at BETWEEN ${us(view.from)} AND ${us(view.to)} AND NOT failure_is_propagated)
  FROM (FROM life UNION ALL FROM failures) ORDER BY what IN ('Failed', 'failure') DESC, time DESC LIMIT 200`;

export const waitsOf = (view: View) => `
  SELECT p.mesh_id::VARCHAR AS id, p.rank, w.since_us / 1e6 AS since, w.endpoint, w.waits_for FROM waits w JOIN procs p ON p.id = w.proc_id
  WHERE w.since_us IS NOT NULL AND ${chosen(view)} ORDER BY since LIMIT 2000`;

/** Of each mesh the seconds that a call usually takes: the median of its bands, at the time when that was least. */
export function usual(bands: readonly Band[]): Map<string, number> {
  const parts = new Map<string, number[][]>();
  for (const { id, part, took } of bands) {
    const found = parts.get(id) ?? [];
    parts.set(id, found);
    part.forEach((at, index) => (found[at] ??= []).push(took[index] ?? 0));
  }
  const median = (values: number[]) => values.sort((one, other) => one - other)[values.length >> 1] ?? 0;
  return new Map([...parts].map(([id, found]) => [id, Math.min(...found.filter(Boolean).map(median))]));
}

/** Which of the shades 1 to 8 a call has: 3 is usual, 8 is ten times as long. */
export const shadeOf = (took: number, usually: number) => Math.max(1, Math.min(8, Math.round(3 + 1.5 * Math.log2(Math.max(1e-6, took) / Math.max(1e-6, usually)))));

/** In which lane each slice lies, so that none covers another; slices are in the order of their begin. */
export function lanes(begin: readonly number[], took: readonly (number | null)[], most: number): number[] {
  const free: number[] = [];
  return begin.map((at, index) => {
    const end = took[index] === null ? Infinity : at + (took[index] ?? 0);
    const found = free.findIndex((until) => until <= at + 1e-6);
    const lane = Math.min(found < 0 ? free.length : found, most - 1);
    free[lane] = Math.max(free[lane] ?? 0, end);
    return lane;
  });
}

/** Of a few colours one for each name. */
export function colourOf(name: string, colours: number): number {
  let mixed = 7;
  for (const letter of name) mixed = (mixed * 31 + letter.charCodeAt(0)) >>> 0;
  return mixed % colours;
}
