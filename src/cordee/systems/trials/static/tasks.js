/** The trials of a sweep, with what mattered, or the tasks of a farm. */

import { html, useEffect, useRef } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { duration, number, quantity } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { Figures, Loaded, Panel, Table } from "../../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const short = (value) => (value === null || value === undefined ? "" : String(Number(Number(value).toPrecision(6))));
const why = (row) => (row.state === "halved" ? "" : row.text || row.signal || (row.state === "failed" && row.code !== null ? `exit code ${row.code}` : ""));

const LAST = [
  { name: "Took", short: true, right: true, of: (row) => (row.seconds === null || row.seconds === undefined ? "" : duration(row.seconds)) },
  { name: "Tries", short: true, right: true, of: (row) => number(row.tries) },
  { name: "Why", of: why },
];
const TASKS = [
  { name: "Task", short: true, right: true, of: (row) => row.id },
  { name: "State", of: (row) => row.state },
  { name: "Command", of: (row) => html`<code>${row.values.line || ""}</code>` },
  ...LAST,
];

function trials(found) {
  const names = [...new Set(found.rows.flatMap((row) => Object.keys(row.parameters)))];
  return [
    { name: "Trial", short: true, right: true, of: (row) => row.id },
    { name: "State", of: (row) => (row.state === "halved" ? "ended early" : row.state) },
    ...found.goal.split(", ").map((goal, at) => ({ name: goal.split(" ")[1], right: true, short: true, of: (row) => short(row.values?.[at]) })),
    ...names.map((name) => ({ name, right: true, short: true, of: (row) => row.parameters[name] ?? "" })),
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

export default function Tasks({ run, doc }) {
  const tick = useTick(ENDED.has(doc.state) ? null : run, ["tasks_progress", "state"], 2_000);
  const state = useData(ofRun(run, "tasks"), { tick });
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
      <${Panel} title=${found.goal ? "Trials, the best first" : "Tasks, those that failed first"}>
        <${Table} caption="Tasks" columns=${found.goal ? trials(found) : TASKS} rows=${found.rows} id=${(row) => row.id} />
      <//>`}<//>`;
}
