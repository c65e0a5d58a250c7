/** The shell around all pages: address, header, keyboard, theme. */

import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useState } from "./vendor/htm-preact-3.1.1.js";
import { get } from "./api.js";
import { ROUTES, addPages, at, matched } from "./routes.js";
import { KEYS, listen } from "./keys.js";
import { RunFrame } from "./frame.js";
import { timeKeys } from "./range.js";
import { Dialog, Empty, Fault, Icon, Loading } from "./ui.js";

const THEMES = { "": ["auto", "as the system"], light: ["sun", "light"], dark: ["moon", "dark"] };
const modules = new Map();

function setQuery(values) {
  const [path, old = ""] = location.hash.split("?", 2);
  const query = new URLSearchParams(old);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", text ? `${path || "#/runs"}?${text}` : path || "#/runs");
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function useAddress() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

/** The module of a page, fetched once. */
function useModule(file) {
  const [state, setState] = useState({ file: null });
  useEffect(() => {
    let here = true; // a page that comes late must not take the place of the one that is asked for now
    if (!modules.has(file)) modules.set(file, import(`./pages/${file}`));
    modules.get(file).then(
      (module) => here && setState({ file, page: module.default }),
      () => {
        modules.delete(file);
        if (here) setState({ file, error: { message: "this page could not be loaded", next: "is `cordee serve` still running? Load the page again" } });
      },
    );
    return () => {
      here = false;
    };
  }, [file]);
  return state.file === file ? state : { file: null };
}

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || "");
  const next = () => {
    const names = Object.keys(THEMES);
    const now = document.documentElement.dataset.theme || "";
    const chosen = names[(names.indexOf(now) + 1) % names.length];
    if (chosen) document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("cordee-theme", chosen);
    } catch {
      // Storage may be forbidden: the choice holds for this page.
    }
    setTheme(chosen);
    dispatchEvent(new Event("cordee-theme"));
    return true;
  };
  return [theme, next];
}

function Header({ place, theme, nextTheme, help }) {
  const links = [
    ["runs", "Runs"],
    ["fleet", "Fleet"],
    ...ROUTES.filter(([pattern, , , tab]) => tab && !pattern.includes("/")).map(([pattern, , title]) => [pattern, title]),
    ["catalogue", "Catalogue"],
  ];
  const here = place?.path.split("/")[0];
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${toMain}>Skip to content</a>
    <a class="brand" href="#/runs"><img src="static/icon.svg" alt="" width="22" height="22" /> Cordée</a>
    <nav aria-label="Pages">
      ${links.map(
        ([name, title]) => html`<a href=${`#/${name}`} aria-current=${here === name || (name === "runs" && here === "run") ? "page" : undefined}>${title}</a>`,
      )}
    </nav>
    <div class="tools">
      <button type="button" class="plain" onClick=${nextTheme} title="Theme: ${THEMES[theme][1]} (t)" aria-label="Theme: ${THEMES[theme][1]}">
        <${Icon} name=${THEMES[theme][0]} />
      </button>
      <button type="button" class="plain" onClick=${help} title="Keys (?)" aria-label="Keys"><${Icon} name="ask" /></button>
    </div>
  </header>`;
}

function toMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">${KEYS.map(([key, does]) => html`<dt><kbd>${key}</kbd></dt><dd>${does}</dd>`)}</dl>
    <p class="soft">Charts: drag to zoom, double-click for the whole run. <code>?wall=1</code> before the # shows a page for a screen on a wall.</p>
  <//>`;
}

/** A page that fails says so; the others go on. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((thrown) => console.error(thrown));
  if (error) {
    return html`<${Fault} error=${{ message: "this page failed", given: String(error.message || error), next: "load it again; if it stays, tell us how you came here" }} />
      <p><button type="button" onClick=${reset}>Try again</button></p>`;
  }
  return children;
}

function Page({ place }) {
  const { page: Shown, error } = useModule(place.file);
  useEffect(() => {
    const names = Object.values(place.params);
    document.title = [place.title, ...names.reverse(), "Cordée"].join(" · ");
  }, [place.path]);
  if (error) return html`<${Fault} error=${error} />`;
  const inside = (given) => (Shown ? html`<${Guarded} key=${place.path}><${Shown} ...${given} /><//>` : html`<${Loading} />`);
  const given = { params: place.params, query: place.query, setQuery };
  if (place.params.run === undefined) return html`<main id="main" tabindex="-1">${inside(given)}</main>`;
  return html`<${RunFrame} key=${place.params.run} place=${place} ...${given}>${inside}<//>`;
}

function App() {
  const hash = useAddress();
  const place = matched(hash);
  const [theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  useLayoutEffect(() => listen({ theme: nextTheme, help: () => (setHelp(true), true), ...timeKeys(setQuery) }), []);
  useEffect(() => scrollTo(0, 0), [place?.path]);
  return html`<${Header} place=${place} theme=${theme} nextTheme=${nextTheme} help=${() => setHelp(true)} />
    ${place
      ? html`<${Page} place=${place} />`
      : html`<main id="main" tabindex="-1"><h1>No such page</h1><${Empty} title="There is no page at this address."><p>
          Try <a href=${at("runs")}>the runs</a>.</p><//></main>`}
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

const app = document.getElementById("app");
try {
  addPages((await get("api/pages")).pages);
} catch {
  // The pages that are always there say what is wrong.
}
app.replaceChildren();
render(html`<${App} />`, app);
