/** A matrix on a canvas: rows, columns and colours of values; a drag zooms, a double-click shows all of it. */

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/htm-preact-3.1.1.js";
import { colour } from "../../colours.js";
import { scaled } from "../../charts.js";
import { useTheme, useWidth } from "../../hooks.js";
import { css, table } from "../../heat/colourmaps.js";

const LARGEST = 860;
const LEAST_DRAG = 6;
const KEYS = { "+": ["zoom", 0.5], "=": ["zoom", 0.5], "-": ["zoom", 2], 0: ["all"], ArrowLeft: ["move", 0, -1], ArrowRight: ["move", 0, 1], ArrowUp: ["move", -1, 0], ArrowDown: ["move", 1, 0] };

const dark = () => getComputedStyle(document.documentElement).colorScheme !== "light" && colour("bg").match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) < 300;

/** Return a function from 0–1 to a colour: what is more stands out more, on light ground and on dark. */
function shades() {
  const colours = table("sequential");
  const night = dark();
  return (share) => css(colours[Math.round(255 * (night ? 0.28 + 0.72 * share : 0.88 * (1 - share)))]);
}

/** Return where a value lies between the least and the most, by its logarithm. */
const scaleOf = (least, most) => (value) => (most > least ? Math.log(value / least) / Math.log(most / least) : 1);

const whole = (count) => ({ row: 0, column: 0, rows: count, columns: count });

function bounded({ row, column, rows, columns }, count) {
  const high = Math.min(count, Math.max(1, Math.round(rows)));
  const wide = Math.min(count, Math.max(1, Math.round(columns)));
  const within = (at, size) => Math.min(count - size, Math.max(0, Math.round(at)));
  return { row: within(row, high), column: within(column, wide), rows: high, columns: wide };
}

/** Where on the canvas the matrix is, and how large cells are. */
function layout(width, labels, view, context) {
  const by = scaled();
  context.font = `${Math.round(11 * by)}px system-ui, sans-serif`;
  const longest = labels.reduce((most, label) => Math.max(most, context.measureText(label).width), 0);
  const edge = Math.min(Math.ceil(longest) + 10 * by, 130 * by, width / 3);
  const left = edge + 14 * by;
  const top = 7 * by;
  const size = width - left - 1;
  return { by, edge, left, top, size, height: top + size + edge + 22 * by, cellWide: size / view.columns, cellHigh: size / view.rows };
}

function striped(context, by) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6 * by;
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour("soft", 0.55);
  pen.lineWidth = by;
  pen.beginPath();
  pen.moveTo(0, 6 * by);
  pen.lineTo(6 * by, 0);
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

