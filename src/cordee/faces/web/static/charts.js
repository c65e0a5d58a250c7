/** Charts over time or steps, drawn by uPlot: lines, and bands of lows and highs; zoomed together, marked alike. */

import uPlot from "./vendor/uplot-1.6.32.js";
import { html, useEffect, useMemo, useRef } from "./vendor/htm-preact-3.1.1.js";
import { colour, series as looks } from "./colours.js";
import { duration, number, quantity, short } from "./format.js";
import { useHandler, useTheme, useWidth } from "./hooks.js";

/** Pixels left and right of every plot and of the timeline above: all have one axis of time. */
export const LEFT = 62;
export const RIGHT = 14;

/** How much larger than on a desk everything is drawn: the size of letters says it. */
export const scaled = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 15;

/** Return a typed array as uPlot wants it: what is missing is null, and the line has a gap there. */
export function gaps(values) {
  const list = new Array(values.length);
  for (let at = 0; at < values.length; at += 1) list[at] = Number.isFinite(values[at]) ? values[at] : null;
  return list;
}

function marker(marks) {
  return (plot) => {
    const shown = marks.current || [];
    if (!shown.length) return;
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio || 1;
    ctx.save();
    for (const mark of shown) {
      const x = plot.valToPos(mark.x, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.colour || "soft");
      ctx.lineWidth = scale;
      ctx.setLineDash(mark.dash || [3 * scale, 3 * scale]);
      ctx.globalAlpha = 0.7;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (mark.width) {
        const end = plot.valToPos(mark.x + mark.width, "x", true);
        ctx.globalAlpha = 0.14;
        ctx.fillRect(x, bbox.top, Math.max(scale, end - x), bbox.height);
      }
    }
    ctx.restore();
  };
}

function options({ lines, width, height, unit, rightUnit, time, xUnit, axis: labelled, low, high, marks, sync, onZoom, onCursor }) {
  const by = scaled();
  const font = `${Math.round(11 * by)}px system-ui, sans-serif`;
  const axis = { stroke: colour("soft"), font, grid: { stroke: colour("line"), width: 1 }, ticks: { show: false } };
  const right = lines.some((line) => line.right);
  const spec = [{}];
  const bands = [];
  for (const [at, line] of lines.entries()) {
    const look = looks(line.colour ?? at);
    const alpha = line.role === "edge" ? 0 : 1;
    spec.push({
      label: line.name,
      stroke: line.role === "edge" ? colour(`c${line.colour ?? 0}`, alpha) : look.stroke,
      width: line.role === "edge" ? 0 : 1.6 * by,
      dash: look.dash,
      points: { show: line.points ?? false, size: 5 * by },
      spanGaps: false,
      scale: line.right ? "right" : "y",
    });
    if (line.fillTo !== undefined) {
      bands.push({ series: [at + 1, line.fillTo + 1], fill: colour(`c${line.colour ?? 0}`, line.fillAlpha ?? 0.18) });
    }
  }
  return {
    width,
    height: Math.round(height * by),
    series: spec,
    bands,
    padding: [8 * by, right ? 0 : RIGHT * by, labelled ? 0 : 8 * by, 0],
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false },
      points: { show: false },
      y: false,
      ...(sync ? { sync: { key: sync, scales: ["x", null] } } : {}),
    },
    select: { show: true },
    scales: {
      x: { time },
      y: { range: (plot, least, most) => span(least, most, low, high) },
      ...(right ? { right: { range: (plot, least, most) => span(least, most) } } : {}),
    },
    axes: [
      { ...axis, size: labelled ? 26 * by : 0, space: 70 * by, ...xAxis(time, xUnit), ...(labelled ? {} : { values: (plot, ticks) => ticks.map(() => "") }) },
      { ...axis, size: LEFT * by, space: 26 * by, values: (plot, ticks) => ticks.map((value) => short(value, unit)) },
      ...(right ? [{ ...axis, scale: "right", side: 1, size: LEFT * by, space: 26 * by, grid: { show: false }, values: (plot, ticks) => ticks.map((value) => short(value, rightUnit)) }] : []),
    ],
    hooks: {
      draw: [marker(marks)],
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          if (plot.select.width < 4) return;
          const from = plot.posToVal(plot.select.left, "x");
          const to = plot.posToVal(plot.select.left + plot.select.width, "x");
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          onZoom(from, to);
        },
      ],
    },
  };
}

/** Times as in all of these pages: 24 hours, and the date at midnight; steps as whole numbers. */
function xAxis(time, xUnit) {
  if (!time) return { values: (plot, ticks) => ticks.map((tick) => (xUnit === "seconds" ? duration(tick) : Number.isInteger(tick) ? number(tick) : "")) };
  const pad = (part) => String(part).padStart(2, "0");
  return {
    values: (plot, ticks, axis, space, step) =>
      ticks.map((tick) => {
        const at = new Date(tick * 1000);
        if (step >= 86_400 || (at.getHours() === 0 && at.getMinutes() === 0 && step >= 60)) return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
        return `${pad(at.getHours())}:${pad(at.getMinutes())}${step < 60 ? `:${pad(at.getSeconds())}` : ""}`;
      }),
  };
}

