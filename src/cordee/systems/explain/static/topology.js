/** Where the run sits on the network: switches and groups, neighbours that cross, and the picture, filtered and coloured. */

import { html, useEffect, useRef } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { number, quantity } from "../../format.js";
import { useData } from "../../hooks.js";
import { Figures, Loaded, Missing, Panel, Table } from "../../ui.js";

const LEVELS = [
  { name: "Level", of: (level) => level.level },
  { name: "Spanned", short: true, right: true, of: (level) => `${number(level.spanned)} of ${number(level.there)}` },
  { name: "Least possible", short: true, right: true, of: (level) => number(level.least_possible) },
  { name: "Most nodes in", of: (level) => html`<span class="name">${level.largest.name}</span>: ${number(level.largest.nodes)}` },
  { name: "Shared with others", short: true, right: true, of: (level) => number(level.partly) },
  { name: "With one node", short: true, right: true, of: (level) => number(level.lone) },
];

const share = (value) => (value === null ? html`<span class="soft">unknown</span>` : quantity(value, "ratio"));

/** The picture as the server drew it, in the page: what stands in it answers to the mouse. */
function Picture({ svg }) {
  const place = useRef(null);
  useEffect(() => {
    const drawn = new DOMParser().parseFromString(svg, "text/html").querySelector("svg");
    place.current.replaceChildren(document.adoptNode(drawn));
  }, [svg]);
  return html`<div class="wide picture" ref=${place}></div>`;
}

function Asked({ label, value, placeholder, onAsked }) {
  return html`<label class="field"><span>${label}</span><input value=${value} placeholder=${placeholder} onChange=${(event) => onAsked(event.target.value.trim())} /></label>`;
}

export default function Topology({ run, query, setQuery }) {
  const asked = { filter: query.filter || "", colour: query.colour || "" };
  const state = useData(ofRun(run, "topology", asked), { keep: run });
  return html`<h1>Topology</h1>
    <div class="bar">
      <${Asked} label="Only" value=${asked.filter} placeholder="dp=0,pp=6-7" onAsked=${(filter) => setQuery({ filter })} />
      <${Asked} label="Colour" value=${asked.colour} placeholder="pp, state, gpu_power_watts" onAsked=${(colour) => setQuery({ colour })} />
    </div>
    <${Loaded} state=${state} what="where the run sits">${(found) => {
      const levels = ["node", ...found.levels.map((level) => level.level)];
      const columns = [
        { name: "Dimension", of: ([name]) => name },
        { name: "Neighbours", short: true, right: true, of: ([, edge]) => number(edge.pairs) },
        ...levels.map((level) => ({ name: `Cross a ${level}`, short: true, right: true, of: ([, edge]) => share(edge[level]) })),
      ];
      const edges = Object.entries(found.edges);
      return html`<section class="panel" aria-label="In short"><${Figures} items=${[
          ["nodes", number(found.nodes)],
          ["ranks", number(found.ranks)],
          ["switches between two nodes", found.hops.mean === null ? null : number(found.hops.mean)],
          ["at most", found.hops.mean === null ? null : number(found.hops.most)],
          ["of the pairs", found.hops.known_pairs === null ? null : quantity(found.hops.known_pairs, "ratio")],
        ]} /></section>
        <${Panel} title="Nodes in their switches" note=${found.network ? `By ${found.network.source}` : null}><${Picture} svg=${found.picture} /><//>
        ${found.levels.length > 0 && html`<${Panel} title="Switches"><${Table} caption="Switches" columns=${LEVELS} rows=${found.levels} id=${(level) => level.level} /><//>`}
        ${edges.length > 0 && html`<${Panel} title="Neighbours in the training's parallelism"><${Table} caption="Neighbours" columns=${columns} rows=${edges} id=${([name]) => name} /><//>`}
        ${found.missing.length > 0 && html`<${Panel} title="Not known"><${Missing} missing=${found.missing.map((one) => ({ what: one.what, why: `Add to ${one.where}:`, next: `\`${one.line}\`` }))} /><//>`}`;
    }}<//>`;
}