function draw(canvas, { labels, cells, unknown, view, width, rowsAre, columnsAre, scale, drag }) {
  const ratio = devicePixelRatio || 1;
  const context = canvas.getContext("2d");
  const place = layout(width, labels, view, context);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(place.height * ratio);
  canvas.style.height = `${place.height}px`;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const { by, left, top, size, cellWide, cellHigh, edge } = place;
  context.fillStyle = colour("raised");
  context.fillRect(left, top, size, size);
  if (unknown) {
    context.fillStyle = striped(context, by);
    for (let row = view.row; row < view.row + view.rows; row += 1)
      for (let column = view.column; column < view.column + view.columns; column += 1)
        if (unknown(row, column)) context.fillRect(left + (column - view.column) * cellWide, top + (row - view.row) * cellHigh, cellWide, cellHigh);
  }
  const shade = shades();
  const gap = Math.min(cellWide, cellHigh) > 5 * by ? 1 : 0;
  for (const [row, column, value] of cells) {
    if (row < view.row || row >= view.row + view.rows || column < view.column || column >= view.column + view.columns) continue;
    context.fillStyle = shade(scale(value));
    const x = left + (column - view.column) * cellWide;
    const y = top + (row - view.row) * cellHigh;
    context.fillRect(x, y, Math.max(1, cellWide - gap), Math.max(1, cellHigh - gap));
  }
  context.font = `${Math.round(11 * by)}px system-ui, sans-serif`;
  context.fillStyle = colour("soft");
  context.textBaseline = "middle";
  const every = (cell) => Math.max(1, Math.ceil((14 * by) / cell));
  const fit = (label) => {
    let text = label;
    while (text.length > 1 && context.measureText(text).width > edge - 6 * by) text = `${text.slice(0, -2)}…`;
    return text;
  };
  context.textAlign = "right";
  for (let row = view.row; row < view.row + view.rows; row += every(cellHigh)) context.fillText(fit(labels[row]), left - 5 * by, top + (row - view.row + 0.5) * cellHigh);
  for (let column = view.column; column < view.column + view.columns; column += every(cellWide)) {
    context.save();
    context.translate(left + (column - view.column + 0.5) * cellWide, top + size + 5 * by);
    context.rotate(-Math.PI / 2);
    context.fillText(fit(labels[column]), 0, 0);
    context.restore();
  }
  context.font = `600 ${Math.round(11 * by)}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.fillText(columnsAre, left + size / 2, place.height - 8 * by);
  context.save();
  context.translate(7 * by, top + size / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(rowsAre, 0, 0);
  context.restore();
  if (drag) {
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.strokeRect(Math.min(drag.x, drag.toX), Math.min(drag.y, drag.toY), Math.abs(drag.toX - drag.x), Math.abs(drag.toY - drag.y));
  }
  return place;
}

function Scale({ least, most, show }) {
  useTheme();
  const shade = shades();
  const colours = Array.from({ length: 9 }, (_, at) => shade(at / 8)).join(", ");
  return html`<p class="scale small soft"><span>${show(least)}</span><span class="ramp" style=${{ background: `linear-gradient(90deg, ${colours})` }} aria-hidden="true"></span><span>${show(most)}</span></p>`;
}

/**
 * A square matrix.
 *
 * labels: of rows and columns; cells: `[[row, column, value], …]` above 0; unknown: null, or whether nothing is known of `(row, column)`;
 * show: a value as words; say: `(row, column, value or null)` as words; rowsAre, columnsAre: what they stand for; label: what a
 * screen reader is told.
 */
export function Matrix({ labels, cells, unknown, show, say, rowsAre, columnsAre, label }) {
  const [box, width] = useWidth();
  const theme = useTheme();
  const canvas = useRef(null);
  const place = useRef(null);
  const [view, setView] = useState(whole(labels.length));
  const [drag, showDrag] = useState(null);
  const dragged = useRef(null); // a quick hand is faster than the next drawing
  const setDrag = (next) => showDrag((dragged.current = next));
  const [words, setWords] = useState("");
  const values = useMemo(() => new Map(cells.map(([row, column, value]) => [row * labels.length + column, value])), [cells]);
  const [least, most] = useMemo(() => cells.reduce(([low, high], [, , value]) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]), [cells]);
  const drawn = Math.min(width, LARGEST);
  useEffect(() => setView(whole(labels.length)), [labels.length]);
  useEffect(() => {
    if (drawn > 0) place.current = draw(canvas.current, { labels, cells, unknown, view: bounded(view, labels.length), width: drawn, rowsAre, columnsAre, scale: scaleOf(least, most), drag });
  }, [labels, cells, unknown, view, drawn, theme, drag, rowsAre, columnsAre]);
  const change = (next) => setView(bounded(next, labels.length));
  const zoom = (by) => change({ row: view.row + (view.rows * (1 - by)) / 2, column: view.column + (view.columns * (1 - by)) / 2, rows: view.rows * by, columns: view.columns * by });
  const move = (down, right) => change({ ...view, row: view.row + (down * view.rows) / 4, column: view.column + (right * view.columns) / 4 });
  const at = (event) => {
    const { left, top } = canvas.current.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  };
  const cellAt = (x, y) => {
    const { left, top, size, cellWide, cellHigh } = place.current;
    if (x < left || x >= left + size || y < top || y >= top + size) return null;
    return [view.row + Math.floor((y - top) / cellHigh), view.column + Math.floor((x - left) / cellWide)];
  };
  const over = (event) => {
    const [x, y] = at(event);
    if (dragged.current) setDrag({ ...dragged.current, toX: x, toY: y });
    const found = cellAt(x, y);
    setWords(found ? say(...found, values.get(found[0] * labels.length + found[1]) ?? null) : "");
  };
  const dropped = () => {
    const by = dragged.current;
    setDrag(null);
    if (!by || Math.abs(by.toX - by.x) < LEAST_DRAG || Math.abs(by.toY - by.y) < LEAST_DRAG) return;
    const { left, top, size } = place.current;
    const inside = (value, low) => Math.min(low + size - 0.01, Math.max(low, value));
    const [first, last] = [
      cellAt(inside(Math.min(by.x, by.toX), left), inside(Math.min(by.y, by.toY), top)),
      cellAt(inside(Math.max(by.x, by.toX), left), inside(Math.max(by.y, by.toY), top)),
    ];
    change({ row: first[0], column: first[1], rows: last[0] - first[0] + 1, columns: last[1] - first[1] + 1 });
  };
  const pressed = (event) => {
    const [what, ...how] = KEYS[event.key] || [];
    if (!what || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    ({ zoom, move, all: () => change(whole(labels.length)) })[what](...how);
  };
  const everything = view.rows === labels.length && view.columns === labels.length;
  return html`<div class="matrix" ref=${box}>
    <div class="bar">
      <div class="choice" role="group" aria-label="Zoom"><button type="button" onClick=${() => zoom(0.5)} aria-label="Closer">+</button><button type="button" onClick=${() => zoom(2)} disabled=${everything} aria-label="Farther">−</button><button type="button" onClick=${() => change(whole(labels.length))} disabled=${everything}>All</button></div>
      ${most > 0 && html`<${Scale} least=${least} most=${most} show=${show} />`}
      <p class="small soft" role="status">${everything ? `${labels.length} × ${labels.length}` : `rows ${labels[view.row]} – ${labels[view.row + view.rows - 1]}, columns ${labels[view.column]} – ${labels[view.column + view.columns - 1]}`}</p>
    </div>
    <canvas ref=${canvas} style=${{ width: `${drawn}px` }} tabindex="0" role="img" aria-label=${label} onKeyDown=${pressed} onDblClick=${() => change(whole(labels.length))}
      onPointerDown=${(event) => { if (event.pointerType === "touch") return; const [x, y] = at(event); if (!cellAt(x, y)) return; event.currentTarget.setPointerCapture(event.pointerId); setDrag({ x, y, toX: x, toY: y }); }}
      onPointerMove=${over} onPointerUp=${dropped} onPointerLeave=${() => (setDrag(null), setWords(""))}></canvas>
    <p class="says small">${words || html`<span class="soft">Point at a cell for its value. Drag to zoom, double-click for all; keys + − 0 and arrows.</span>`}</p>
  </div>`;
}
