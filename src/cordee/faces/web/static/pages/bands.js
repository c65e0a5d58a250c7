/** How the devices were spread over time: several metrics on one axis, with those that stand apart named below. */

import { html, useMemo } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { Chart } from "../charts.js";
import { many, number } from "../format.js";
import { useData, useSeen, useTick } from "../hooks.js";
import { marksOf } from "../parts/marks.js";
import { at, withQuery } from "../routes.js";
import { Fault, Loading, NoneYet, Panel, Select, Time } from "../ui.js";
import { described, rankOf } from "../heat/devices.js";
import { outliers } from "../heat/outliers.js";
import { useStyle } from "../heat/use.js";
import { apart, said } from "../heat/words.js";

const FIRST = ["gpu_sm_ratio", "gpu_power_watts", "gpu_temperature_celsius", "cpu_busy_ratio", "cpu_cores_ratio", "memory_rss_bytes"];
const SHOWN = 4;
const MOST = 12;
const COLUMNS = 24;
const AROUND_S = 150;
const ENDED = new Set(["finished", "failed", "cancelled"]);

export default function Bands(given) {
  useStyle();
  return html`<h1 class="hidden">Bands</h1><${Inside} ...${given} />`;
}

function Inside({ run, query, setQuery, doc, range, setRange, whole }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["samples"], 20_000);
  const state = useData(ofRun(run, "groups"), { tick });
  if (!state.data) return state.error ? html`<${Fault} error=${state.error} what="the bands" />` : html`<${Loading} what="what was measured" />`;
  const all = state.data.groups.flatMap((group) => group.metrics.map((metric) => ({ ...metric, group: group.name, key: `${group.name}:${metric.name}`, devices: group.devices })));
  if (!all.length) return html`<${NoneYet} doc=${doc} title="Nothing was sampled"><p>Samples come once ranks run; this page updates by itself.</p><//>`;
  const chosen = wanted(query, all);
  const set = (list) => setQuery({ metrics: list.map((metric) => metric.key).join(","), group: null, metric: null });
  const others = all.filter((metric) => !chosen.includes(metric));
  const shared = { run, doc, range, setRange, whole, live };
  return html`<div class="bar">
      <${Select} label="Add a metric" value="" options=${[["", chosen.length < MOST ? "choose…" : "no more than 12"], ...(chosen.length < MOST ? others : []).map((metric) => [metric.key, `${metric.name} (${metric.group})`])]}
        onChange=${(key) => key && set([...chosen, all.find((metric) => metric.key === key)])} />
      <p class="soft tiny">Line: median. Shaded: the middle 50 and 90 % of devices. Thin: lowest and highest. Dots: devices over 6 σ from the median.</p>
    </div>
    ${chosen.map((metric) => html`<${One} key=${metric.key} metric=${metric} ...${shared} remove=${chosen.length > 1 ? () => set(chosen.filter((of) => of !== metric)) : null} />`)}`;
}

function wanted(query, all) {
  const asked = query.metrics ? query.metrics.split(",") : query.metric ? [`${query.group}:${query.metric}`] : [];
  const found = asked.map((key) => all.find((metric) => metric.key === key)).filter(Boolean);
  if (found.length) return found.slice(0, MOST);
  const first = FIRST.map((name) => all.find((metric) => metric.name === name)).filter(Boolean);
  return (first.length ? first : all).slice(0, SHOWN);
}

function bandsOf(bands, dots) {
  const of = (name) => bands.arrays[name];
  return [
    { name: "highest", values: of("max"), colour: 6, width: 0.8 },
    { name: "lowest", values: of("min"), colour: 6, width: 0.8 },
    { name: "p95", values: of("p95"), role: "edge", colour: 0, fillTo: 3, fillAlpha: 0.16 },
    { name: "p5", values: of("p5"), role: "edge", colour: 0 },
    { name: "p75", values: of("p75"), role: "edge", colour: 0, fillTo: 5, fillAlpha: 0.28 },
    { name: "p25", values: of("p25"), role: "edge", colour: 0 },
    { name: "median", values: of("p50"), colour: 0 },
    ...(dots ? [{ name: "apart", values: dots, colour: 1, width: 0, points: true }] : []),
  ];
}

