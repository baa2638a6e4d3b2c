/** Where we are: `#/logs?mesh=trainers`. All that a view shows is in it, so that it can be sent to somebody. */

export type Query = Record<string, string>;

interface Place {
  path: string;
  query: Query;
}

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path, query: Object.fromEntries(new URLSearchParams(query)) };
}

let place = $state.raw(read());

window.addEventListener("hashchange", () => (place = read()));

export const route = {
  get path() {
    return place.path;
  },
  get query() {
    return place.query;
  },
};

/** The link to a view; what is empty is left out. */
export function href(path: string, query: Record<string, string | number | undefined | null> = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** Change what the view shows. `quietly`: the button Back leads to where we came from, not to each letter that was typed. */
export function setQuery(change: Query, quietly = false): void {
  const target = href(place.path, { ...place.query, ...change });
  if (target === location.hash) return;
  if (quietly) {
    history.replaceState(null, "", target);
    place = read();
  } else {
    location.hash = target;
  }
}
