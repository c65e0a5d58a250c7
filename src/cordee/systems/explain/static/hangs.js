/** The hangs of a run: who was to blame, where all ranks stood as one tree, and what their processes did. */

import { html, useEffect, useRef, useState } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { duration, many, number } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { at } from "../../routes.js";
import { Badge, Empty, Figures, Given, Icon, Loaded, Panel, Table, Time, shape, tone } from "../../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const OPEN_CALLS = 150;
const PLACES = /^.*?\/(?:site|dist)-packages\/|^.*?\/lib(?:64)?\/python3[^/]*\//;

/** Two numbers as one text, `show`n; "–" where they are not known. */
const between = (span, show) => (span === null ? "–" : span[0] === span[1] ? show(span[0]) : `${show(span[0])} – ${show(span[1])}`);
const soft = (text) => html`<span class="soft">${text}</span>`;

const PROCESSES = [
  { name: "Ranks", of: (row) => html`<span class="name">${many(row.count, "rank")}</span>: ${row.ranks}` },
  { name: "Process", of: (row) => row.process },
  { name: "In a collective", short: true, of: (row) => (row.in_collective === null ? soft("–") : row.in_collective ? "waits" : soft("no")) },
  { name: "In the kernel", of: (row) => (row.waits_for || row.wchan ? html`${row.wchan && html`<span class="mono tiny nowrap">${row.wchan}</span>`}${row.waits_for && html` <span class="mono tiny">${row.waits_for}</span>`}` : soft("–")) },
  { name: "Step", short: true, right: true, of: (row) => between(row.steps, number) },
  { name: "Stood", short: true, right: true, of: (row) => between(row.stands_s, duration) },
  { name: "Python silent", title: "Since the interpreter last ran another thread", short: true, right: true, roomy: true, of: (row) => between(row.silent_s, duration) },
  { name: "Nodes", roomy: true, of: (row) => row.nodes || "–" },
];
const COLLECTIVES = [
  { name: "Process group", of: (row) => html`<span class="name">${row.group || "0"}</span> ${soft(`of ${number(row.size)}`)}` },
  { name: "Call", short: true, right: true, of: (row) => number(row.sequence) },
  { name: "Wait in it", of: (row) => html`${many(row.waiting_count, "rank")}: ${row.waiting}` },
  { name: "Have not called it", of: (row) => (row.late_count ? html`<span class="strong">${many(row.late_count, "rank")}: ${row.late}</span>` : soft("none of those that were heard")) },
];

function Links({ label, run, to, names, more }) {
  if (!names.length) return null;
  return html`<dt>${label}</dt><dd class="links">${names.map((name) => html`<a key=${name} href=${at("run", run, to, String(name))}>${name}</a>`)}${more > 0 && soft(`and ${number(more)} more`)}</dd>`;
}

function Cause({ run, cause }) {
  return html`<li class=${`note ${tone(cause.severity)}`}>
    <${Icon} name=${shape(cause.severity)} />
    <div>
      <p class="strong"><span class="hidden">${cause.severity}: </span>${cause.text}</p>
      <dl class="given">
        <dt>what</dt><dd>${cause.code}</dd>
        <${Links} label="ranks" run=${run} to="rank" names=${cause.ranks} more=${cause.more_ranks} />
        <${Links} label="nodes" run=${run} to="node" names=${cause.nodes} more=${cause.more_nodes} />
        ${cause.where && html`<dt>where</dt><dd class="mono">${cause.where}</dd>`}
      </dl>
      <${Given} of=${cause} />
    </div>
  </li>`;
}

const lasted = (hang) => Math.max(0, hang.declared_at - hang.since);
const named = (hang) => `${hang.asked ? "Question" : "Hang"} ${hang.number}`;

