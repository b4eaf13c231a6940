// Light and dark: the reader's system decides until the switch is used.

const THEMES = ["auto", "light", "dark"];

function themeSwitch(changed) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = "auto";
  const apply = () => {
    const dark = chosen === "dark" || (chosen === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.choice === chosen));
    changed();
  };
  const choose = (choice) => () => {
    chosen = choice;
    apply();
  };
  const buttons = THEMES.map((name) =>
    el("button", { type: "button", "data-choice": name, on: { click: choose(name) } }, name),
  );
  system.addEventListener("change", apply);
  document.documentElement.dataset.theme = system.matches ? "dark" : "light";
  for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.choice === chosen));
  return el("div", { class: "switch", role: "group", "aria-label": "Colours of the page" }, buttons);
}

// The value of a colour of the style sheet, under the theme that holds now.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
