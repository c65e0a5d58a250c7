/** What moved with the time of a step: the ranking, and of the strongest metrics a chart beside the steps. */

import { html, useMemo } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { Chart, Legend } from "../../charts.js";
import { duration, many, number } from "../../format.js";
import { useData } from "../../hooks.js";
import { at, withQuery } from "../../routes.js";
import { Empty, Figures, Loaded, Missing, Panel, Table, Time } from "../../ui.js";

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
const lag = (seconds) => (seconds === 0 ? "at once" : `${duration(Math.abs(seconds))} ${seconds > 0 ? "before" : "after"}`);
const called = (group, device) => (group === "rank" ? `rank ${device}` : device);
const key = (one) => `${one.group} ${one.metric}`;

/** The strength as a bar from the middle: to the right where it is higher when steps take longer. */
function Strength({ value }) {
  const width = `${50 * Math.min(1, Math.abs(value))}%`;
  return html`<span class="strength" aria-hidden="true"><i class=${value < 0 ? "c0" : "c1"} style=${{ width, [value < 0 ? "right" : "left"]: "50%" }}></i></span> <span class="strong">${signed(value)}</span>`;
}

const columns = (run, range) => [
  { name: "Metric", of: (one) => html`<a class="name" href=${withQuery(at("run", run, "heat"), { group: one.group, metric: one.metric, start: range?.[0], stop: range?.[1] })}>${one.metric}</a>` },
  { name: "Of", short: true, of: (one) => one.group },
  { name: "Strength", title: "From −1 to 1; above 0: it is higher where steps take longer", short: true, of: (one) => html`<${Strength} value=${one.strength} />` },
  { name: "It moved", title: "Beside the time of a step", short: true, of: (one) => lag(one.lag_s) },
  { name: "Moved with it", short: true, right: true, of: (one) => `${number(one.devices)} of ${number(one.of)}` },
  { name: "Strongest", roomy: true, of: (one) => html`<span class="small">${one.strongest.slice(0, 3).map(({ device, correlation }) => `${called(one.group, device)} ${signed(correlation)}`).join(", ")}</span>` },
];

function Beside({ one, curve, times, steps, sync }) {
  const lines = useMemo(
    () => [
      { name: called(one.group, curve.device), values: Float64Array.from(curve.values, (value) => value ?? NaN) },
      { name: "time of a step", values: Float64Array.from(steps, (value) => value ?? NaN), right: true },
    ],
    [curve, steps],
  );
  return html`<div class="logged" data-metric=${one.metric}>
    <div class="title"><h3>${one.metric}</h3><span class="aside"><${Strength} value=${one.strength} /></span></div>
    <p class="soft small">${one.strength > 0 ? "higher" : "lower"} where steps take longer, ${lag(one.lag_s)}; ${called(one.group, curve.device)} is shown, ${many(one.devices, "device")} of ${number(one.of)} moved so</p>
    <${Chart} x=${times} lines=${lines} unit=${one.unit} rightUnit="s" height=${130} sync=${sync} label=${`${one.metric} of ${called(one.group, curve.device)} beside the time of a step, over time; correlation ${signed(one.strength)}`} />
  </div>`;
}

export default function Correlation({ run, range }) {
  const asked = range ? { start: range[0], stop: range[1] } : {};
  const state = useData(ofRun(run, "correlation", asked), { keep: run });
  return html`<h1>Correlation</h1>
    <${Loaded} state=${state} what="what moved with the time of a step">${(found) => {
      if (found.missing.length) return html`<${Missing} missing=${found.missing} />`;
      const { curves } = found;
      const [low, high] = found.step_s_5_95;
      const known = new Map(found.metrics.map((one) => [key(one), one]));
      return html`<section class="panel" aria-label="In short"><${Figures} items=${[
          ["a step took", duration(found.step_s)],
          ["in nine of ten windows", `${duration(low)} – ${duration(high)}`],
          ["series looked at", number(found.series)],
          ["windows", `${number(found.windows)} of ${duration(found.window_s)}`],
          ["from", html`<${Time} at=${found.start} seconds />`],
          ["to", html`<${Time} at=${found.stop} seconds />`],
        ]} /></section>
        ${found.metrics.length === 0 && html`<${Empty} title="No metric moved with the time of a step more than chance would have it." />`}
        ${found.metrics.length > 0 && html`<${Panel} title="What moved with the time of a step" note="What moves together need not be cause and effect: look at what moved first, and on which node.">
          <${Table} caption="What moved with the time of a step" columns=${columns(run, range)} rows=${found.metrics} id=${key} /><//>
        <${Panel} title="Beside the steps" aside=${html`<${Legend} items=${[{ name: "the device that went with it most (left)" }, { name: "time of a step in seconds (right)" }]} />`}
          note=${`${found.metrics.length > curves.metrics.length ? `The ${curves.metrics.length} strongest of ${found.metrics.length}, as` : "As"} they were compared: the highest and lowest 2 % are cut off.`}>
          <div class="grid">${curves.metrics.map((curve) => html`<${Beside} key=${key(curve)} one=${known.get(key(curve))} curve=${curve} times=${curves.times} steps=${curves.step_s} sync=${`correlation-${run}`} />`)}</div><//>`}`;
    }}<//>`;
}