function Hang({ run, hang, chosen, onChosen }) {
  const about = hang.asked
    ? "Somebody asked where the ranks stood; whether the run hung is not said."
    : `No rank had gone on for ${duration(lasted(hang))}; a hang was declared after ${duration(hang.after_s)}.`;
  const then = { restart: "The ranks were to be started again.", end: "The run was to be ended.", report: "" }[hang.action] || "";
  return html`<section class="panel" aria-labelledby=${`hang-${hang.number}`}>
    <header>
      <h2 id=${`hang-${hang.number}`}>${named(hang)}</h2>
      <span class="soft small">attempt ${hang.attempt}, <${Time} at=${hang.declared_at} seconds /></span>
      <div class="aside">${chosen
        ? html`<${Badge} state="info" text="shown below" />`
        : html`<button type="button" onClick=${onChosen} aria-label=${`Show where the ranks stood in ${named(hang)}`}>Where they stood</button>`}</div>
    </header>
    <p class="note-line">${about} ${then}</p>
    ${hang.causes.length > 0 && html`<ul class="missing">${hang.causes.map((cause) => html`<${Cause} key=${cause.text} run=${run} cause=${cause} />`)}</ul>`}
    ${!hang.causes.length && !hang.asked && html`<p class="soft">No cause was written. What was collected is below.</p>`}
  </section>`;
}

/** A file as short as it can be told from others. */
function place(call) {
  const file = call.library ? call.file.replace(PLACES, "") : call.file.split("/").slice(-3).join("/");
  return call.line ? `${file}:${call.line}` : file;
}

function Call({ call }) {
  return html`<p class=${`call${call.library ? " foreign" : ""}`} title=${`${call.file}:${call.line}`}><b>${call.function}</b> <span class="soft">${place(call)}</span></p>`;
}

/** Calls that the same ranks stand in, one after the other, and where they part. */
function chain(first) {
  const calls = [first];
  let last = first;
  while (!last.here && !last.more && last.below.length === 1) calls.push((last = last.below[0]));
  return { calls, last };
}

function Branch({ of, all, whole, open }) {
  const { calls, last } = chain(of);
  const shown = calls.filter((call) => all || !call.library || call === last);
  const hidden = calls.length - shown.length;
  const rest = [...shown.slice(1)];
  const parts = rest.length + last.below.length + last.more + hidden > 0;
  const [unfolded, setUnfolded] = useState(open(of));
  const element = useRef(null);
  useEffect(() => {
    if (element.current) element.current.open = unfolded;
  }, [unfolded]);
  return html`<li>
    <details ref=${element} onToggle=${(event) => event.target === element.current && setUnfolded(element.current.open)}>
      <summary class=${parts ? "" : "lone"}>
        <${Icon} name="right" />
        <span class="shares" aria-hidden="true"><span class="c0" style=${{ width: `${(100 * of.count) / whole}%` }}></span></span>
        <span class="who">${many(of.count, "rank")}</span>
        <${Call} call=${shown[0]} />
        <span class="ranks">${of.ranks}</span>
      </summary>
      ${unfolded && html`<div class="calls">
        ${rest.map((call, place) => html`<${Call} key=${place} call=${call} />`)}
        ${hidden > 0 && html`<p class="call soft">${many(hidden, "call")} within libraries not shown</p>`}
        ${last.here > 0 && last.below.length > 0 && html`<p class="call soft">${many(last.here, "rank")} of them here, the others:</p>`}
        ${last.below.length + last.more > 0 && html`<ul>
          ${last.below.map((below) => html`<${Branch} key=${`${below.file}:${below.line}:${below.function}`} of=${below} all=${all} whole=${whole} open=${open} />`)}
          ${last.more > 0 && html`<li class="call soft">${many(last.more, "call")} of fewer ranks left out: <code>cordee stacks</code> shows all</li>`}
        </ul>`}
      </div>`}
    </details>
  </li>`;
}

const size = (call) => 1 + call.below.reduce((sum, below) => sum + size(below), 0);

function Tree({ tree }) {
  const [all, setAll] = useState(false);
  const [folds, setFolds] = useState({ round: 0, open: null });
  const many_calls = size(tree) > OPEN_CALLS;
  const most = tree.below.reduce((found, below) => Math.max(found, below.count), 1);
  const open = folds.open === null ? (call) => !many_calls || call.count >= most / 4 : () => folds.open;
  const fold = (open) => () => setFolds({ round: folds.round + 1, open });
  return html`<div class="bar">
      <button type="button" onClick=${fold(true)}>Unfold all</button>
      <button type="button" onClick=${fold(false)}>Fold all</button>
      <label class="check"><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> calls within libraries</label>
    </div>
    <div class="tree pad" key=${folds.round}><ul>
      ${tree.below.map((below) => html`<${Branch} key=${`${below.file}:${below.line}:${below.function}`} of=${below} all=${all} whole=${most} open=${open} />`)}
      ${tree.more > 0 && html`<li class="call soft">${many(tree.more, "stack")} of fewer ranks left out: <code>cordee stacks</code> shows all</li>`}
    </ul></div>`;
}

