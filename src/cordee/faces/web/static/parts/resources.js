/** One row per resource: how it was over time on all devices, now, and on the device that stands out. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { Chart, bandLines } from "../charts.js";
import { many, quantity } from "../format.js";
import { useData, useSeen, useTick } from "../hooks.js";
import { at, withQuery } from "../routes.js";
import { Outlier } from "./outlier.js";
import { Fault, Loaded, Loading, NoneYet, Panel } from "../ui.js";

const HEIGHT = 72;
const PACE_MS = 1_000;

/** `[title, [[group, metric], …]]`: the first metric that was measured is drawn. */
export const RESOURCES = [
  ["GPU: SMs", [["gpu", "gpu_sm_ratio"], ["gpu", "gpu_graphics_ratio"], ["gpu", "gpu_utilization_ratio"]]],
  ["GPU: tensor cores", [["gpu", "gpu_tensor_ratio"]]],
  ["GPU: memory bandwidth", [["gpu", "gpu_dram_ratio"], ["gpu", "gpu_memory_busy_ratio"]]],
  ["GPU: memory used", [["gpu", "gpu_memory_used_bytes"]]],
  ["GPU: NVLink", [["gpu", "gpu_nvlink_transmit_bytes_per_second"]]],
  ["CPU", [["rank", "cpu_cores_ratio"], ["node", "cpu_busy_ratio"]]],
  ["Host memory", [["rank", "memory_rss_bytes"], ["node", "memory_used_bytes"]]],
  ["Network", [["node", "network_receive_bytes_per_second"]]],
  ["Fabric", [["node", "fabric_receive_bytes_per_second"]]],
  ["Storage: read", [["node", "storage_read_bytes_per_second"], ["rank", "io_read_bytes_per_second"], ["node", "disk_read_bytes_per_second"]]],
  ["Storage: written", [["node", "storage_write_bytes_per_second"], ["rank", "io_write_bytes_per_second"], ["node", "disk_write_bytes_per_second"]]],
  ["Waiting for storage", [["node", "pressure_io_ratio"]]],
  ["Power", [["gpu", "gpu_power_watts"], ["node", "node_power_watts"], ["node", "cpu_power_watts"]]],
];

/** The newest and the mean value of a band, and how far its ends are apart. */
function figures(bands) {
  const { mean, min, max, times } = bands.arrays;
  let last = -1;
  let sum = 0;
  let count = 0;
  for (let at = 0; at < times.length; at += 1) {
    if (!Number.isFinite(mean[at])) continue;
    last = at;
    sum += mean[at];
    count += 1;
  }
  return { now: last < 0 ? NaN : mean[last], low: last < 0 ? NaN : min[last], high: last < 0 ? NaN : max[last], mean: count ? sum / count : NaN, last };
}

/**
 * A band chart of a metric over all its devices, kept up to date while the run goes on.
 *
 * `frame(inside, bands, seen)` draws what stands around it; `bands` is null before they are there.
 */
export function Band({ run, group, metric, range, chosen, setRange, marks, live, height = HEIGHT, axis = true, frame = (inside) => inside }) {
  const [place, seen, ever] = useSeen();
  const tick = useTick(live && seen ? run : null, ["samples"], PACE_MS);
  const asked = chosen ? { start: chosen[0], stop: chosen[1] } : {};
  const state = useData(ever ? ofRun(run, "bands", { group, metric, ...asked, points: 400 }) : null, { tick, as: "frame", keep: `${run} ${group} ${metric}` });
  const bands = state.data?.arrays.times?.length ? state.data : null;
  let inside = html`<${Loading} />`;
  if (state.error && !state.data) inside = html`<${Fault} error=${state.error} />`;
  else if (state.data && !bands) inside = html`<p class="soft pad">No samples in this time.</p>`;
  else if (bands) {
    inside = html`<${Chart} x=${bands.arrays.times} lines=${bandLines(bands)} unit=${bands.unit} height=${axis ? height + 26 : height} axis=${axis} range=${range} onRange=${setRange}
      marks=${marks} sync=${`time-${run}`} low=${0} high=${bands.unit === "ratio" ? 1 : undefined} label=${`${metric} over time: mean, and the middle 50 and 90 % of devices`} />`;
  }
  return html`<div ref=${place} class="band">${frame(inside, bands, seen)}</div>`;
}

function Row({ title, group, about, last, ...shared }) {
  const link = withQuery(at("run", shared.run, "heat"), { group: group.name, metric: about.name, start: shared.chosen?.[0], stop: shared.chosen?.[1] });
  const frame = (inside, bands, seen) => html`<div class="resource">
    <div class="line"><h3><a href=${link} title="The heat map of it">${title}</a></h3>
      <p class="soft tiny" title=${about.meaning}><span class="mono">${about.name}</span> · ${many(group.devices, group.name === "gpu" ? "GPU" : group.name)} · ${about.source || "source unknown"}</p>
      ${bands && html`<${Numbers} bands=${bands} live=${shared.live}><${Outlier} run=${shared.run} group=${group.name} metric=${about.name} devices=${group.devices} live=${shared.live} seen=${seen}
        end=${shared.chosen ? shared.chosen[1] : lastTime(bands)} /><//>`}
    </div>
    ${inside}
  </div>`;
  return html`<div data-row=${about.name}><${Band} ...${shared} group=${group.name} metric=${about.name} axis=${last} frame=${frame} /></div>`;
}

/** The end of the newest time in which anything was measured. */
function lastTime(bands) {
  const { times, mean } = bands.arrays;
  let last = times.length - 1;
  while (last > 0 && !Number.isFinite(mean[last])) last -= 1;
  return times[last] + (bands.cadence || 1);
}

function Numbers({ bands, live, children }) {
  const { now, low, high, mean } = figures(bands);
  const spread = `${quantity(low, bands.unit, 2)} – ${quantity(high, bands.unit, 2)}`;
  return html`<dl class="figures">
    <div><dt>${live ? "now" : "last"}</dt><dd>${quantity(now, bands.unit)}</dd></div>
    <div><dt>mean</dt><dd>${quantity(mean, bands.unit)}</dd></div>
    <div title="the lowest and the highest device, at that moment"><dt>devices</dt><dd>${spread}</dd></div>
    ${children}
  </dl>`;
}

export function Resources(shared) {
  const { run } = shared;
  const tick = useTick(shared.live ? run : null, ["samples"], 10_000);
  const state = useData(ofRun(run, "groups"), { tick });
  return html`<${Panel} title="Resources" note="Mean over devices, with the middle half and the middle 90 % of them shaded. Drag to zoom; double-click for the whole run.">
    <${Loaded} state=${state} what="the groups">${({ groups }) => {
      const rows = RESOURCES.map(([title, wanted]) => {
        for (const [name, metric] of wanted) {
          const group = groups.find((one) => one.name === name);
          const about = group?.metrics.find((one) => one.name === metric);
          if (about) return { title, group, about };
        }
        return null;
      }).filter(Boolean);
      if (!rows.length) {
        return html`<${NoneYet} doc=${shared.doc} title="Nothing was sampled"><p>Samplers start with the ranks; the first samples are here a few seconds later.</p><//>`;
      }
      return rows.map((row, index) => html`<${Row} key=${row.about.name} ...${shared} ...${row} last=${index === rows.length - 1} />`);
    }}<//>
  <//>`;
}
