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

/** A colour of style.css, for a canvas. */
export const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
