/** What the ranks logged: loss and throughput first, then everything else; over steps or time. */

import { html, useMemo, useState } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { Chart } from "../charts.js";
import { many, number } from "../format.js";
import { useData, useSeen, useTick } from "../hooks.js";
import { Choice, Empty, Fault, Icon, Loaded, Loading, Panel, Search } from "../ui.js";

const PAGE = 12;
const FIRST = [/(^|[/_.])loss/i, /per_s(ec)?(ond)?\b|_per_s|throughput|tokens|samples_s/i, /grad/i, /(^|[/_.])(lr|learning)/i, /acc/i];
const rank = (name) => {
  const at = FIRST.findIndex((pattern) => pattern.test(name));
  return at < 0 ? FIRST.length : at;
};

/** Return names of metrics in the order in which people look for them; Cordée's own are left out. */
export function ordered(metrics) {
  return metrics
    .filter((metric) => !metric.name.startsWith("cordee/"))
    .sort((one, other) => rank(one.name) - rank(other.name) || one.name.localeCompare(other.name, "en", { numeric: true }));
}

/** One logged metric: mean over ranks, and the lowest and highest of them shaded. */
export function LoggedChart({ run, metric, by, range, chosen, setRange, marks, live, height = 150 }) {
  const [place, seen, ever] = useSeen();
  const tick = useTick(live && seen ? run : null, ["logged"], 1_500);
  const state = useData(ever ? ofRun(run, `logged/${metric.name}`, { by, points: 600 }) : null, { tick, as: "frame" });
  const found = state.data;
  const lines = useMemo(() => {
    if (!found) return [];
    const { mean, low, high } = found.arrays;
    return [
      { name: "highest", values: high, role: "edge", fillTo: 1 },
      { name: "lowest", values: low, role: "edge" },
      { name: metric.name, values: mean, colour: 0, points: mean.length < 40 },
    ];
  }, [found, metric.name]);
  const mean = found?.arrays.mean;
  const last = mean?.length ? mean[mean.length - 1] : metric.last;
  return html`<div ref=${place} class="logged" data-metric=${metric.name}>
    <div class="title"><h3>${metric.name}</h3><span class="aside strong value">${number(typeof last === "number" ? last : NaN, 4)}</span></div>
    ${!found && (state.error ? html`<${Fault} error=${state.error} />` : html`<${Loading} />`)}
    ${found && html`<${Chart} x=${found.arrays.x} lines=${lines} height=${height} time=${by === "time"} range=${by === "time" ? range : null} onRange=${by === "time" ? setRange : undefined}
      marks=${by === "time" ? marks : undefined} sync=${by === "time" ? `time-${run}` : `step-${run}`} label=${`${metric.name} over ${by}`} />`}
    <p class="soft tiny">${many(metric.ranks ?? 1, "rank")}${metric.rank0_only ? ", rank 0 only" : ""}${metric.source && metric.source !== "cordee.log" ? `, through ${metric.source}` : ""}</p>
  </div>`;
}

/** `elsewhere`: the page shows in another part what the ranks log; this one is left out while it has nothing. */
export function Logged({ elsewhere, ...shared }) {
  const [by, setBy] = useState("time");
  const [text, setText] = useState("");
  const [shown, setShown] = useState(PAGE);
  const tick = useTick(shared.live ? shared.run : null, ["logged"], 5_000);
  const state = useData(ofRun(shared.run, "logged"), { tick });
  if (elsewhere && !(state.data && ordered(state.data.metrics).length)) return null;
  return html`<${Panel} title="Training" aside=${html`<${Choice} label="Horizontal axis" options=${[["time", "time"], ["step", "step"]]} value=${by} onChange=${setBy} />`}>
    <${Loaded} state=${state} what="what was logged">${({ metrics, capped }) => {
      const all = ordered(metrics);
      if (!all.length) {
        return html`<${Empty} title=${`The ranks logged nothing${shared.live ? " yet" : ""}.`}><p>One call in the training loop draws a curve here:</p><pre><code>${'cordee.log(step=step, loss=loss)'}</code></pre><//>`;
      }
      const rows = all.filter((metric) => metric.name.toLowerCase().includes(text.toLowerCase()));
      return html`${all.length > 4 && html`<div class="bar"><${Search} label="Metric" value=${text} placeholder="loss …" onInput=${setText} /></div>`}
        ${capped > 0 && html`<p class="note warn"><${Icon} name="warn" /><span>${many(capped, "more name")} ${capped === 1 ? "is" : "are"} not listed: there are too many. The findings say which ranks logged them.</span></p>`}
        <div class="grid pad">${rows.slice(0, shown).map((metric) => html`<${LoggedChart} key=${metric.name} ...${shared} metric=${metric} by=${by} />`)}</div>
        ${rows.length > shown && html`<p class="pad"><button type="button" onClick=${() => setShown(shown + 2 * PAGE)}>Show more (${number(rows.length - shown)})</button></p>`}`;
    }}<//>
  <//>`;
}
