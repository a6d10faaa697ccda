// Light and dark, as Cockpit's own pages choose: the shell's menu first, then the system's preference.

const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

export const isDark = () => document.documentElement.dataset.theme === "dark";

// Calls back after each change.
export const onTheme = listener => listeners.push(listener);

function choose(style) {
    const chosen = style ?? window.localStorage.getItem("shell:style") ?? "auto";
    const dark = chosen === "dark" || (chosen === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    listeners.forEach(listener => listener());
}

window.addEventListener("storage", event => event.key === "shell:style" && choose());
window.addEventListener("cockpit-style", event => choose(event.detail.style));
system.addEventListener("change", () => choose());
choose();
