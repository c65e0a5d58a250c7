/** The services that surround trainings: how each is and why, where it is asked, on whose account, and what it has used. */

import { html } from "../../vendor/htm-preact-3.1.1.js";
import { duration, number, quantity } from "../../format.js";
import { useData, useEvery } from "../../hooks.js";
import { Badge, Empty, Figures, Loaded, Panel, Table } from "../../ui.js";

const LOOKS = { ready: "finished", unready: "warn", starting: "queued", draining: "queued", queued: "queued", failed: "failed", stopped: "cancelled" };
const hours = (value) => (value === null || value === undefined ? "–" : number(value));
const energy = (used) => {
  if (used?.energy_joules === null || used?.energy_joules === undefined) return "–";
  return `${used.energy_measured_ratio < 0.95 ? "≥ " : ""}${number(used.energy_joules / 3.6e6)} kWh`;
};
const UNUSED_S = 3600;
const idle = (row) => row.unused_s !== null && row.unused_s >= UNUSED_S;
const used = (of) => [
  { name: "Hours", short: true, right: true, of: (row) => hours(of(row)?.hours) },
  { name: "GPU hours", short: true, right: true, of: (row) => hours(of(row)?.gpu_hours) },
  { name: "Energy", short: true, right: true, of: (row) => energy(of(row)) },
  { name: "Requests", short: true, right: true, of: (row) => number(of(row)?.requests ?? 0) },
  { name: "Sent", short: true, right: true, of: (row) => quantity(of(row)?.sent_bytes ?? 0, "bytes") },
];

const Address = ({ row }) => row.endpoints.map((one) => html`<p key=${one.name}>${one.web ? html`<a href=${one.url} rel="noreferrer">${one.url}</a>` : html`<code>${one.url}</code>`}</p>`);
const place = (row) => [row.target, row.cluster === "local" ? "" : row.cluster, row.node, row.revision ? `revision ${number(row.revision)}` : ""].filter(Boolean).join(", ");
const NAME = { name: "Service", of: (row) => html`<span class="name">${row.name}</span>` };
const SERVICES = [
  { name: "Service", of: (row) => html`<span class="name">${row.name}</span><p class="soft">${place(row)}</p>` },
  { name: "State, and why", of: (row) => html`<${Badge} state=${LOOKS[row.state] || "unknown"} text=${row.state} /><p>${row.why}</p>${idle(row) && html`<p class="soft">Nobody was connected for ${duration(row.unused_s)}.</p>`}<${Address} row=${row} />` },
  { name: "Owner, project", of: (row) => html`${row.owner || "–"}<p class="soft">${row.project || "no project"}</p>` },
];
const PROJECTS = [{ name: "Project", of: (row) => row.project || html`<span class="soft">none</span>` }, ...used((row) => row)];

export default function Services() {
  const tick = useEvery(5);
  const state = useData("api/services", { tick });
  return html`<h1>Services</h1>
    <${Loaded} state=${state} what="the services">${(found) => {
      const rows = found.services;
      const total = (key) => found.projects.reduce((sum, row) => sum + row[key], 0);
      const since = `since ${found.since} (UTC)`;
      return html`<section class="panel" aria-label="In short"><${Figures} items=${[
          ["services", number(rows.length)],
          ["ready", number(rows.filter((row) => row.ready).length)],
          ["need a look", number(rows.filter((row) => ["failed", "unready", "unknown"].includes(row.state)).length)],
          ["unused for an hour", number(rows.filter(idle).length)],
          ["front door", found.door ? "open" : "closed"],
          ["GPU hours", number(total("gpu_hours")), since],
          ["requests", number(total("requests")), since],
        ]} /></section>
        ${rows.length > 0
          ? html`<${Panel} title="How they are"><${Table} caption="Services" columns=${SERVICES} rows=${rows} id=${(row) => row.name} rowProps=${(row) => ({ "data-row": row.name })} /><//>
              <${Panel} title="What each has used" aside=${since}><${Table} caption="Use of services" columns=${[NAME, ...used((row) => row.used)]} rows=${rows} id=${(row) => row.name} /><//>`
          : html`<${Empty} title="No service is deployed."><p><code>cordee service list</code> shows the catalogue, <code>cordee service deploy</code> starts one.</p><//>`}
        ${found.projects.length > 0 && html`<${Panel} title="By project" aside=${since} note="Services that were removed count, too."><${Table} caption="By project" columns=${PROJECTS} rows=${found.projects} id=${(row) => row.project} /><//>`}`;
    }}<//>`;
}
