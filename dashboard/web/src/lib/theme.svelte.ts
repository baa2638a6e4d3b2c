/** Light, dark, or as the system has it. */
const KEY = "monarch-theme";
const THEMES = ["system", "light", "dark"] as const;

type Theme = (typeof THEMES)[number];

const kept = localStorage.getItem(KEY) as Theme | null;
let theme = $state.raw<Theme>(kept && THEMES.includes(kept) ? kept : "system");

function show(): void {
  document.documentElement.dataset.theme = theme;
}

show();

export const current = {
  get theme() {
    return theme;
  },
};

export function nextTheme(): void {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "system";
  localStorage.setItem(KEY, theme);
  show();
}

const system = window.matchMedia("(prefers-color-scheme: dark)");
let dark = $state.raw(system.matches);

system.addEventListener("change", () => (dark = system.matches));

const probe = document.createElement("span");

/** A colour of style.css, for a canvas: as it is now, and what draws it is told when it changes. */
export function colours(names: readonly string[]): string[] {
  void [theme, dark];
  document.body.append(probe);
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}