function span(least, most, low, high) {
  if (least === null || most === null || !Number.isFinite(least) || !Number.isFinite(most)) return [low ?? 0, high ?? 1];
  let bottom = low ?? least;
  let top = high ?? most;
  if (bottom > least) bottom = least;
  if (top < most) top = most;
  if (top === bottom) {
    const room = Math.abs(top) * 0.1 || 1;
    return [bottom - (low === undefined ? room : 0), top + room];
  }
  const room = (top - bottom) * 0.06;
  return [low === undefined ? bottom - room : bottom, high === undefined || top > high ? top + room : top];
}

/**
 * A chart.
 *
 * x: numbers, epoch seconds when `time`; lines: `[{name, values, role?, fillTo?, colour?, points?, right?}]` (`role: "edge"`: the
 * invisible edge of a band; `fillTo`: the number of the line that it is filled to; `right`: measured on the axis at the right, in
 * `rightUnit`); unit: of all other values; range: [from, to]
 * or null; xUnit: "step" or "seconds" where x is no time; onRange: a stretch was chosen; marks: `[{x, width?, colour?, dash?}]`; sync: charts of one name share a cursor;
 * axis: whether x is labelled; label: what a screen reader is told.
 */
export function Chart({ x, lines, unit = "", rightUnit = "", height = 160, time = true, range, onRange, marks, sync, low, high, label, xUnit = "step", axis = true }) {
  const [place, width] = useWidth();
  const theme = useTheme();
  const plot = useRef(null);
  const shownMarks = useRef(marks);
  shownMarks.current = marks;
  const words = useRef(null);
  const zoom = useHandler((from, to) => onRange?.([from, to]));
  const cursor = useHandler((at) => {
    if (words.current) words.current.textContent = at === null ? "" : say(at);
  });
  const visible = lines.filter((line) => line.role !== "edge");
  function say(at) {
    if (x[at] === undefined) return "";
    const where = time ? new Date(x[at] * 1000).toLocaleTimeString("en-GB") : xUnit === "seconds" ? `after ${duration(x[at])}` : `step ${number(x[at], 6)}`;
    const parts = visible.slice(0, 8).map((line) => `${line.name} ${quantity(line.values[at], line.right ? rightUnit : unit)}`);
    return [where, ...parts].join("  ·  ");
  }
  const kind = JSON.stringify(lines.map(({ values, ...line }) => line)) + unit + rightUnit + time + low + high + sync + axis;
  const data = useMemo(() => [x, ...lines.map((line) => gaps(line.values))], [x, lines]);
  useEffect(() => {
    if (!width || !place.current) return undefined;
    const made = new uPlot(
      options({ lines, width, height, unit, rightUnit, time, xUnit, axis, low, high, marks: shownMarks, sync, onZoom: zoom, onCursor: cursor }),
      data,
      place.current,
    );
    plot.current = made;
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [kind, theme, width > 0, height]);
  useEffect(() => {
    if (plot.current && width) plot.current.setSize({ width, height: Math.round(height * scaled()) });
  }, [width, height]);
  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    made.batch(() => {
      made.setData(data, false);
      const [from, to] = range || [x[0], x[x.length - 1]];
      if (from !== undefined && to > from) made.setScale("x", { min: from, max: to });
      else if (from !== undefined) made.setScale("x", { min: from - 0.5, max: from + 0.5 });
    });
  }, [data, range?.[0], range?.[1], marks, width > 0, kind, theme]);
  return html`<figure class="chart" role="img" aria-label=${label}>
    <div ref=${place} class="plot" onDblClick=${() => onRange?.(null)}></div>
    <p class="reading" ref=${words} aria-hidden="true"></p>
  </figure>`;
}

/** Return the lines of a distribution: p5–p95 and p25–p75 shaded, the mean (or `over`) drawn. */
export function bandLines(bands, over = "mean", colourAt = 0) {
  const of = (name) => bands.arrays[name];
  return [
    { name: "p95", values: of("p95"), role: "edge", colour: colourAt, fillTo: 1, fillAlpha: 0.14 },
    { name: "p5", values: of("p5"), role: "edge", colour: colourAt },
    { name: "p75", values: of("p75"), role: "edge", colour: colourAt, fillTo: 3, fillAlpha: 0.22 },
    { name: "p25", values: of("p25"), role: "edge", colour: colourAt },
    { name: over, values: of(over), colour: colourAt },
  ];
}

/** What the colours of a chart mean, in words beside them. */
export function Legend({ items }) {
  return html`<ul class="legend">${items.map(
    (item, at) => html`<li><i class=${`key c${(item.colour ?? at) % 7}${at >= 7 ? " dashed" : ""}`} aria-hidden="true"></i>${item.name}</li>`,
  )}</ul>`;
}
