/** The rows that differ most, as a table: for ears, for keyboards, for pasting into a message. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { quantity } from "../format.js";
import { Empty, Panel, Table, Time } from "../ui.js";
import { placeWords, rankOf } from "./devices.js";

/** worst: [{device, mean, latest, deviation, first}], null before it is known; linkTo(device, time or null): its page. */
export function WorstTable({ worst, devices, unit, linkTo, picked, onPick }) {
  const rows = worst || [];
  const placed = rows.some(({ device }) => devices.list[device]?.place);
  const columns = [
    {
      name: "device",
      of: ({ device, first }) => html`<label class="check"><input type="checkbox" checked=${picked.includes(device)} aria-label=${`Draw ${devices.labels[device]} as a line`} onChange=${() => onPick(device)} />
        <a href=${linkTo(device, first)}>${devices.labels[device]}</a></label>`,
    },
    { name: "rank", short: true, of: ({ device }) => rankOf(devices.list[device]) ?? "–" },
    ...(placed ? [{ name: "place", short: true, of: ({ device }) => placeWords(devices.list[device]) || "–" }] : []),
    { name: "deviation", right: true, short: true, title: "Mean of the distance from the median of its peers, in robust standard deviations", of: ({ deviation }) => (Number.isNaN(deviation) ? "never measured" : `${deviation.toFixed(1)} σ`) },
    { name: "mean", right: true, short: true, of: ({ mean }) => quantity(mean, unit) },
    { name: "latest", right: true, short: true, of: ({ latest }) => quantity(latest, unit) },
    { name: "first bad", short: true, title: "First infinite, missing, or over 6 standard deviations from its peers", of: ({ first }) => (first === null ? "–" : html`<${Time} at=${first} seconds />`) },
  ];
  return html`<${Panel} title="Differ most" note=${`The devices farthest from their peers (${devices.peers.words}), over the whole time.`}>
    ${worst && !rows.length
      ? html`<${Empty} title="No rows" />`
      : html`<${Table} columns=${columns} rows=${rows} id=${(row) => row.device} caption="The devices that differ most from their peers" rowProps=${() => ({ "data-row": "" })} />`}
  <//>`;
}
