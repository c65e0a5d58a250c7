/** The parts that pages are made of: states, times, cards, tables, and what to say where there is nothing. */

import { html, useEffect, useRef } from "./vendor/htm-preact-3.1.1.js";
import { ago, epoch, local, utc } from "./format.js";
import { useClock } from "./hooks.js";

export { html };

// Shapes tell what colours tell: nothing is said by colour alone.
const SHAPES = {
  tick: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4 12 12M12 4 4 12",
  play: "M5 3.5 12.5 8 5 12.5Z",
  wait: "M8 4.5V8l2.5 1.5M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8Z",
  bar: "M4 8h8",
  warn: "M8 2.2 14.3 13.2H1.7ZM8 6.5v3M8 11.2v.3",
  ask: "M5.7 6a2.4 2.4 0 1 1 3.4 2.2c-.8.4-1.1.8-1.1 1.6M8 12.2v.3",
  info: "M8 7.2v4M8 4.6v.3",
  dot: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6Z",
  right: "M6 3.5 10.5 8 6 12.5",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9ZM10.3 10.3 14 14",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6ZM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.1 1.1M11.9 11.9 13 13M3 13l1.1-1.1M11.9 4.1 13 3",
  moon: "M12.8 9.9A5.6 5.6 0 0 1 6.1 3.2a5.6 5.6 0 1 0 6.7 6.7Z",
  auto: "M8 2a6 6 0 1 0 0 12V2Z",
};
const FILLED = new Set(["play", "dot", "auto"]);

/** What states, verdicts and severities look like: [tone, shape]. */
const LOOKS = {
  running: ["live", "play"],
  queued: ["wait", "wait"],
  finished: ["good", "tick"],
  failed: ["bad", "cross"],
  cancelled: ["mute", "bar"],
  waiting: ["wait", "wait"],
  skipped: ["mute", "tick"],
  "not started": ["mute", "bar"],
  healthy: ["good", "tick"],
  pass: ["good", "tick"],
  suspect: ["warn", "warn"],
  warn: ["warn", "warn"],
  bad: ["bad", "cross"],
  fail: ["bad", "cross"],
  error: ["bad", "cross"],
  lost: ["bad", "cross"],
  excluded: ["bad", "bar"],
  unknown: ["ask", "ask"],
  skip: ["mute", "bar"],
  info: ["live", "info"],
  active: ["live", "play"],
  exited: ["good", "tick"],
  spare: ["mute", "dot"],
  live: ["good", "dot"],
  connecting: ["wait", "wait"],
  paused: ["mute", "bar"],
  stale: ["warn", "warn"],
  disconnected: ["bad", "cross"],
  continue: ["good", "tick"],
  exclude: ["warn", "warn"],
  abort: ["bad", "cross"],
};

/** Return the tone (good, bad, warn, live, wait, ask, mute) of a state, verdict or severity. */
export const tone = (state) => (LOOKS[state] || ["ask", "ask"])[0];

/** Return the shape's name that goes with a state, verdict or severity. */
export const shape = (state) => (LOOKS[state] || ["ask", "ask"])[1];

/** A small drawing; it says nothing to a screen reader, words beside it do. */
export function Icon({ name }) {
  return html`<svg class=${`icon${FILLED.has(name) ? " filled" : ""}`} viewBox="0 0 16 16" aria-hidden="true">
    <path d=${SHAPES[name] || SHAPES.ask} />
  </svg>`;
}

/** A state as shape, word and colour. */
export function Badge({ state, text }) {
  if (!state) return null;
  return html`<span class=${`badge ${tone(state)}`}><${Icon} name=${shape(state)} />${text || state}</span>`;
}

/** A moment: local time, UTC in the title; with `since` how long ago instead. */
export function Time({ at, since = false, seconds = false }) {
  const moment = epoch(at);
  if (moment === null) return html`<span class="soft">–</span>`;
  const text = since ? html`<${Ago} at=${moment} />` : local(moment, { seconds });
  return html`<time datetime=${new Date(moment * 1000).toISOString()} title=${utc(moment)}>${text}</time>`;
}

