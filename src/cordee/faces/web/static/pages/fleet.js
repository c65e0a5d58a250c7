/** The nodes of the site: what runs where, and what ran there. */

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { duration, epoch, many, number } from "../format.js";
import { useData, useEvery } from "../hooks.js";
import { serverNow } from "../live.js";
import { at } from "../routes.js";
import { Badge, Choice, Empty, Figures, Icon, Loaded, Missing, Panel, Progress, Search, Table, Time } from "../ui.js";

const MOST = 12_000;
const MANY = 300;

/** `[shape, tone, words]` of a node's state, in the scheduler's words or ours. */
function look(node) {
  const state = String(node.state || "").toLowerCase();
  const running = (node.runs || []).some((run) => run.state === "running");
  if (/down|fail|drain|not_respond|error/.test(state)) return ["cross", "bad", state];
  if ((node.verdicts?.bad || 0) > 0 && !running) return ["warn", "warn", "found bad by vetting"];
  if (running) return ["play", "live", "a run of ours"];
  if (/alloc|mix|use|comp/.test(state)) return ["bar", "mute", state];
  if (/idle/.test(state)) return ["tick", "good", "idle"];
  return ["dot", "mute", state || "unknown"];
}

function Cell({ node, chosen, choose, mine }) {
  const [shape, tone, words] = look(node);
  const running = (node.runs || []).filter((run) => run.state === "running").map((run) => run.id);
  const title = `${node.node}: ${words}${running.length ? `, ${running.join(", ")}` : ""}${node.partition ? `, ${node.partition}` : ""}${node.reason ? `, ${node.reason}` : ""}`;
  return html`<button type="button" class=${`cell ${tone}${running.length ? " busy" : ""}${mine ? " mine" : ""}`} aria-pressed=${chosen ? "true" : "false"} title=${title} aria-label=${title} onClick=${() => choose(node.node)}><${Icon} name=${shape} /></button>`;
}

function Chosen({ node, onClose }) {
  const columns = [
    { name: "Run", of: (run) => html`<a class="name" href=${at("run", run.id, "node", node.node)}>${run.id}</a>` },
    { name: "State", short: true, of: (run) => html`<${Badge} state=${run.state} />` },
    { name: "Started", short: true, of: (run) => html`<${Time} at=${run.start} />` },
    { name: "Lasted", short: true, right: true, of: (run) => duration(run.start === null ? null : (epoch(run.end) ?? serverNow()) - run.start) },
  ];
  return html`<${Panel} title=${node.node} aside=${html`<button type="button" class="plain" onClick=${onClose}>Close</button>`}>
    <${Figures} items=${[["state", look(node)[2]], ["partition", node.partition], ["why", node.reason], ...Object.entries(node.verdicts || {}).map(([verdict, count]) => [`vetted ${verdict}`, number(count)])]} />
    ${node.runs?.length ? html`<div class="pad"><${Table} caption=${`What ran on ${node.node}`} columns=${columns} rows=${node.runs.slice(0, 50)} id=${(run) => run.id} /></div>` : html`<p class="soft pad">No run has used this node.</p>`}
  <//>`;
}

function Running({ runs, mine, setMine }) {
  if (!runs.length) return html`<${Empty} title="No active runs." />`;
  const columns = [
    { name: "Run", of: (run) => html`<a class="name" href=${at("run", run.id)}>${run.id}</a>` },
    { name: "State", short: true, of: (run) => html`<${Badge} state=${run.state} />` },
    { name: "Nodes", right: true, of: (run) => number(run.nodes) },
    { name: "For", short: true, right: true, of: (run) => duration(run.started_at ? serverNow() - run.started_at : null) },
    { name: "Step", short: true, of: (run) => (run.step === null ? "–" : html`${number(run.step)}${run.total ? ` of ${number(run.total)}` : ""}${run.total ? html`<${Progress} value=${run.step / run.total} text=${`step ${run.step} of ${run.total}`} />` : ""}`) },
    { name: "Its place", of: (run) => html`<button type="button" aria-pressed=${mine === run.id ? "true" : "false"} onClick=${() => setMine(mine === run.id ? "" : run.id)}>${mine === run.id ? "shown" : "show"}</button>` },
  ];
  return html`<${Table} caption="Active runs" columns=${columns} rows=${runs} id=${(run) => run.id} rowProps=${(run) => ({ "data-row": run.id })} />`;
}

