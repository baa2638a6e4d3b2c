/** What `v1/now` shows of the program, kept current by the deltas of its stream. */

export interface Blamed {
  mesh: string;
  size: number;
  ranks: number[];
  hosts: string[];
  pids: number[];
  point: string;
  endpoint: string;
  place: string;
  state: string;
  reason: string;
  seconds: number | null;
}

/** How a verdict looks, by its status. */
export const TONES = { fine: "good", slow: "late", stuck: "bad", degraded: "late", unknown: "quiet" };

export interface Verdict {
  /** `looking`: there is none yet. */
  status: "looking" | keyof typeof TONES;
  sentence: string;
  seconds: number | null;
  full: string[];
  frozen: string[];
  swapping: string[];
  circles: string[][];
  blamed: Blamed[];
}

export interface Failed {
  reference: string;
  message: string;
  root_cause: string;
  occurred_us: number | null;
  is_propagated: boolean;
}

export type Column = (number | null)[];

export interface Mesh {
  name: string;
  size: number;
  shape: Record<string, number>;
  columns: Record<string, Column>;
}

export interface State {
  verdict: Verdict;
  states: string[];
  hosts: string[];
  meshes: Record<string, Mesh>;
  failures: Failed[];
  silent: Record<string, string>;
}

export interface Delta extends Partial<Omit<State, "meshes">> {
  meshes?: Record<string, Mesh | null>;
  cells?: Record<string, Record<string, { at: number[]; to: Column }>>;
}

export class Picture {
  /** Its parts are replaced when they change; but columns of ranks are changed in place, and `version` says so. */
  shown = $state.raw<State | undefined>();
  version = $state.raw(0);
  #handled = new Map<string, Column>();
  #since = 0;

  set(state: State): void {
    this.shown = state;
    this.#handled.clear();
    this.#rates();
  }

  apply({ meshes, cells, ...rest }: Delta): void {
    const shown = this.shown;
    if (shown === undefined) return;
    let all = shown.meshes;
    if (meshes !== undefined) {
      all = { ...all };
      for (const [uid, mesh] of Object.entries(meshes)) {
        if (mesh === null) delete all[uid];
        else all[uid] = mesh;
      }
    }
    for (const [uid, columns] of Object.entries(cells ?? {})) {
      for (const [name, { at, to }] of Object.entries(columns)) {
        const column = all[uid]?.columns[name];
        if (column !== undefined) at.forEach((place, index) => (column[place] = to[index] ?? null));
      }
    }
    this.shown = { ...shown, ...rest, meshes: all };
    this.#rates();
  }

  /** Messages in a second, of each rank, between this picture and the one before. */
  #rates(): void {
    const now = performance.now();
    const seconds = (now - this.#since) / 1000;
    for (const [uid, { columns }] of Object.entries(this.shown?.meshes ?? {})) {
      const handled = columns.handled;
      if (handled === undefined) continue; // of the past, where the rate is told
      const before = this.#handled.get(uid);
      columns.rate = handled.map((count, rank) => {
        const last = before?.[rank];
        return count === null || last === null || last === undefined ? null : Math.max(0, count - last) / seconds;
      });
      this.#handled.set(uid, handled.slice());
    }
    this.#since = now;
    this.version++;
  }
}

/** Where a rank is in its mesh: `hosts=1, gpus=3`; the last dimension runs fastest. */
export function point(shape: Record<string, number>, rank: number): string {
  let left = rank;
  const indices = Object.entries(shape)
    .reverse()
    .map(([name, size]) => {
      const index = left % size;
      left = Math.floor(left / size);
      return `${name}=${index}`;
    });
  return indices.reverse().join(", ");
}

/** `0-4,6`: ranks as the routes take them, and people read them. */
export function compact(ranks: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const rank of ranks) {
    const last = runs.at(-1);
    if (last && last[1] === rank - 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
}