function Ago({ at }) {
  useClock(5);
  return ago(at);
}

/** A place where something is being fetched. */
export function Loading({ what = "" }) {
  return html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading${what ? ` ${what}` : ""}…</p>`;
}

/** A sentence; what stands between backticks is code. */
export function Words({ text }) {
  const parts = String(text ?? "").split("`");
  if (parts.length % 2 === 0) return text;
  return parts.map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));
}

/** What went wrong, in the server's words. */
export function Fault({ error, what = "this" }) {
  return html`<div class="note bad" role="alert">
    <${Icon} name="cross" />
    <div>
      <p class="strong">${error.message || `${what} cannot be shown`}</p>
      <${Given} of=${error} />
    </div>
  </div>`;
}

/** The given, allowed and next of an error or a finding, those that there are. */
export function Given({ of }) {
  const rows = ["given", "allowed", "next"].filter((key) => of[key] !== null && of[key] !== undefined && of[key] !== "");
  if (!rows.length) return null;
  return html`<dl class="given">${rows.map((key) => html`<dt>${key}</dt><dd><${Words} text=${plain(of[key])} /></dd>`)}</dl>`;
}

/** Return any JSON value as words. */
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ");
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, part]) => `${name}: ${plain(part)}`).join(", ");
  }
  return String(value);
}

/** What is not there, why, and how to give it: `missing` is a list of `{what, why, next}`. */
export function Missing({ missing }) {
  if (!missing?.length) return null;
  return html`<ul class="missing">
    ${missing.map(
      (entry) => html`<li class="note ask">
        <${Icon} name="ask" />
        <div>
          <p class="strong">Missing: ${entry.what}</p>
          ${entry.why && html`<p><${Words} text=${entry.why} /></p>`}
          ${entry.next && html`<p class="soft">To have it: <${Words} text=${entry.next} /></p>`}
        </div>
      </li>`,
    )}
  </ul>`;
}

/** A page or a part without content yet. */
export function Empty({ title, children }) {
  return html`<div class="empty">
    <p class="strong">${title}</p>
    ${children}
  </div>`;
}

/** What a run has none of; what stands inside says when it comes, while the run goes on. */
export function NoneYet({ doc, title, children }) {
  const ended = ["finished", "failed", "cancelled"].includes(doc.state);
  return html`<${Empty} title=${`${title}${ended ? "" : " yet"}.`}>${!ended && children}<//>`;
}

/** What a `useData` gives: `children(data)`, or that it is being fetched, or why it cannot be shown. */
export function Loaded({ state, what, children }) {
  if (state.data === null) return state.error ? html`<${Fault} error=${state.error} what=${what} />` : html`<${Loading} what=${what} />`;
  return html`${state.error && html`<${Old} state=${state} />`}${children(state.data)}`;
}

function Old({ state }) {
  return html`<p class="note warn" role="status">
    <${Icon} name="warn" /><span>${state.error.message}. What is shown was read <${Ago} at=${state.at} />.</span>
  </p>`;
}

/** A part of a page, with its heading. */
export function Panel({ title, id, aside, wide, children, note }) {
  const name = id || title?.toLowerCase().replace(/\W+/g, "-");
  return html`<section class=${`panel${wide ? " wide" : ""}`} aria-labelledby=${title ? `h-${name}` : undefined}>
    ${title && html`<header><h2 id=${`h-${name}`}>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>`}
    ${note && html`<p class="soft note-line">${note}</p>`}
    ${children}
  </section>`;
}

