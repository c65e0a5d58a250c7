/** The rows that were picked, as lines over the time that the map shows. */

import { html, useEffect, useMemo, useRef } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { Chart, LEFT, Legend } from "../charts.js";
import { useData } from "../hooks.js";
import { Loaded, Panel } from "../ui.js";

/** picked: numbers of devices; time: [from, to] of the map, which moves as it grows; left: where the map's cells begin, in pixels. */
export function PickedLines({ run, group, metric, devices, picked, time, left, setQuery }) {
  const names = picked.map((device) => devices.names[device]);
  const asked = useRef({ from: 0, to: 0 });
  if (time) asked.current = { from: time[0], to: time[1] };
  const { from, to } = asked.current;
  const path = names.length && time ? ofRun(run, "lines", { group, metric: metric.name, devices: names.join(","), start: from, stop: to, points: 600 }) : null;
  const state = useData(path, { as: "frame" });
  const kept = useRef(null);
  if (state.data) kept.current = { data: state.data, names: names.join() };
  useEffect(() => {
    if (!picked.length) kept.current = null;
  }, [picked.length]);
  const shown = state.data || (kept.current?.names === names.join() ? kept.current.data : null);
  const lines = useMemo(() => (shown ? lineList(shown, picked, devices) : []), [shown, devices]);
  if (!picked.length) return null;
  const items = picked.map((device, at) => ({ name: devices.labels[device], colour: at }));
  const aside = html`<button type="button" onClick=${() => setQuery({ pick: null })}>Clear</button>`;
  return html`<${Panel} title="Picked rows" aside=${aside}>
    <${Legend} items=${items} />
    <${Loaded} state=${{ ...state, data: shown }} what="the lines">
      ${(seen) => html`<div style=${{ paddingLeft: `${Math.max(0, left - LEFT)}px` }}><${Chart} x=${seen.arrays.times} lines=${lines} unit=${metric.unit} height=${180} range=${time}
        onRange=${(chosen) => setQuery({ last: null, start: chosen?.[0].toFixed(3), stop: chosen?.[1].toFixed(3) })}
        label=${`${metric.name} of ${items.map((item) => item.name).join(", ")}`} /></div>`}
    <//>
  <//>`;
}

function lineList(seen, picked, devices) {
  const [rows, count] = seen.shapes.mean;
  return [...Array(Math.min(rows, picked.length)).keys()].map((at) => ({
    name: devices.labels[picked[at]],
    values: seen.arrays.mean.subarray(at * count, (at + 1) * count),
    colour: at,
  }));
}
