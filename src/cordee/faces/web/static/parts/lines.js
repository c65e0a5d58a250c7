/** Charts of single devices: every metric of a group, one small chart each. */

import { html, useMemo, useState } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { Chart, Legend } from "../charts.js";
import { quantity } from "../format.js";
import { useData, useSeen, useTick } from "../hooks.js";
import { at, withQuery } from "../routes.js";
import { Empty, Fault, Loaded, Loading, Panel, Search } from "../ui.js";

const MOST_LINES = 8;

function One({ run, group, about, devices, range, chosen, setRange, marks, live }) {
  const [place, seen, ever] = useSeen();
  const tick = useTick(live && seen ? run : null, ["samples"], 2_000);
  const asked = chosen ? { start: chosen[0], stop: chosen[1] } : {};
  const state = useData(ever ? ofRun(run, "lines", { group, metric: about.name, devices: devices.join(","), ...asked, points: 400 }) : null, { tick, as: "frame", keep: `${run} ${group} ${about.name} ${devices}` });
  const found = state.data;
  const lines = useMemo(() => {
    if (!found) return [];
    const points = found.arrays.times.length;
    return (found.devices || devices).map((device, row) => ({ name: String(device), values: found.arrays.mean.subarray(row * points, (row + 1) * points) }));
  }, [found]);
  const first = lines[0]?.values;
  const last = first ? first.findLast((value) => Number.isFinite(value)) : undefined;
  const empty = found && !lines.some((line) => line.values.some((value) => Number.isFinite(value)));
  const link = withQuery(at("run", run, "heat"), { group, metric: about.name, start: chosen?.[0], stop: chosen?.[1] });
  return html`<div ref=${place} class="logged" data-metric=${about.name}>
    <div class="title"><h3 title=${about.meaning}><a href=${link}>${about.name}</a></h3>${lines.length === 1 && html`<span class="aside strong">${quantity(last, about.unit)}</span>`}</div>
    ${!found && (state.error ? html`<${Fault} error=${state.error} />` : html`<${Loading} />`)}
    ${empty && html`<p class="soft">No samples of it in this time.</p>`}
    ${found && !empty && html`<${Chart} x=${found.arrays.times} lines=${lines} unit=${about.unit} height=${110} range=${range} onRange=${setRange} marks=${marks} sync=${`time-${run}`}
      low=${0} high=${about.unit === "ratio" ? 1 : undefined} label=${`${about.name} of ${devices.slice(0, MOST_LINES).join(", ")} over time`} />`}
  </div>`;
}

/** `wanted`: `[[group, device, …], …]`; every metric of these groups that was measured, of these devices. */
export function Lines({ title, wanted, ...shared }) {
  const [text, setText] = useState("");
  const tick = useTick(shared.live ? shared.run : null, ["samples"], 20_000);
  const state = useData(ofRun(shared.run, "groups"), { tick });
  return html`<${Panel} title=${title}>
    <${Loaded} state=${state} what="what was measured">${({ groups }) => {
      const charts = wanted.flatMap(([name, ...devices]) => {
        const group = groups.find((one) => one.name === name);
        return group && devices.length ? group.metrics.map((about) => ({ group: name, about, devices: devices.slice(0, MOST_LINES) })) : [];
      });
      if (!charts.length) return html`<${Empty} title="Nothing was sampled here." />`;
      const shown = charts.filter((chart) => chart.about.name.includes(text.toLowerCase()));
      const several = Math.max(...charts.map((chart) => chart.devices.length)) > 1;
      return html`<div class="bar"><${Search} label="Metric" value=${text} placeholder="memory …" onInput=${setText} /></div>
        ${several && wanted.map(([name, ...devices]) => devices.length > 1 && html`<${Legend} key=${name} items=${devices.slice(0, MOST_LINES).map((device) => ({ name: String(device) }))} />`)}
        <div class="grid small pad">${shown.map((chart) => html`<${One} key=${chart.group + chart.about.name} ...${shared} ...${chart} />`)}</div>`;
    }}<//>
  <//>`;
}