function Jobs({ jobs }) {
  if (!jobs.length) return null;
  const names = Object.keys(jobs[0]).filter((name) => typeof jobs[0][name] !== "object");
  const columns = names.map((name) => ({ name, of: (job) => (job[name] === null || job[name] === undefined ? "–" : /start|end|submit|_at$/.test(name) && typeof job[name] === "number" ? html`<${Time} at=${job[name]} />` : String(job[name])) }));
  return html`<${Panel} title="Other jobs" aside=${many(jobs.length, "job")}><${Table} caption="Other jobs" columns=${columns} rows=${jobs.slice(0, 200)} id=${(job) => JSON.stringify(job)} /><//>`;
}

/** Nodes and switches that the findings of several runs name. */
function Again({ places }) {
  if (!places.length) return null;
  const columns = [
    { name: "Where", of: (place) => html`${place.kind} <strong>${place.name}</strong>${place.kind === "switch" ? html` <span class="soft">${place.nodes.slice(0, 8).join(", ")}</span>` : ""}` },
    { name: "What to do", of: (place) => html`<p>${place.next}</p><p class="soft">${place.rule}: ${place.action}</p>` },
    { name: "Runs", of: (place) => place.runs.slice(-5).map((run) => html`<p><a class="name" href=${at("run", run.run, "findings")}>${run.run}</a> ${run.finding}: ${run.text}</p>`) },
    { name: "Last", short: true, of: (place) => html`<${Time} at=${epoch(place.runs[place.runs.length - 1].at)} />` },
  ];
  return html`<${Panel} title="In the findings of several runs" aside=${many(places.length, "place")}><${Table} caption="In the findings of several runs" columns=${columns} rows=${places.slice(0, 200)} id=${(place) => `${place.rule} ${place.cluster} ${place.kind} ${place.name}`} rowProps=${(place) => ({ "data-row": place.name })} /><//>`;
}

export default function Fleet({ query, setQuery }) {
  const tick = useEvery(5);
  const [chosen, setChosen] = useState("");
  const state = useData("api/fleet", { tick });
  const text = (query.text || "").toLowerCase();
  const kind = query.state || "";
  return html`<h1>Fleet</h1>
    <${Loaded} state=${state} what="the fleet">${(fleet) => {
      const mine = query.run || "";
      const place = new Set(fleet.runs.find((run) => run.id === mine)?.node_names || []);
      const kinds = {};
      for (const node of fleet.nodes) kinds[look(node)[2]] = (kinds[look(node)[2]] || 0) + 1;
      const shown = fleet.nodes.filter((node) => (!kind || look(node)[2] === kind) && [node.node, node.partition, ...(node.runs || []).slice(0, 3).map((run) => run.id)].join(" ").toLowerCase().includes(text));
      const one = fleet.nodes.find((node) => node.node === chosen);
      return html`<div class="bar">
          <${Search} label="Node, partition, run" value=${query.text || ""} onInput=${(value) => setQuery({ text: value })} />
          <${Choice} label="State" options=${[["", `All ${fleet.nodes.length}`], ...Object.entries(kinds).slice(0, 6).map(([words, count]) => [words, `${words} ${count}`])]} value=${kind} onChange=${(value) => setQuery({ state: value })} />
        </div>
        <${Panel} title="Nodes" note=${mine ? `Outlined: the nodes of ${mine}.` : null}>
          ${shown.length ? html`<div class=${`cells${shown.length > MANY ? " many" : ""}`}>${shown.slice(0, MOST).map((node) => html`<${Cell} key=${node.node} node=${node} chosen=${node.node === chosen} choose=${setChosen} mine=${place.has(node.node)} />`)}</div>`
            : html`<${Empty} title=${fleet.nodes.length ? "No node matches." : "No node is known yet."} />`}
          <ul class="legend pad">${Object.keys(kinds).map((words) => {
            const node = fleet.nodes.find((other) => look(other)[2] === words);
            return html`<li><span class=${look(node)[1]}><${Icon} name=${look(node)[0]} /></span> ${words}</li>`;
          })}</ul>
        <//>
        ${one && html`<${Chosen} node=${one} onClose=${() => setChosen("")} />`}
        <${Again} places=${fleet.again || []} />
        <${Panel} title="Active runs"><${Running} runs=${fleet.runs} mine=${mine} setMine=${(id) => setQuery({ run: id })} /><//>
        <${Jobs} jobs=${fleet.jobs || []} />
        <${Missing} missing=${fleet.missing} />`;
    }}<//>`;
}
