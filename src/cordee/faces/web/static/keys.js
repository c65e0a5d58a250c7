/** Everything by keyboard: one listener, and the list that the help shows. */

export const KEYS = [
  ["/", "search on this page"],
  ["g then r", "runs"],
  ["g then f", "fleet"],
  ["g then c", "catalogue"],
  ["1 … 8", "the tabs of a run"],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["x", "select the row, to compare"],
  ["[ and ]", "earlier and later"],
  ["+ and −", "a shorter and a longer time"],
  ["0", "the whole run"],
  ["t", "dark, light, as the system"],
  ["?", "this help"],
];

let begun = 0;

/** Listen until the returned function is called; `actions` are called by name. */
export function listen(actions) {
  const pressed = (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = event.target;
    if (place.closest?.("dialog")) return;
    if (place.matches?.("input, textarea, select")) {
      if (event.key === "Escape") place.blur();
      if (!(place.type === "checkbox" && "jkx".includes(event.key))) return;
    }
    if (act(event, actions)) event.preventDefault();
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}

function act(event, actions) {
  const afterG = Date.now() - begun < 1_500;
  begun = 0;
  const { key } = event;
  if (afterG && { r: 1, f: 1, c: 1 }[key]) {
    location.hash = { r: "#/runs", f: "#/fleet", c: "#/catalogue" }[key];
    return true;
  }
  switch (key) {
    case "g":
      begun = Date.now();
      return true;
    case "/":
      return focus(document.querySelector("[data-search]"));
    case "j":
      return step(1);
    case "k":
      return step(-1);
    case "x":
      return click(document.activeElement?.closest("[data-row]")?.querySelector("input[type=checkbox]"));
    case "[":
      return actions.move(-0.5);
    case "]":
      return actions.move(0.5);
    case "+":
    case "=":
      return actions.zoom(0.5);
    case "-":
    case "−":
      return actions.zoom(2);
    case "0":
      return actions.zoom(null);
    case "t":
      return actions.theme();
    case "?":
      return actions.help();
    default:
      return /^[1-9]$/.test(key) && click(document.querySelectorAll("[data-tab]")[Number(key) - 1]);
  }
}

function focus(place) {
  if (!place) return false;
  place.focus();
  place.select?.();
  return true;
}

function click(place) {
  if (!place) return false;
  place.click();
  return true;
}

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const here = rows.indexOf(document.activeElement?.closest("[data-row]"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by))];
  (next.matches("a, button, [tabindex]") ? next : next.querySelector("a, button, [tabindex]"))?.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}
