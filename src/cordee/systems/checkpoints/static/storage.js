/** What storage did: checkpoint writes drawn over throughput, so that a dent is seen, and the rates below on the same axis. */

import { html, useMemo } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { Chart } from "../../charts.js";
import { duration, many, number, quantity } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { Empty, Figures, Loaded, Missing, Panel, Table, Time } from "../../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const COLUMNS = [
  { name: "Checkpoint", of: (save) => html`<span class="name">${save.name || `step ${save.step}`}</span>` },
  { name: "Step", right: true, of: (save) => number(save.step) },
  { name: "Complete", short: true, of: (save) => html`<${Time} at=${save.end} seconds />` },
  { name: "Took", short: true, right: true, of: (save) => duration(save.seconds) },
  { name: "Size", short: true, right: true, of: (save) => quantity(save.bytes, "bytes") },
  { name: "Rate", short: true, right: true, of: (save) => (save.bytes && save.seconds ? quantity(save.bytes / save.seconds, "bytes/s") : "–") },
  { name: "Training lost", short: true, right: true, of: (save) => (save.visible ? html`<span class="warn strong">${duration(save.lost_s)}</span>` : save.lost_s === null ? html`<span class="soft">–</span>` : html`<span class="soft">none seen</span>`) },
  { name: "How it is known", of: (save) => html`<span class="soft">${save.reason || save.text || save.source}</span>` },
];

/** Checkpoint writes as stretches; without a beginning only their end is drawn. */
function writes(checkpoints) {
  return checkpoints.map((save) => ({ x: save.begin ?? save.end, width: save.begin ? save.end - save.begin : undefined, colour: save.visible ? "c1" : "c2" }));
}

function Curve({ curve, unit, name, colour, height = 90, ...shared }) {
  const lines = useMemo(() => [{ name, values: curve.values.map((value) => value ?? NaN), colour }], [curve, name, colour]);
  if (!curve.times.length) return html`<p class="soft">No values in this time.</p>`;
  return html`<${Chart} x=${curve.times} lines=${lines} unit=${unit} height=${height} low=${0} ...${shared} label=${`${name} over time, with ${many(shared.marks.length, "checkpoint write")}`} />`;
}

function Over({ found, ...shared }) {
  const curves = [
    found.pace?.times.length && { curve: found.pace, unit: "steps/s", name: "steps per second" },
    found.throughput?.times.length && { curve: found.throughput, unit: "", name: found.throughput.name },
  ].filter(Boolean);
  return html`<${Panel} title="Checkpoint writes over throughput" note=${found.summary?.text}>
    ${curves.map((one) => html`<div key=${one.name}><h3>${one.name}</h3><${Curve} ...${one} colour=${0} height=${150} ...${shared} /></div>`)}
    ${curves.length > 0 && html`<ul class="legend"><li><i class="key c1" aria-hidden="true"></i>a checkpoint write that dents throughput</li><li><i class="key c2" aria-hidden="true"></i>a checkpoint write that does not</li></ul>`}
    ${curves.length === 0 && html`<${Empty} title="No throughput is known yet."><p>Two logged steps are enough: <code>cordee.log(step=step, tokens_per_s=…)</code></p><//>`}
  <//>`;
}

/** The time from the first to the last value, so that waiting in a queue takes no room. */
function measured(found, whole) {
  return found.start !== null && found.stop > found.start ? [found.start, found.stop] : whole;
}

export default function Storage({ run, doc, range, setRange, whole }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["samples", "state"], 3_000);
  const asked = range ? { start: range[0], stop: range[1] } : {};
  const state = useData(ofRun(run, "storage", asked), { tick, keep: run });
  return html`<h1>Storage</h1>
    <${Loaded} state=${state} what="storage">${(found) => {
      const checkpoints = found.checkpoints || [];
      const shared = { range: range || measured(found, whole), onRange: setRange, marks: writes(checkpoints), sync: `time-${run}` };
      const sum = found.summary || {};
      return html`<section class="panel" aria-label="In short"><${Figures} items=${[
          ["checkpoints", number(sum.checkpoints ?? checkpoints.length)],
          ["cost measured", sum.measured === undefined ? null : `${number(sum.measured)} of ${number(sum.checkpoints)}`],
          ["seen in throughput", number(sum.visible)],
          ["training lost", sum.measured ? duration(sum.lost_s) : null],
          ["of the training", sum.measured && Number.isFinite(sum.share) ? quantity(sum.share, "ratio", 2) : null],
        ]} /></section>
        <${Over} found=${found} ...${shared} />
        ${(found.rates || []).length > 0 && html`<${Panel} title="Rates of the job">
          ${found.rates.map((rate) => html`<div class="resource" key=${rate.group + rate.name} data-row=${rate.name}>
            <div class="line"><h3>${rate.name}</h3><p class="soft tiny">${rate.statistic} over ${many(rate.devices, rate.group === "gpu" ? "GPU" : rate.group)} · ${rate.source}</p>
              <span class="strong">${quantity(rate.values.findLast((value) => value !== null), rate.unit)}</span></div>
            <${Curve} curve=${rate} unit=${rate.unit} name=${rate.name} colour=${rate.name.includes("write") ? 1 : 0} ...${shared} />
          </div>`)}<//>`}
        ${checkpoints.length > 0 && html`<${Panel} title="Checkpoints"><${Table} caption="Checkpoints" columns=${COLUMNS} rows=${[...checkpoints].reverse().slice(0, 300)} id=${(save) => `${save.attempt} ${save.step} ${save.end}`} /><//>`}
        ${found.missing?.length > 0 && html`<${Panel} title="Not shown"><${Missing} missing=${found.missing} /><//>`}`;
    }}<//>`;
}
