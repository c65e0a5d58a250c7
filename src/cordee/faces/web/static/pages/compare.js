/** Several runs side by side: a logged metric over steps or time, and what differs in their settings. */

import { html, useMemo } from "../vendor/htm-preact-3.1.1.js";
import { ofRun, url } from "../api.js";
import { Chart, Legend } from "../charts.js";
import { number } from "../format.js";
import { useData, useEvery } from "../hooks.js";
import { at } from "../routes.js";
import { ordered } from "../parts/logged.js";
import { Badge, Choice, Empty, Loaded, Missing, Panel, Select, Table, plain } from "../ui.js";

/** Put curves with their own x on one axis: every x of any of them, null where a curve has none. */
export function aligned(curves) {
  const xs = [...new Set(curves.flatMap((curve) => curve.x))].sort((one, other) => one - other);
  const place = new Map(xs.map((x, index) => [x, index]));
  const columns = curves.map((curve) => {
    const values = new Array(xs.length).fill(undefined);
    curve.x.forEach((x, index) => {
      values[place.get(x)] = curve.mean[index];
    });
    return between(values);
  });
  return { x: xs, columns };
}

/** Fill in between two points of a curve, so that its line does not break where only others have a point. */
function between(values) {
  let last = -1;
  for (let here = 0; here < values.length; here += 1) {
    if (values[here] === undefined) continue;
    if (last >= 0 && Number.isFinite(values[last]) && Number.isFinite(values[here])) {
      for (let fill = last + 1; fill < here; fill += 1) {
        values[fill] = values[last] + ((values[here] - values[last]) * (fill - last)) / (here - last);
      }
    }
    last = here;
  }
  return values.map((value) => value ?? NaN);
}

function Curves({ metric, by, curves }) {
  const { x, columns } = useMemo(() => aligned(curves), [curves]);
  const lines = useMemo(() => curves.map((curve, index) => ({ name: curve.id, values: columns[index] })), [curves, columns]);
  return html`<${Legend} items=${curves.map((curve) => ({ name: curve.id }))} />
    <${Chart} x=${x} lines=${lines} height=${380} time=${false} xUnit=${by === "time" ? "seconds" : "step"} label=${`${metric} of ${curves.length} runs over ${by}`} />`;
}

function Settings({ settings, ids }) {
  const rows = Object.entries(settings || {});
  if (!rows.length) return html`<${Empty} title="Their settings are the same." />`;
  const columns = [
    { name: "Setting", of: ([key]) => html`<code>${key}</code>` },
    ...ids.map((id) => ({ name: id, of: ([, values]) => (values[id] === null || values[id] === undefined ? html`<span class="soft">not set</span>` : html`<span class="mono">${plain(values[id])}</span>`) })),
  ];
  return html`<${Table} caption="Settings that differ" columns=${columns} rows=${rows} id=${([key]) => key} />`;
}

export default function Compare({ query, setQuery }) {
  const ids = (query.runs || "").split(",").filter(Boolean);
  const by = query.by || "step";
  const tick = useEvery(5);
  const names = useData(ids.length ? ofRun(ids[0], "logged") : null);
  const known = names.data ? ordered(names.data.metrics).map((metric) => metric.name) : [];
  const metric = query.metric || known[0] || (names.data ? "loss" : "");
  const state = useData(ids.length && metric ? url("api/compare", { runs: ids.join(","), metric, by, points: 1000 }) : null, { tick });
  if (ids.length < 1) return html`<h1>Compare</h1><${Empty} title="No runs are chosen."><p>Choose two or more in <a href="#/runs">the list of runs</a>.</p><//>`;
  return html`<h1>Compare</h1>
    <ul class="legend">${ids.map((id) => html`<li><a href=${at("run", id)}>${id}</a> <button type="button" class="plain" aria-label=${`Remove ${id}`} onClick=${() => setQuery({ runs: ids.filter((one) => one !== id).join(",") })}>×</button></li>`)}</ul>
    <div class="bar">
      <${Select} label="Metric" options=${[...new Set([...known, metric].filter(Boolean))].map((name) => [name, name])} value=${metric} onChange=${(value) => setQuery({ metric: value })} />
      <${Choice} label="Horizontal axis" options=${[["step", "step"], ["time", "time since start"]]} value=${by} onChange=${(value) => setQuery({ by: value })} />
    </div>
    <${Loaded} state=${state} what="the curves">${(found) => html`
      <${Missing} missing=${found.missing} />
      <${Panel} title=${found.metric}>
        ${found.runs.length ? html`<${Curves} metric=${found.metric} by=${found.by} curves=${found.runs} />
          <${Table} caption="Last values" id=${(one) => one.id} rows=${found.runs} columns=${[
            { name: "Run", of: (one) => html`<a class="name" href=${at("run", one.id)}>${one.id}</a>` },
            { name: "State", short: true, of: (one) => html`<${Badge} state=${one.state} />` },
            { name: "Last", right: true, of: (one) => number(one.mean.findLast((value) => Number.isFinite(value)), 5) },
            { name: "Least", right: true, of: (one) => number(extreme(one.mean, Math.min), 5) },
            { name: "Greatest", right: true, of: (one) => number(extreme(one.mean, Math.max), 5) },
            { name: by === "step" ? "Last step" : "Lasted", right: true, of: (one) => number(one.x.at(-1), 6) },
          ]} />` : html`<${Empty} title="None of these runs logged it." />`}
      <//>
      <${Panel} title="Settings that differ"><${Settings} settings=${found.settings} ids=${ids} /><//>`}<//>`;
}

const extreme = (values, of) => values.reduce((best, value) => (Number.isFinite(value) ? (Number.isNaN(best) ? value : of(best, value)) : best), NaN);
