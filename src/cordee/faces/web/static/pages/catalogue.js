/** Every data set, field and unit that Cordée has. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { useData } from "../hooks.js";
import { Empty, Loaded, Panel, Search, Table, Words, plain } from "../ui.js";

const FIRST = ["name", "unit", "kind", "meaning"];

function columnsOf(fields) {
  const names = [...new Set(fields.flatMap(Object.keys))];
  const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  names.sort((one, other) => place(one) - place(other));
  const told = names.filter((name) => fields.some((field) => field[name] !== "" && field[name] !== null && field[name] !== undefined));
  return told.map((name, index) => ({
    name,
    of: (field) => (field[name] === null || field[name] === undefined || field[name] === "" ? html`<span class="soft">–</span>` : index === 0 ? html`<code class="name">${plain(field[name])}</code>` : html`<${Words} text=${plain(field[name])} />`),
  }));
}

export default function Catalogue({ query, setQuery }) {
  const state = useData("api/catalogue");
  const text = (query.text || "").toLowerCase();
  return html`<h1>Catalogue</h1>
    <p class="soft">Everything that a run records, with its unit.</p>
    <div class="bar"><${Search} label="Field, unit" value=${query.text || ""} onInput=${(value) => setQuery({ text: value })} /></div>
    <${Loaded} state=${state} what="the catalogue">${({ datasets }) => {
      const found = datasets
        .map((one) => ({ ...one, fields: (one.fields || []).filter((field) => JSON.stringify([one.name, Object.values(field)]).toLowerCase().includes(text)) }))
        .filter((one) => one.fields.length || plain(one).toLowerCase().includes(text));
      if (!found.length) return html`<${Empty} title="Nothing matches." />`;
      return found.map((one) => {
        const rest = Object.entries(one).filter(([name, value]) => !["name", "title", "fields", "meaning", "text"].includes(name) && value !== null && value !== "");
        return html`<${Panel} key=${one.name} title=${one.title || one.name} note=${html`<${Words} text=${one.meaning || one.text} />`}>
          ${rest.length > 0 && html`<dl class="facts">${rest.map(([name, value]) => html`<dt>${name}</dt><dd><${Words} text=${plain(value)} /></dd>`)}</dl>`}
          ${one.fields.length > 0 && html`<div class="pad"><${Table} caption=${`Fields of ${one.name}`} columns=${columnsOf(one.fields)} rows=${one.fields} id=${(field) => JSON.stringify(field)} /></div>`}
        <//>`;
      });
    }}<//>`;
}
