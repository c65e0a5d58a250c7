/** Which device stands out of its group now. */

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { get, ofRun } from "../api.js";
import { quantity } from "../format.js";
import { useData, useEvery } from "../hooks.js";
import { at } from "../routes.js";

const WINDOW_S = 60;
const EVERY_S = 10;
const EVERY_OF_MANY_S = 60;
const MANY = 2_000;
const LEAST = 4;
// Five deviations of a normal distribution, told from the median of deviations; and a tenth of the median, and of the unit.
const FAR = 5 * 1.4826;
const SHARE = 0.1;

function middle(sorted) {
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Return `{at, value, median}` of the value farthest from the median, null where none stands out; NaN is no value. */
export function standsOut(values, unit) {
  const known = Float64Array.from(values).filter(Number.isFinite).sort();
  if (known.length < LEAST) return null;
  const median = middle(known);
  const spread = middle(known.map((value) => Math.abs(value - median)).sort());
  let far = -1;
  for (let here = 0; here < values.length; here += 1) {
    if (!Number.isFinite(values[here])) continue;
    if (far < 0 || Math.abs(values[here] - median) > Math.abs(values[far] - median)) far = here;
  }
  const by = Math.abs(values[far] - median);
  if (by <= FAR * spread || by <= SHARE * Math.abs(median) || (unit === "ratio" && by < 0.05)) return null;
  return { at: far, value: values[far], median };
}

const WORDS = {
  rank: (run, device) => [`rank ${device}`, at("run", run, "rank", String(device))],
  node: (run, device) => [String(device), at("run", run, "node", String(device))],
};

const gpus = { run: null, asked: null };

/** Where each GPU of a run is, asked for once: `Map` of its identifier to [node, number]. */
function gpusOf(run) {
  if (gpus.run !== run) {
    gpus.run = run;
    gpus.asked = get(ofRun(run, "devices", { group: "gpu" })).then(({ devices }) => {
      const seen = {};
      return new Map(devices.map(({ name, node, index }) => {
        seen[node] = (seen[node] ?? -1) + 1;
        return [name, [node, index ?? seen[node]]];
      }));
    });
    gpus.asked.catch(() => {
      gpus.run = null;
    });
  }
  return gpus.asked;
}

/** A GPU's identifier says little: its node and its number there say more. */
function Gpu({ run, device }) {
  const [place, setPlace] = useState(null);
  useEffect(() => {
    let here = true;
    gpusOf(run).then((known) => here && setPlace(known.get(device) ?? null), () => {});
    return () => {
      here = false;
    };
  }, [run, device]);
  if (!place?.[0]) return `…${String(device).slice(-12)}`;
  return html`<a href=${at("run", run, "node", place[0])}>${place[0]}, GPU ${place[1]}</a>`;
}

/** The device that stands out in the last minute before `end`, and its value. */
export function Outlier({ run, group, metric, devices, end, live, seen }) {
  const every = devices > MANY ? EVERY_OF_MANY_S : EVERY_S;
  const tick = useEvery(every);
  const until = live ? Math.floor(end / every) * every : Math.ceil(end);
  const asked = { group, metric, start: until - WINDOW_S, stop: until, columns: 1 };
  const state = useData(seen ? ofRun(run, "heat", asked) : null, { tick: live ? tick : 0, as: "frame", keep: `${run} ${group} ${metric}` });
  const found = state.data;
  if (!found?.devices?.length) return null;
  const columns = found.arrays.times.length;
  const last = found.devices.map((_, row) => found.arrays.values[(row + 1) * columns - 1]);
  const far = standsOut(last, found.unit);
  if (!far) return html`<div title=${`no device is far from the median in the last ${WINDOW_S} s`}><dt>stands out</dt><dd class="soft">none</dd></div>`;
  const device = found.devices[far.at];
  const [name, href] = WORDS[group]?.(run, device) ?? [];
  return html`<div title=${`${device}: ${quantity(far.value, found.unit)}, the median is ${quantity(far.median, found.unit)}; means of the last ${WINDOW_S} s`}>
    <dt>stands out</dt><dd>${name ? html`<a href=${href}>${name}</a>` : html`<${Gpu} run=${run} device=${device} />`} ${quantity(far.value, found.unit, 2)}</dd>
  </div>`;
}