const cut = (rows, total) => rows.length < total && html`<p class="soft pad">${number(rows.length)} of ${number(total)} rows are shown.</p>`;

function Stood({ run, summary }) {
  const state = useData(ofRun(run, `hangs/${summary.number}`), { keep: run });
  return html`<${Loaded} state=${state} what="where the ranks stood">${(found) => html`<section class="panel" aria-label=${`${named(summary)} in short`}><${Figures} items=${[
        [summary.asked ? "asked" : "declared", html`<${Time} at=${found.at} seconds />`],
        ["ranks", number(found.world)],
        !summary.asked && ["stood for", duration(lasted(summary))],
        ["with a stack", number(found.stacks)],
        found.without.count > 0 && ["without", number(found.without.count), found.without.ranks],
        found.ended.count > 0 && ["had ended", number(found.ended.count), found.ended.ranks],
      ]} />
      ${found.without.count > 0 && html`<p class="said"><${Icon} name="ask" /> <span>No stack of ${found.without.count === 1 ? "rank" : "ranks"} ${found.without.ranks}.</span></p>`}
      ${found.ended.count > 0 && html`<p class="said"><${Icon} name="bar" /> <span>Ended before, with exit code ${found.ended.codes.join(", ")}: ${found.ended.count === 1 ? "rank" : "ranks"} ${found.ended.ranks}.</span></p>`}
    </section>
    <${Panel} title="Where everybody stood" aside=${soft(`${named(summary)}: equal stacks of all ranks as one tree`)}>
      ${found.stacks ? html`<${Tree} key=${found.number} tree=${found.tree} />` : html`<p class="soft">No stack was collected.</p>`}
    <//>
    ${found.collectives.length > 0 && html`<${Panel} title="Collectives that do not end"><${Table} caption="Collectives that do not end" columns=${COLLECTIVES} rows=${found.collectives} id=${(row) => `${row.group} ${row.sequence}`} />${cut(found.collectives, found.collectives_total)}<//>`}
    ${found.alike.length > 0 && html`<${Panel} title="What the processes did" note="Ranks whose processes do the same stand in one row, the fewest first."><${Table} caption="What the processes did" columns=${PROCESSES} rows=${found.alike} id=${(row) => row.ranks + row.process + row.wchan} />${cut(found.alike, found.alike_total)}<//>`}
    ${found.nodes.length > 0 && html`<${Panel} title="What nodes said">${found.nodes.map((node) => html`<div class="resource" key=${node.node}>
      <div class="line"><h3><a href=${at("run", run, "node", node.node)}>${node.node}</a></h3>
        ${node.full.length > 0 && html`<p class="warn">full: ${node.full.join(", ")}</p>`}${node.hanging.length > 0 && html`<p class="bad">does not answer: ${node.hanging.join(", ")}</p>`}</div>
      ${node.kernel_log.map((line) => html`<p class="call">${line}</p>`)}
    </div>`)}${cut(found.nodes, found.nodes_total)}<//>`}`}<//>`;
}

export default function Hangs({ run, doc, query, setQuery }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["finding", "state"], 2_000);
  const state = useData(ofRun(run, "hangs"), { tick });
  return html`<h1>Hangs</h1>
    ${live && html`<p class="soft"><code>cordee stacks ${run}</code> asks where all ranks stand now; the answer is shown here.</p>`}
    <${Loaded} state=${state} what="the hangs">${({ hangs, total }) => {
      if (!hangs.length) return html`<${Empty} title="No hang was seen in this run."><p>When no rank goes on, who keeps the others waiting is shown here.</p><//>`;
      const chosen = hangs.find((hang) => String(hang.number) === query.hang) || hangs[0];
      return html`${hangs.map((hang) => html`<${Hang} key=${hang.number} run=${run} hang=${hang} chosen=${hang === chosen} onChosen=${() => setQuery({ hang: hang.number })} />`)}
        ${total > hangs.length && html`<p class="soft">${many(total - hangs.length, "earlier one")} not shown: <code>cordee stacks ${run} --hang N</code>.</p>`}
        <${Stood} run=${run} summary=${chosen} />`;
    }}<//>`;
}
