/** What a run has sent where: by class over time, and by destination, with how it was counted. */

import { html, useMemo } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { Chart, Legend } from "../../charts.js";
import { number, quantity } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { Empty, Figures, Loaded, Panel, Table } from "../../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const NAMES = { site: "the site", registries: "registries", object_stores: "object stores", listed: "listed", rest: "destinations that nobody listed" };
const named = (kind) => NAMES[kind] || kind;
const COLUMNS = [
  { name: "Destination", of: (one) => html`<span class="name">${one.address}</span>${one.name && html` <span class="soft">${one.name}</span>`}` },
  { name: "Class", short: true, of: (one) => named(one.class) },
  { name: "Sent", short: true, right: true, of: (one) => quantity(one.sent_bytes, "bytes") },
  { name: "Received", short: true, right: true, of: (one) => quantity(one.received_bytes, "bytes") },
  { name: "Connections", short: true, right: true, of: (one) => number(one.connections) },
];

function Rates({ sent, ...shared }) {
  const lines = useMemo(() => Object.entries(sent.classes).map(([kind, values], at) => ({ name: named(kind), values: values.map((value) => value ?? NaN), colour: at })), [sent]);
  if (!lines.length) return null;
  return html`<${Panel} title="Sent over time" note="Summed over all nodes.">
    <${Chart} x=${sent.times} lines=${lines} unit="bytes/s" low=${0} ...${shared} label="Bytes sent per second over time, by class of destination" />
    <${Legend} items=${lines.map((line) => ({ name: line.name, colour: line.colour }))} /><//>`;
}

export default function Egress({ run, doc, range, setRange }) {
  const tick = useTick(ENDED.has(doc.state) ? null : run, ["samples", "state"], 3_000);
  const asked = range ? { start: range[0], stop: range[1] } : {};
  const state = useData(ofRun(run, "egress", asked), { tick, keep: run });
  return html`<h1>Egress</h1>
    <${Loaded} state=${state} what="what was sent">${(found) => {
      const methods = Object.entries(found.methods);
      if (!methods.length) return html`<${Empty} title="Nothing was counted in this run."><p>It is counted where <code>[egress] watch</code> is not <code>false</code>.</p><//>`;
      const more = found.count > found.destinations.length ? ` The ${number(found.destinations.length)} with the most bytes of ${number(found.count)} are shown.` : "";
      const limit = found.limit.most === undefined ? null : `${quantity(found.limit.most, "bytes")}, then ${found.limit.action}`;
      return html`<section class="panel" aria-label="In short"><${Figures} items=${[
          ...Object.entries(found.classes).map(([kind, one]) => [`sent to ${named(kind)}`, quantity(one.sent_bytes, "bytes")]),
          ["may go to destinations that nobody listed", limit],
          ["of nobody known", found.unclaimed_sent_bytes ? quantity(found.unclaimed_sent_bytes, "bytes") : null],
        ]} /></section>
        <${Rates} sent=${found.sent} range=${range} onRange=${setRange} sync=${`time-${run}`} />
        ${found.destinations.length > 0
          ? html`<${Panel} title="Destinations outside of the site" note=${more}><${Table} caption="Destinations" columns=${COLUMNS} rows=${found.destinations} id=${(one) => one.address} /><//>`
          : html`<${Empty} title="Nothing has left the site." />`}
        <${Panel} title="How it was counted">${methods.map(([method, precision]) => html`<p key=${method}><strong>${method}</strong>: ${precision}</p>`)}
          ${found.remarks.map((remark) => html`<p key=${remark} class="warn">${remark}</p>`)}<//>`;
    }}<//>`;
}