// A dot stands at the point of the chart that is nearest to its time.
function dotsOf(bands, far) {
  if (!far?.length) return null;
  const { times } = bands.arrays;
  const dots = new Float32Array(times.length).fill(NaN);
  for (const one of far) {
    const place = Math.round((one.time - times[0]) / bands.cadence - 0.5);
    if (place >= 0 && place < dots.length && Number.isFinite(one.value)) dots[place] = one.value;
  }
  return dots;
}

function One({ run, doc, metric, range, setRange, whole, live, remove }) {
  const [place, seen] = useSeen();
  const tick = useTick(live && seen ? run : null, ["samples"], 2_000);
  const slow = useTick(live && seen ? run : null, ["samples"], 15_000);
  const asked = range ? { start: range[0], stop: range[1] } : {};
  const what = { group: metric.group, metric: metric.name, ...asked };
  const state = useData(seen ? ofRun(run, "bands", { ...what, points: 600 }) : null, { tick, as: "frame" });
  const coarse = useData(seen ? ofRun(run, "heat", { ...what, columns: COLUMNS }) : null, { tick: slow, as: "frame" });
  const who = useData(seen ? ofRun(run, "devices", { group: metric.group }) : null);
  const bands = state.data;
  const apartFrom = useMemo(() => (coarse.data ? outliers(coarse.data) : null), [coarse.data]);
  const devices = useMemo(() => (who.data ? described(metric.group, who.data.devices) : null), [who.data]);
  const lines = useMemo(() => (bands ? bandsOf(bands, dotsOf(bands, apartFrom?.far)) : []), [bands, apartFrom]);
  const empty = bands && !bands.arrays.count.some((count) => count > 0);
  const link = withQuery(at("run", run, "heat"), what);
  const aside = html`<a href=${link}>heat map</a>${remove && html` <button type="button" class="plain" onClick=${remove} aria-label=${`Remove ${metric.name}`}>remove</button>`}`;
  return html`<div ref=${place} class="band" data-metric=${metric.name}><${Panel} title=${metric.name} id=${metric.key} aside=${aside} note=${metric.meaning}>
    ${!bands && (state.error ? html`<${Fault} error=${state.error} what=${metric.name} />` : html`<${Loading} what=${metric.name} />`)}
    ${empty && html`<p class="soft">No samples of it in this time.</p>`}
    ${bands && !empty && html`<${Chart} x=${bands.arrays.times} lines=${lines} unit=${bands.unit} height=${170} range=${range || whole} onRange=${setRange} marks=${marksOf(doc)} sync=${`time-${run}`}
        low=${bands.unit === "ratio" ? 0 : undefined} high=${bands.unit === "ratio" ? 1 : undefined}
        label=${`${metric.name} over time: median, and the middle 50 and 90 % of ${many(metric.devices, "device")}`} />
      <${Apart} ...${{ run, metric, found: apartFrom, devices, bands, link }} />`}
  <//></div>`;
}

function Apart({ run, metric, found, devices, bands, link }) {
  const measured = bands.arrays.count;
  const now = measured.findLast((count) => count > 0) ?? 0;
  const linkTo = (device, time) => {
    const rank = rankOf(device);
    if (rank === null && !device.node) return link;
    const where = rank !== null ? at("run", run, "rank", rank) : at("run", run, "node", device.node);
    return withQuery(where, { start: (time - AROUND_S).toFixed(3), stop: (time + AROUND_S).toFixed(3) });
  };
  return html`<ul class="outliers" aria-label=${`Devices apart in ${metric.name}`}>
    <li class="soft">${number(now)} of ${many(metric.devices, "device")} measured</li>
    ${found?.silent > 0 && html`<li><a href=${`${link}&sort=first`}>${many(found.silent, "device")} missing at times</a></li>`}
    ${devices && found?.far.map(
      (one) => html`<li><a href=${linkTo(devices.list[one.row], one.time)}>${devices.labels[one.row]}</a>${" "}<span class="soft">${[said(one.value, metric.unit), apart(one.z)].filter(Boolean).join(", ")}, <${Time} at=${one.time} seconds /></span></li>`,
    )}
    ${found && found.count > found.far.length && html`<li><a href=${`${link}&sort=deviation`}>${number(found.count - found.far.length)} more</a></li>`}
  </ul>`;
}
