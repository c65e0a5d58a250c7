/** The traces that `cordee profile` has left in the run's folder, and what opens them. */

import { html } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { number, quantity } from "../../format.js";
import { useData } from "../../hooks.js";
import { at } from "../../routes.js";
import { Empty, Loaded, Panel, Table } from "../../ui.js";

const columns = (run) => [
  { name: "Profile", short: true, right: true, of: (one) => number(one.profile) },
  { name: "Attempt", short: true, right: true, of: (one) => number(one.attempt) },
  { name: "Rank", short: true, right: true, of: (one) => html`<a href=${at("run", run, "rank", one.rank)}>${one.rank}</a>` },
  { name: "Tool", short: true, of: (one) => one.tool },
  { name: "Shows", of: (one) => one.window || "a stretch of time" },
  { name: "Size", short: true, right: true, of: (one) => quantity(one.bytes, "bytes") },
  { name: "File", roomy: true, of: (one) => html`<span class="name">${one.path}</span>` },
];

export default function Traces({ run }) {
  const state = useData(ofRun(run, "traces"), { keep: run });
  return html`<h1>Traces</h1>
    <${Loaded} state=${state} what="the traces">${({ folder, count, traces }) => {
      if (!traces.length) return html`<${Empty} title="No trace was kept." />`;
      const more = count > traces.length ? ` The newest ${number(traces.length)} of ${number(count)} are shown.` : "";
      return html`<${Panel} title="Traces" note=${`In ${folder}. ui.perfetto.dev opens traces, speedscope.app what py-spy has seen; both keep them on your machine.${more}`}>
        <${Table} caption="Traces" columns=${columns(run)} rows=${traces} id=${(one) => one.path} /><//>`;
    }}<//>`;
}
