/** All runs: filter, sort, choose some to compare. */

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { url } from "../api.js";
import { duration, epoch, many, number } from "../format.js";
import { useClock, useData, useEvery } from "../hooks.js";
import { serverNow } from "../live.js";
import { at, withQuery } from "../routes.js";
import { Badge, Choice, Empty, Loaded, Progress, Search, Table, Time, sorted } from "../ui.js";

const STATES = ["running", "queued", "finished", "failed", "cancelled", "unknown"];
const PAGE = 100;
const MOST = 2000;

function matches(run, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const where = [run.id, run.name, run.reason, run.job, run.kind, ...(run.node_names || [])].join(" ").toLowerCase();
  return words.every((word) => where.includes(word));
}

const began = (run) => epoch(run.started_at) ?? epoch(run.submitted_at);
const lasted = (run) => (epoch(run.started_at) === null ? null : (epoch(run.ended_at) ?? serverNow()) - epoch(run.started_at));
const findings = (run) =>
  typeof run.findings === "number" ? run.findings : Object.values(run.findings || {}).reduce((sum, count) => sum + count, 0);

function Steps({ run }) {
  if (run.step === null || run.step === undefined) return html`<span class="soft">–</span>`;
  const share = run.total ? (run.step + 1) / run.total : NaN;
  const text = run.total ? `${number(run.step)} of ${number(run.total)}` : number(run.step);
  return html`${text}${run.total && run.state === "running" ? html`<${Progress} value=${share} text=${text} />` : ""}`;
}

function columns(chosen, choose) {
  return [
    {
      name: "",
      title: "Select to compare",
      of: (run) => html`<input type="checkbox" aria-label=${`Compare ${run.id}`} checked=${chosen.includes(run.id)} onChange=${() => choose(run.id)} />`,
    },
    {
      name: "Run",
      sort: (run) => run.id,
      of: (run) => html`<a class="name" href=${at("run", run.id)}>${run.id}</a>${run.kind === "recording" ? html` <span class="soft">recording</span>` : ""}`,
    },
    { name: "State", short: true, sort: (run) => STATES.indexOf(run.state), of: (run) => html`<${Badge} state=${run.state} />` },
    { name: "Started", short: true, sort: began, right: true, of: (run) => html`<${Time} at=${began(run)} />` },
    { name: "Lasted", short: true, right: true, sort: lasted, of: (run) => duration(lasted(run)) },
    { name: "Nodes", roomy: true, right: true, sort: (run) => run.nodes, of: (run) => number(run.nodes) },
    { name: "Ranks", roomy: true, right: true, sort: (run) => run.ranks, of: (run) => number(run.ranks) },
    { name: "Step", short: true, right: true, sort: (run) => run.step, of: (run) => html`<${Steps} run=${run} />` },
    { name: "Restarts", roomy: true, right: true, sort: (run) => run.restarts, of: (run) => number(run.restarts) },
    {
      name: "Findings",
      roomy: true,
      right: true,
      sort: findings,
      of: (run) => (findings(run) ? html`<a href=${at("run", run.id, "findings")}>${findings(run)}</a>` : html`<span class="soft">0</span>`),
    },
    { name: "Score", roomy: true, right: true, sort: (run) => run.score, of: (run) => (Number.isFinite(run.score) ? html`<a href=${at("run", run.id, "score")}>${number(run.score, 3)}</a>` : html`<span class="soft">–</span>`) },
    { name: "Why", roomy: true, sort: (run) => run.reason || "", of: (run) => html`<span class="soft">${run.reason}</span>` },
  ];
}

function Nothing({ about }) {
  const folders = about.data?.folders?.join(", ");
  return html`<${Empty} title="There are no runs yet.">
    <p>${folders ? `Runs appear here as soon as one lies in ${folders}.` : "Runs appear here as soon as there are some."} To start one:</p>
    <pre><code>cordee init my-project
cordee run my-project</code></pre>
  <//>`;
}

export default function Runs({ query, setQuery }) {
  const tick = useEvery(4);
  const [shown, setShown] = useState(PAGE);
  const [chosen, setChosen] = useState([]);
  useClock(5);
  const about = useData("api/about");
  const text = query.text || "";
  const state = query.state || "";
  const first = useData(url("api/runs", { limit: MOST }), { tick });
  const more = (first.data?.total ?? 0) > MOST && text;
  const found = useData(more ? url("api/runs", { limit: MOST, name: text }) : null, { tick });
  const sort = { by: query.sort || "Started", down: (query.order || "down") === "down" };
  const choose = (id) => setChosen((old) => (old.includes(id) ? old.filter((one) => one !== id) : [...old, id]));
  const shape = columns(chosen, choose);
  const list = (data) => {
    const all = (found.data || data).runs;
    if (!data.total) return html`<${Nothing} about=${about} />`;
    const rows = sorted(all.filter((run) => (!state || run.state === state) && matches(run, text)), shape, sort);
    const count = (of) => all.filter((run) => run.state === of).length;
    const states = [["", "All"], ...STATES.filter((of) => count(of) || of === state).map((of) => [of, `${of} ${count(of)}`])];
    return html`<div class="bar">
        <${Search} label="Name, node, reason" value=${text} placeholder="char-gpt node-12 …" onInput=${(value) => setQuery({ text: value })} />
        <${Choice} label="State" options=${states} value=${state} onChange=${(value) => setQuery({ state: value })} />
        ${data.total > MOST && html`<p class="soft">The newest ${number(MOST)} of ${number(data.total)}; a name searches all.</p>`}
      </div>
      ${rows.length
        ? html`<section class="panel"><${Table} caption="Runs" rows=${rows.slice(0, shown)} id=${(run) => run.id} columns=${shape} sort=${sort}
            onSort=${(next) => setQuery({ sort: next.by, order: next.down ? "down" : "up" })}
            rowProps=${(run) => ({ "data-row": run.id, class: chosen.includes(run.id) ? "selected" : "" })} /></section>`
        : html`<${Empty} title="No run matches."><p><button type="button" onClick=${() => setQuery({ text: null, state: null })}>Show all</button></p><//>`}
      ${rows.length > shown && html`<p><button type="button" onClick=${() => setShown(shown + 4 * PAGE)}>Show more (${number(rows.length - shown)})</button></p>`}`;
  };
  return html`<div class="title"><h1>Runs</h1>${first.data && html`<p class="soft">${many(first.data.total, "run")}</p>`}</div>
    <${Loaded} state=${first} what="the runs">${list}<//>
    ${chosen.length > 0 && html`<div class="dock" role="region" aria-label="Chosen runs">
      <span>${many(chosen.length, "run")} chosen</span>
      ${chosen.length > 1
        ? html`<a class="primary" href=${withQuery("#/compare", { runs: chosen.join(",") })}>Compare</a>`
        : html`<span class="soft">choose one more to compare</span>`}
      <button type="button" class="plain" onClick=${() => setChosen([])}>Clear</button>
    </div>`}`;
}