/** Figures at a glance: `[[label, value, title?], …]`; those without a value are left out. */
export function Figures({ items }) {
  const shown = items.filter((item) => item && item[1] !== null && item[1] !== undefined && item[1] !== "");
  return html`<dl class="figures">
    ${shown.map(([label, value, title]) => html`<div title=${title}><dt>${label}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** A bar of parts of a whole: `[{name, share, title, tone}]`. */
export function Shares({ parts, label }) {
  const words = parts.map((part) => `${part.name} ${Math.round(100 * part.share)} %`).join(", ");
  return html`<div class="shares" role="img" aria-label=${`${label}: ${words}`}>
    ${parts.map((part, at) => html`<span class=${part.tone || `c${at % 8}`} title=${part.title || part.name} style=${{ width: `${100 * part.share}%` }} />`)}
  </div>`;
}

/** Show progress 0–1 with its words. */
export function Progress({ value, text }) {
  const known = Number.isFinite(value);
  return html`<div
    class=${`progress${known ? "" : " unknown"}`}
    role="progressbar"
    aria-label="Progress"
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${known ? Math.round(100 * value) : undefined}
    aria-valuetext=${text}
  >
    <span style=${{ width: known ? `${Math.min(100, 100 * value)}%` : "0" }}></span>
  </div>`;
}

/** One of several: a row of buttons, as `options` [[value, text], …]. */
export function Choice({ label, options, value, onChange }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(
      ([of, text]) => html`<button type="button" aria-pressed=${of === value ? "true" : "false"} onClick=${() => onChange(of)}>${text}</button>`,
    )}
  </div>`;
}

/** A list to choose from, as `options` [[value, text], …]. */
export function Select({ label, options, value, onChange }) {
  return html`<label class="field"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([of, text]) => html`<option value=${of} selected=${of === value}>${text}</option>`)}
    </select>
  </label>`;
}

/** A text to filter by; the key `/` goes to the first of a page. */
export function Search({ label, value, onInput, placeholder }) {
  return html`<label class="field search"><span>${label}</span>
    <input type="search" data-search value=${value} placeholder=${placeholder} onInput=${(event) => onInput(event.target.value)} />
  </label>`;
}

/** A table whose columns are `{name, title?, of(row), sort?(row), short?, right?, roomy?}` (`roomy`: not on a phone); rows have `key(row)` and, maybe, `link(row)`. */
export function Table({ columns, rows, id, caption, sort, onSort, rowProps = () => ({}) }) {
  const arrow = (column) => (sort?.by === column.name ? (sort.down ? "descending" : "ascending") : undefined);
  return html`<div class="table" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>
          ${columns.map(
            (column) => html`<th scope="col" class=${`${column.right ? "right" : ""}${column.roomy ? " roomy" : ""}`} aria-sort=${arrow(column)} title=${column.title}>
              ${column.sort && onSort
                ? html`<button type="button" class="sort" onClick=${() => onSort({ by: column.name, down: sort?.by === column.name ? !sort.down : !!column.right })}>
                    ${column.name}<span class="arrow" aria-hidden="true">${arrow(column) === "descending" ? "↓" : arrow(column) ? "↑" : ""}</span>
                  </button>`
                : column.name}
            </th>`,
          )}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${id(row)} ...${rowProps(row)}>
            ${columns.map((column) => html`<td class=${`${column.short ? "short" : ""}${column.right ? " right" : ""}${column.roomy ? " roomy" : ""}`}>${column.of(row)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** Return rows in the order that `sort` ({by, down}) asks for; what is missing comes last. */
export function sorted(rows, columns, sort) {
  const value = columns.find((column) => column.name === sort?.by)?.sort;
  if (!value) return rows;
  const sign = sort.down ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b) return 0;
    if (a === null || a === undefined || Number.isNaN(a)) return 1;
    if (b === null || b === undefined || Number.isNaN(b)) return -1;
    return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}

/** A dialog over the page; Escape and the button close it. */
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
  }, []);
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onClose=${onClose} onClick=${(event) => event.target === ref.current && ref.current.close()}>
    <header><h2 id="dialog-title">${title}</h2><button type="button" class="plain" onClick=${() => ref.current.close()}>Close</button></header>
    ${children}
  </dialog>`;
}
