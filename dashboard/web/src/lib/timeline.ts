/** What the page Timeline asks for, and how rows of ranks are laid out. Times are seconds since 1970. */

/** Ranks that have a track each; more are drawn as bands. */
export const TRACKS = 64;
/** Parts of time that bands are drawn in. */
export const PARTS = 200;
/** Bands at most, of all meshes together. */
const BANDS = 160;

/** A mesh, and those of its ranks that are looked at; their hosts are numbered in the order of their first ranks. */
export interface Mesh {
  id: string;
  mesh: string;
  size: number;
  ranks: number[];
  /** Of each of these ranks, the number of its host. */
  hosts: number[];
  /** Names of hosts by their numbers. */
  machines: Record<string, string | null>;
}

/** How ranks are put together to bands: of each mesh, by its id, so many neighbouring hosts, or ranks. */
export interface Fold {
  by: "host" | "rank";
  many: Map<string, number>;
}

/** A row: a rank, or a band. */
export interface Track {
  id: string;
  mesh: string;
  size: number;
  /** Which band of its mesh it is. */
  band: number;
  ranks: number[];
  /** The first and the last of its hosts, and what they are called. */
  hosts: [number, number];
  machines: string;
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

/** How ranks become rows: each has its own, or bands are of hosts, or of ranks where they share one. A mesh with few of them on a host has more hosts in a band. */
export function foldOf(meshes: readonly Mesh[]): Fold | undefined {
  if (meshes.reduce((sum, { ranks }) => sum + ranks.length, 0) <= TRACKS) return undefined;
  const hostsOf = ({ hosts }: Mesh) => new Set(hosts).size;
  const by = meshes.some((mesh) => hostsOf(mesh) > 1) ? "host" : "rank";
  const units = meshes.map((mesh) => (by === "host" ? hostsOf(mesh) : mesh.ranks.length));
  const dense = meshes.map(({ ranks }, at) => ranks.length / units[at]!);
  for (let ranks = Math.max(by === "host" ? 1 : 2, ...dense); ; ranks *= 2) {
    const many = dense.map((each) => 2 ** Math.ceil(Math.log2(ranks / each)));
    // a mesh has a band at least, however many there are
    if (units.reduce((sum, count, at) => sum + Math.ceil(count / many[at]!), 0) > Math.max(BANDS, meshes.length)) continue;
    return { by, many: new Map(meshes.map(({ id }, at) => [id, many[at]!])) };
  }
}

export function tracksOf(meshes: readonly Mesh[], fold: Fold | undefined): Track[] {
  return meshes.flatMap(({ id, mesh, size, ranks, hosts, machines }) => {
    const found = new Map<number, Track>();
    ranks.forEach((rank, index) => {
      const host = hosts[index] ?? 0;
      const band = Math.floor((fold?.by === "host" ? host : rank) / (fold?.many.get(id) ?? 1));
      const track = found.get(band) ?? { id, mesh, size, band, ranks: [], hosts: [host, host], machines: "" };
      found.set(band, track);
      track.ranks.push(rank);
      track.hosts = [Math.min(track.hosts[0], host), Math.max(track.hosts[1], host)];
    });
    const called = (host: number) => machines[host] ?? "that does not answer";
    for (const track of found.values()) {
      const [first, last] = track.hosts;
      track.machines = first === last ? `host ${called(first)}` : `hosts ${called(first)} to ${called(last)}`;
    }
    return [...found.values()].sort((one, other) => one.band - other.band);
  });
}

/** Which track a rank of a mesh is in, by both. */
export const placesOf = (tracks: readonly Track[]) => new Map(tracks.flatMap(({ id, ranks }, at) => ranks.map((rank): [string, number] => [`${id} ${rank}`, at])));

/** Ranks as text: `0-3,7`. */
export function ranges(ranks: readonly number[]): string {
  const found: [number, number][] = [];
  for (const rank of ranks) {
    const last = found.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else found.push([rank, rank]);
  }
  return found.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(",");
}

export const nameOf = ({ mesh, ranks }: Track) => `${mesh}[${ranges(ranks)}]`;

const us = (seconds: number) => Math.round(seconds * 1e6);

/** The first and the last; undefined: all. */
export type Range = readonly [number, number] | undefined;

/** What is looked at: a time, and ranks of a mesh, or all. */
export interface View {
  from: number;
  to: number;
  mesh: string | undefined;
  /** Numbers of its hosts. */
  hosts: Range;
  ranks: Range;
  /** Whether it is how things are at its end, so that tables of how things are belong to it. */
  current: boolean;
}

/** Each rank, with the number of its host in its mesh; one that was started again elsewhere is where it is now. */
const PLACED = `
    stands AS (
      SELECT DISTINCT ON (mesh_id, rank) mesh_id, mesh, rank, size, host_id FROM procs WHERE mesh <> 'client'
      ORDER BY mesh_id, rank, state = 'ended'),
    numbered AS (
      SELECT mesh_id, host_id, row_number() OVER (PARTITION BY mesh_id ORDER BY min(rank), host_id) - 1 AS host
      FROM stands GROUP BY mesh_id, host_id),
    placed AS (SELECT mesh_id, mesh, rank, size, host_id, host FROM stands JOIN numbered USING (mesh_id, host_id))`;

/** A number of the URL, and nothing else, gets into SQL. */
function chosen({ mesh, hosts, ranks }: View): string {
  const within = (column: string, range: Range) => (range ? ` AND r.${column} BETWEEN ${range[0]} AND ${range[1]}` : "");
  return (mesh ? `r.mesh_id = ${BigInt(mesh)}` : "true") + within("host", hosts) + within("rank", ranks);
}

/** From an id of a process to the rank that it is of. */
const placedBy = (proc: string) => `JOIN procs p ON p.id = ${proc} JOIN placed r ON r.mesh_id = p.mesh_id AND r.rank = p.rank`;
const OF_ACTOR = `JOIN actors a ON a.id = actor ${placedBy("a.proc_id")}`;

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

export const meshesOf = (view: View) => `
  WITH ${PLACED}
  SELECT r.mesh_id::VARCHAR AS id, any_value(r.mesh) AS mesh, max(r.size) AS size, list(r.rank ORDER BY r.rank) AS ranks,
    list(r.host ORDER BY r.rank) AS hosts, map_from_entries(list(DISTINCT (r.host, h.machine))) AS machines
  FROM placed r LEFT JOIN hosts h ON h.id = r.host_id WHERE ${chosen(view)} GROUP BY r.mesh_id ORDER BY size DESC, mesh`;

/** Of each band, and each part of time, the seconds of the longest call that was handled in it. */
export function bandsOf(view: View, { by, many }: Fold): string {
  const band = `r.${by} // CASE r.mesh_id ${[...many].map(([id, each]) => `WHEN ${BigInt(id)} THEN ${each}`).join(" ")} ELSE 1 END`;
  const part = Math.max(1, us(view.to - view.from) / PARTS);
  const [from, to] = [us(view.from), us(view.to)];
  return `
  WITH ${PLACED},
    ${calls(view)},
    parts AS (
      SELECT r.mesh_id, ${band} AS band, finish - begin AS took,
        unnest(range(((greatest(begin, ${from}) - ${from}) / ${part})::INT, least(${PARTS - 1}, ((finish - ${from}) / ${part})::INT) + 1)) AS part
      FROM calls ${OF_ACTOR} WHERE finish >= ${from} AND begin <= ${to} AND ${chosen(view)}),
    cells AS (SELECT mesh_id, band, part, max(took) / 1e6 AS took FROM parts GROUP BY ALL)
  SELECT mesh_id::VARCHAR AS id, band, list(part) AS part, list(round(took, 4)) AS took FROM cells GROUP BY ALL`;
}

/** When something was last known of any rank. */
export const LAST = `
  SELECT max(ended) / 1e6 AS last FROM (
    SELECT max(timestamp_us + coalesce(duration_us, 0)) AS ended FROM messages
    UNION ALL SELECT max(timestamp_us + coalesce(duration_us, 0)) FROM spans
    UNION ALL SELECT max(timestamp_us) FROM steps)`;

/** All calls, spans and steps of a few ranks. */
export function slicesOf(view: View): string {
  const [from, to] = [us(view.from), us(view.to)];
  const early = us(view.from - Math.max(60, view.to - view.from));
  return `
  WITH ${PLACED},
    ${calls(view)},
    found AS (
      SELECT r.mesh_id, r.rank, 'call' AS kind, coalesce(calls.endpoint, '') AS name, begin, CASE WHEN NOT open THEN finish - begin END AS took
        FROM calls ${OF_ACTOR} WHERE ${chosen(view)}
      UNION ALL SELECT r.mesh_id, r.rank, 'span', s.name, s.timestamp_us, s.duration_us FROM spans s ${placedBy("s.process_id")}
        WHERE s.timestamp_us >= ${early} AND s.timestamp_us <= ${to} AND ${chosen(view)}
      UNION ALL SELECT r.mesh_id, r.rank, 'step', s.step::VARCHAR, s.timestamp_us - coalesce(s.duration_us, 0), s.duration_us
        FROM steps s ${placedBy("s.proc_id")} WHERE s.timestamp_us >= ${from} AND s.timestamp_us <= ${to} AND ${chosen(view)}),
    latest AS (SELECT * FROM found WHERE begin <= ${to} AND coalesce(begin + took >= ${from}, true) ORDER BY begin DESC LIMIT 30000)
  SELECT mesh_id::VARCHAR AS id, rank, kind, list(name ORDER BY begin) AS name, list(begin / 1e6 ORDER BY begin) AS begin,
    list(took / 1e6 ORDER BY begin) AS took FROM latest GROUP BY mesh_id, rank, kind`;
}

/** The life of actors, equal events of a second together, and failures. */
export const happenedOf = (view: View) => `
  WITH ${PLACED},
  life AS (
    SELECT min(e.timestamp_us) / 1e6 AS time, e.new_status AS what, r.mesh_id::VARCHAR AS id, r.mesh, count(*) AS many, min(r.rank) AS first,
      max(r.rank) AS last, any_value(e.reason) AS reason
    FROM actor_status_events e JOIN actors a ON a.id = e.actor_id ${placedBy("a.proc_id")}
    WHERE e.timestamp_us >= ${us(view.from)} AND e.timestamp_us <= ${us(view.to)} AND ${chosen(view)}
    GROUP BY e.timestamp_us // 1000000, e.new_status, r.mesh_id, r.mesh),
  failures AS (
    SELECT failure_occurred_at / 1e6, 'failure', NULL, coalesce(failure_root_cause_actor, node_id), 1, 0, 0, failure_error_message
    FROM actor_failures WHERE failure_occurred_at BETWEEN ${us(view.from)} AND ${us(view.to)} AND NOT failure_is_propagated)
  FROM (FROM life UNION ALL FROM failures) ORDER BY what IN ('Failed', 'failure') DESC, time DESC LIMIT 200`;

export const waitsOf = (view: View) => `
  WITH ${PLACED}
  SELECT r.mesh_id::VARCHAR AS id, r.rank, w.since_us / 1e6 AS since, w.endpoint, w.waits_for FROM waits w ${placedBy("w.proc_id")}
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
