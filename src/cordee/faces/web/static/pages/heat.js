/** The heat map: any metric of any group, time across, devices down. The address holds all of what is looked at. */

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { many, number, utc } from "../format.js";
import { useHandler, useTheme } from "../hooks.js";
import { at, withQuery } from "../routes.js";
import { Choice, Fault, Loading, NoneYet, Select, Time } from "../ui.js";
import { marks, table } from "../heat/colourmaps.js";
import { rankOf } from "../heat/devices.js";
import { HeatLegend, isDark } from "../heat/legend.js";
import { PickedLines } from "../heat/lines.js";
import { HeatMap } from "../heat/map.js";
import { useDevices, useEngine, useMetrics, useStyle } from "../heat/use.js";
import { allRows, allTime } from "../heat/view.js";
import { CELLS, SORTS } from "../heat/words.js";
import { WorstTable } from "../heat/worst.js";

const MOST_PICKED = 8;
const AROUND_S = 150;
const WORST = 20;

export default function Heat({ run, doc, query, setQuery, range }) {
  useStyle();
  return html`<h1 class="hidden">Heat map</h1><${Inside} ...${{ run, doc, query, setQuery, range }} />`;
}

function Inside({ run, doc, query, setQuery, range }) {
  const { state, groups, group, metric } = useMetrics(run, query);
  if (group) return html`<${Chosen} ...${{ run, query, setQuery, range, groups, group, metric }} key=${group.name} />`;
  if (state.error) return html`<${Fault} error=${state.error} what="the heat map" />`;
  if (!state.data) return html`<${Loading} what="what was measured" />`;
  return html`<${NoneYet} doc=${doc} title="Nothing was sampled"><p>Samples come once ranks run, one a second from every node; this page updates by itself.</p><//>`;
}

function Chosen({ run, query, setQuery, range, groups, group, metric }) {
  const [again, setAgain] = useState(0);
  const { state, devices } = useDevices(run, group.name, again);
  const choose = html`<${Metrics} ...${{ groups, group, metric, setQuery }} />`;
  if (!devices) return html`<div class="bar">${choose}</div>${state.error ? html`<${Fault} error=${state.error} what="the devices" />` : html`<${Loading} what="the devices" />`}`;
  return html`<${Map_} ...${{ run, query, setQuery, range, group, metric, devices, choose }} onDevices=${() => setAgain((count) => count + 1)} />`;
}

function Metrics({ groups, group, metric, setQuery }) {
  return html`<${Select} label="Devices" value=${group.name} options=${groups.map((of) => [of.name, `${of.name} (${number(of.devices)})`])}
      onChange=${(name) => setQuery({ group: name, metric: null, by: null, rows: null, pick: null })} />
    <${Select} label="Metric" value=${metric.name} options=${group.metrics.map((of) => [of.name, of.name])}
      onChange=${(name) => setQuery({ group: group.name, metric: name })} />`;
}

/** What the address says of the map; what makes no sense counts as not said. */
function wanted(query, devices) {
  const value = SORTS[query.sort] ? query.sort : "name";
  const by = devices.groups[query.by] ? query.by : "";
  const down = query.dir === "down" || (query.dir !== "up" && SORTS[value].down);
  const [r0, r1] = (query.rows || "").split("-").map(Number);
  const picked = (query.pick || "").split(",").map((name) => devices.names.indexOf(name)).filter((at) => at >= 0);
  return {
    sort: { value, by, down },
    rows: r1 > r0 && r0 >= 0 ? [r0, r1] : null,
    map: query.map === "diverging" ? "diverging" : "sequential",
    scale: ["full", "unit"].includes(query.scale) ? query.scale : "robust",
    kind: CELLS.some(([of]) => of === query.cells) ? query.cells : "far",
    picked: picked.slice(0, MOST_PICKED),
    last: Number(query.last) > 0 ? Number(query.last) : null,
  };
}

/** Return the ends of the colours: around the median of all for a diverging map. */
function ends(found, { scale, map }) {
  if (!found || !Number.isFinite(found.low)) return [0, 1];
  let [low, high] = scale === "unit" ? [0, 1] : scale === "full" ? [found.least, found.most] : [found.low, found.high];
  if (map === "diverging" && scale !== "unit") {
    const far = Math.max(high - found.centre, found.centre - low);
    [low, high] = [found.centre - far, found.centre + far];
  }
  if (high > low) return [low, high];
  const room = Math.abs(low) * 0.1 || 1;
  return [low - room, high + room];
}

