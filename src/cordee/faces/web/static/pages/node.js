/** One node: its verdict, its ranks and GPUs, what they use. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { duration, quantity, ranges } from "../format.js";
import { useData, useTick } from "../hooks.js";
import { at } from "../routes.js";
import { Lines } from "../parts/lines.js";
import { marksOf } from "../parts/marks.js";
import { called } from "../parts/vetting.js";
import { Badge, Empty, Figures, Loaded, Missing, Panel, Table, plain } from "../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const CHECKS = [
  { name: "Check", of: (result) => html`<span class="name">${called(result)}</span>` },
  { name: "Status", short: true, of: (result) => html`<${Badge} state=${result.status} />` },
  { name: "Value", short: true, right: true, of: (result) => valueOf(result.value, result.unit) },
  { name: "Threshold", short: true, right: true, of: (result) => valueOf(result.threshold, result.unit) },
  { name: "Took", short: true, right: true, of: (result) => duration(result.seconds) },
  { name: "Evidence", of: (result) => result.evidence || html`<span class="soft">–</span>` },
];

function valueOf(value, unit) {
  if (value === null || value === undefined) return html`<span class="soft">–</span>`;
  return typeof value === "number" ? quantity(value, unit) : plain(value);
}

function Ranks({ run, ranks }) {
  return html`<ul class="links">${ranks.map((rank) => html`<li><a href=${at("run", run, "rank", String(rank))}>${rank}</a></li>`)}</ul>`;
}

export default function Node({ run, doc, params, range, setRange, whole }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["state"], 2_000);
  const state = useData(ofRun(run, `nodes/${params.node}`), { tick });
  const shared = { run, range: range || whole, chosen: range, setRange, marks: marksOf(doc), live };
  const known = doc.nodes.find((node) => node.node === params.node);
  const devices = (node) => (node.gpus || []).map((gpu) => (typeof gpu === "object" ? (gpu.device ?? gpu.name ?? gpu.uuid) : gpu));
  return html`<div class="title"><h1>${params.node}</h1>${known && html`<${Badge} state=${known.verdict} /><${Badge} state=${known.role} />`}</div>
    <${Loaded} state=${state} what="the node">${(node) => {
      const ranks = node.ranks || known?.ranks || [];
      const results = node.results || known?.results || [];
      return html`<section class="panel" aria-label="This node"><${Figures} items=${[
          ["verdict", html`<${Badge} state=${node.verdict || "unknown"} />`],
          ["role", html`<${Badge} state=${node.role || "unknown"} />`],
          ["host", node.host && node.host !== params.node ? node.host : null],
          ["ranks", ranks.length ? html`<${Ranks} run=${run} ranks=${ranks.map((rank) => (typeof rank === "object" ? rank.rank : rank))} />` : "none"],
          ["GPUs", devices(node).length || null],
        ]} />${node.reason && html`<p class="said">${node.reason}</p>`}</section>
        <${Missing} missing=${node.missing} />
        <${Panel} title="Vetting">${results.length ? html`<${Table} caption=${`Checks of ${params.node}`} columns=${CHECKS} rows=${results} id=${called} rowProps=${(result) => ({ "data-row": called(result) })} />` : html`<${Empty} title="This node was not vetted." />`}<//>
        ${ranks.length > 0 && html`<p class="hidden">Ranks ${ranges(ranks.map((rank) => (typeof rank === "object" ? rank.rank : rank)))}</p>`}
        <${Lines} ...${shared} title="GPUs of this node" wanted=${[["gpu", ...devices(node)]]} />
        <${Lines} ...${shared} title="This node" wanted=${[["node", params.node]]} />
        <${Lines} ...${shared} title="Its ranks" wanted=${[["rank", ...ranks.map((rank) => (typeof rank === "object" ? rank.rank : rank))]]} />`;
    }}<//>`;
}
