/** The trials of a sweep, with what mattered, or the tasks of a farm. */

import { html, useEffect, useRef, useState } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { duration, number, quantity } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { at } from "../../routes.js";
import { Figures, Loaded, Panel, Table, sorted } from "../../ui.js";

const MOST = 10;
const ENDED = new Set(["finished", "failed", "cancelled"]);
const short = (value) => (value === null || value === undefined ? "" : String(Number(Number(value).toPrecision(6))));
const numeric = (text) => (text === undefined || Number.isNaN(Number(text)) ? text : Number(text));
const why = (row) => (row.state === "halved" ? "" : row.text || row.signal || (row.state === "failed" && row.code !== null ? `exit code ${row.code}` : ""));

const LAST = [
  { name: "Took", short: true, right: true, sort: (row) => row.seconds, of: (row) => (row.seconds === null || row.seconds === undefined ? "" : duration(row.seconds)) },
  { name: "Tries", short: true, right: true, sort: (row) => row.tries, of: (row) => number(row.tries) },
  { name: "Why", of: why },
];
const TASKS = [
  { name: "Task", short: true, right: true, sort: (row) => row.id, of: (row) => row.id },
  { name: "State", sort: (row) => row.state, of: (row) => row.state },
  { name: "Command", of: (row) => html`<code>${row.values.line || ""}</code>` },
  ...LAST,
];

function trials(found) {
  const names = [...new Set(found.rows.flatMap((row) => Object.keys(row.parameters)))];
  return [
    { name: "Trial", short: true, right: true, sort: (row) => row.id, of: (row) => row.id },
    { name: "State", sort: (row) => row.state, of: (row) => (row.state === "halved" ? "ended early" : row.state) },
    ...found.goal.split(", ").map((goal, at) => ({ name: goal.split(" ")[1], right: true, short: true, sort: (row) => row.values?.[at], of: (row) => short(row.values?.[at]) })),
    ...names.map((name) => ({ name, right: true, short: true, sort: (row) => numeric(row.parameters[name]), of: (row) => row.parameters[name] ?? "" })),
    ...LAST,
  ];
}

/** A picture as the server drew it, in the page: what stands in it answers to the mouse. */
function Picture({ svg }) {
  const place = useRef(null);
  useEffect(() => {
    const drawn = new DOMParser().parseFromString(svg, "text/html").body;
    place.current.replaceChildren(...[...drawn.childNodes].map((node) => document.adoptNode(node)));
  }, [svg]);
  return html`<div class="wide picture" ref=${place}></div>`;
}

const isWide = ({ svg }) => svg.includes('class="wide"');
const drawn = (pictures) => pictures.map(({ title, svg }) => html`<${Panel} key=${title} title=${title}><${Picture} svg=${svg} /><//>`);

const useTasks = ({ run, doc }) => useData(ofRun(run, "tasks"), { tick: useTick(ENDED.has(doc.state) ? null : run, ["tasks_progress", "state"], 2_000) });

function List({ found, most, aside }) {
  const [sort, setSort] = useState(null);
  const columns = found.goal ? trials(found) : TASKS;
  return html`<${Panel} title=${found.goal ? "Trials, the best first" : "Tasks, those that failed first"} aside=${aside}>
    <${Table} caption="Tasks" columns=${columns} rows=${sorted(found.rows, columns, sort).slice(0, most)} id=${(row) => row.id} sort=${sort} onSort=${setSort} />
  <//>`;
}

/** On the overview: the first ones. */
export function Overview(shared) {
  return html`<${Loaded} state=${useTasks(shared)} what="the tasks">${(found) => html`
    <${List} found=${found} most=${MOST} aside=${html`<a href=${at("run", shared.run, "tasks")}>all ${number(found.tasks)}</a>`} />`}<//>`;
}

export default function Tasks(shared) {
  const state = useTasks(shared);
  return html`<h1>Tasks</h1>
    <${Loaded} state=${state} what="the tasks">${(found) => html`<section class="panel" aria-label="In short"><${Figures} items=${[
        [found.goal ? "trials" : "tasks", number(found.tasks)],
        ["done", number(found.done)],
        ["failed", number(found.failed)],
        ["running", number(found.running)],
        ["goal", found.goal],
        found.best && ["best", short(found.best.value), `trial ${found.best.id}`],
        ...Object.entries(found.importance || {}).map(([name, share]) => [`${name} explains`, quantity(share, "ratio")]),
      ]} /></section>
      ${drawn(found.pictures.filter(isWide))}
      <div class="grid">${drawn(found.pictures.filter((one) => !isWide(one)))}</div>
      <${List} found=${found} />`}<//>`;
}