function Map_({ run, query, setQuery, range, group, metric, devices, choose, onDevices }) {
  const want = wanted(query, devices);
  const plot = useRef(null);
  const look = useRef({ colours: table("sequential"), marks: marks(false), low: 0, high: 1, kind: "far" });
  const sent = useRef(null);
  const [time, setTime] = useState(null);
  const theme = useTheme();

  const onPicture = useHandler(({ bitmap, view }) => (plot.current ? plot.current.take(bitmap, view) : bitmap.close()));
  const onData = useHandler((kind, message) => {
    if (kind === "data" && plot.current) {
      const first = !plot.current.extent;
      recolour(message.range);
      plot.current.reach({ t0: message.t0, t1: message.t1, step: message.step }, devices.names.length, group.cadence);
      if (first) plot.current.show(range, want.rows, want.last);
      settled(plot.current.view);
    } else plot.current?.repaint();
  });
  const onOrder = useHandler((order) => {
    plot.current?.arrange(order.order, order.groups, devices.labels, want.sort.by ? devices.groups[want.sort.by].labels : null);
  });
  const { engine, data, worst, counted, error, again } = useEngine({
    run, group: group.name, metric: metric.name, devices, sort: want.sort, follow: want.last, onPicture, onData, onOrder,
  });
  useEffect(() => {
    if (again) onDevices();
  }, [again]);
  useEffect(() => plot.current?.blank(), [metric.name]);

  const [low, high] = ends(data?.range, want);
  function recolour(found) {
    const [from, to] = ends(found || data?.range, want);
    look.current = { colours: table(want.map), marks: marks(isDark()), low: from, high: to, kind: want.kind };
  }
  useEffect(() => {
    recolour();
    plot.current?.repaint();
  }, [want.map, want.scale, want.kind, theme, low, high]);
  useEffect(() => {
    if (plot.current) plot.current.picked = want.picked;
    plot.current?.later();
  }, [query.pick, data !== null]);
  useEffect(() => {
    const here = [range?.[0], range?.[1], query.rows, query.last].join();
    if (here === sent.current) return;
    sent.current = here;
    plot.current?.show(range, want.rows, want.last);
    if (plot.current?.view) settled(plot.current.view);
  }, [range?.[0], range?.[1], query.rows, query.last]);

  /** What is looked at stays for a while: finer columns where there are any, the legend's counts. */
  const settled = useHandler((view) => {
    setTime((old) => (old && old[0] === view.t0 && old[1] === view.t1 ? old : [view.t0, view.t1]));
    const reached = plot.current?.extent;
    if (!reached || !data) return;
    const [from, to] = ends(data.range, want);
    engine.send("count", { view, low: from, high: to });
    if (reached.step <= group.cadence * 1.01 || allTime(view, reached)) return;
    const room = 0.25 * (view.t1 - view.t0);
    const [start, stop] = [Math.max(reached.t0, view.t0 - room), Math.min(reached.t1, view.t1 + room)];
    const columns = Math.min(600, Math.ceil((stop - start) / group.cadence) + 1);
    if ((stop - start) / columns < 0.8 * reached.step) engine.send("detail", { start, stop, columns });
  });
  useEffect(() => {
    if (plot.current?.view) settled(plot.current.view);
  }, [data, want.scale, want.map]);
  useEffect(() => {
    if (data && data.stage !== "overview") engine.send("worst", { count: WORST });
  }, [data]);

  const onView = useHandler((view, how) => {
    if (how !== "settled") return;
    const { extent, count } = plot.current;
    const whole = allTime(view, extent);
    const rows = allRows(view, count) ? null : `${view.r0.toFixed(1)}-${view.r1.toFixed(1)}`;
    const values = { last: null, start: whole ? null : view.t0.toFixed(3), stop: whole ? null : view.t1.toFixed(3), rows };
    sent.current = [values.start ? Number(values.start) : undefined, values.stop ? Number(values.stop) : undefined, rows ?? undefined, undefined].join();
    setQuery(values);
    settled(view);
  });
  const linkTo = (device, moment) => {
    const { node } = devices.list[device];
    const rank = rankOf(devices.list[device]);
    if (rank === null && !node) return null;
    const where = rank !== null ? at("run", run, "rank", rank) : at("run", run, "node", node);
    if (moment === null) return where;
    return withQuery(where, { start: (moment - AROUND_S).toFixed(3), stop: (moment + AROUND_S).toFixed(3) });
  };
  const onOpen = useHandler((device, moment, only = false) => {
    const link = linkTo(device, moment);
    if (!only && link) location.hash = link;
    return link;
  });
  const onPick = useHandler((device) => {
    const picked = want.picked.includes(device) ? want.picked.filter((of) => of !== device) : [...want.picked, device].slice(-MOST_PICKED);
    setQuery({ pick: picked.map((of) => devices.names[of]).join(",") || null });
  });

  const words = `${metric.name} of ${many(devices.names.length, group.name.startsWith("gpu") ? "GPU" : group.name.split("-")[0])} over time`;
  return html`<div class="bar heat-bar">
      ${choose}
      <${Controls} ...${{ want, devices, metric, setQuery }} />
    </div>
    ${error && html`<${Fault} error=${error} what="the heat map" />`}
    <section class="panel heat" aria-label="Heat map">
      <div class="heat-head">
        <p class="soft"><span class="strong">${metric.name}</span> ${metric.meaning}${" "}<span class="tiny">source: ${metric.source || "unknown"}</span></p>
        <${HeatLegend} map=${want.map} low=${low} high=${high} unit=${metric.unit} counted=${counted} range=${data?.range} />
      </div>
      <${HeatMap} ...${{ engine, plotRef: plot, look, devices, unit: metric.unit, label: words, onView, onOpen, onPick }}>
        ${!data && !error && html`<div class="heat-wait"><${Loading} what=${metric.name} /></div>`}
      <//>
      <div class="heat-foot">
        <p class="soft">${data ? says(data, devices) : " "}</p>
        <div class="tools">
          <button type="button" onClick=${() => plot.current?.zoom(0.5, 0.5, 0.5, 0.5)} aria-label="Zoom in">+</button>
          <button type="button" onClick=${() => plot.current?.zoom(0.5, 0.5, 2, 2)} aria-label="Zoom out">−</button>
          <button type="button" onClick=${() => plot.current?.reset()}>All</button>
        </div>
      </div>
    </section>
    <${PickedLines} ...${{ run, group: group.name, metric, devices, picked: want.picked, time, left: plot.current?.size.left ?? 0, setQuery }} />
    <${WorstTable} ...${{ worst, devices, unit: metric.unit, linkTo, picked: want.picked, onPick }} />`;
}

function says(data, devices) {
  const rows = devices.names.length;
  if (data.stage === "overview") return html`<span role="status">Overview of ${number(rows)} rows; all of them are on their way…</span>`;
  return html`${number(rows)} rows × ${number(data.cols)} columns of ${number(data.step)} s, <span title=${`${utc(data.t0)} – ${utc(data.t1)}`}>until <${Time} at=${data.t1} seconds /></span>.
    <span class="roomy"> Wheel, drag a box or + to zoom; click opens the rank; the names at the left draw a line below.</span>`;
}

function Controls({ want, devices, metric, setQuery }) {
  const { sort } = want;
  const grouped = Object.entries(devices.groups).map(([by, { title }]) => [by, title]);
  return html`<${Select} label="Sort by" value=${sort.value} options=${Object.entries(SORTS).map(([of, { title }]) => [of, title])}
      onChange=${(of) => setQuery({ sort: of === "name" ? null : of, dir: null })} />
    <button type="button" class="dir" aria-label=${sort.down ? "Highest first; turn" : "Lowest first; turn"} title="Turn the order"
      onClick=${() => setQuery({ dir: sort.down ? "up" : "down" })}>${sort.down ? "↓" : "↑"}</button>
    ${grouped.length > 0 && html`<${Select} label="Group by" value=${sort.by} options=${[["", "nothing"], ...grouped]} onChange=${(by) => setQuery({ by, rows: null })} />`}
    <${Select} label="When a cell holds several GPUs, show" value=${want.kind} options=${CELLS} onChange=${(kind) => setQuery({ cells: kind === "far" ? null : kind })} />
    <${Select} label="Scale" value=${want.scale} options=${[["robust", "percentiles 1–99"], ["full", "lowest–highest"], ...(metric.unit === "ratio" ? [["unit", "0–100 %"]] : [])]}
      onChange=${(scale) => setQuery({ scale: scale === "robust" ? null : scale })} />
    <div class="field"><span>Colours</span><${Choice} label="Colours" value=${want.map} options=${[["sequential", "low–high"], ["diverging", "around median"]]}
      onChange=${(map) => setQuery({ map: map === "sequential" ? null : map })} /></div>`;
}
