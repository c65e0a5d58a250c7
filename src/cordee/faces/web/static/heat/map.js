/** The map: canvas, tip and voice; what it shows is the worker's, what is looked at is the Plot's. */

import { html, useEffect, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { useHandler, useTheme } from "../hooks.js";
import { listen } from "./gestures.js";
import { Plot } from "./plot.js";
import { cellWords, spoken } from "./words.js";

const VOICE_MS = 150;
const FOLLOW_PX = 8;

/**
 * Args: engine; plotRef: gets the Plot; look: how values are coloured, a ref; devices; unit; label: what the map is of;
 * onView(view, how), onOpen(device, time), onPick(device).
 */
export function HeatMap({ engine, plotRef, look, devices, unit, label, onView, onOpen, onPick, children }) {
  const canvas = useRef(null);
  const frame = useRef(null);
  const theme = useTheme();
  const [tip, setTip] = useState(null);
  const [voice, setVoice] = useState("");
  const asking = useRef({ busy: false, due: null, voice: 0 });
  const changed = useHandler((view, how) => {
    setTip(null);
    canvas.current.style.touchAction = plotRef.current.isWhole ? "pan-y" : "none";
    onView(view, how);
  });
  const paintAt = useHandler((view, width, height) => engine.send("view", { view, width, height, look: look.current }));
  const does = useHands({ engine, plotRef, look, devices, unit, asking, setTip, setVoice, onOpen, onPick });
  useEffect(() => {
    const plot = new Plot(canvas.current, { paintAt, changed });
    plotRef.current = plot;
    const stop = listen(plot, does);
    const measure = () => plot.resize(frame.current.clientWidth, frame.current.clientHeight);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current);
    return () => {
      observer.disconnect();
      stop();
      clearTimeout(asking.current.voice);
      plot.close();
      plotRef.current = null;
    };
  }, []);
  useEffect(() => plotRef.current?.retheme(), [theme]);
  return html`<div class="heat-field" ref=${frame}>
      <canvas
        ref=${canvas}
        tabindex="0"
        role="application"
        aria-roledescription="heat map"
        aria-label=${label}
        aria-describedby="heat-keys"
      ></canvas>
      ${tip && html`<${Tip} tip=${tip} />`}
      ${children}
    </div>
    <p id="heat-keys" class="hidden">
      Arrow keys move from cell to cell, plus and minus zoom, shift with arrows moves what is shown, 0 shows all, space draws the
      row as a line below, Enter opens its rank or node at that time. The table below the map says the same of the worst rows.
    </p>
    <p class="hidden" role="status" aria-live="polite">${voice}</p>`;
}

function Tip({ tip }) {
  const place = useRef(null);
  useEffect(() => {
    const box = place.current;
    const right = tip.x + 16 + box.offsetWidth > tip.width;
    box.style.left = `${Math.max(0, right ? tip.x - box.offsetWidth - 16 : tip.x + 16)}px`;
    box.style.top = `${Math.max(0, Math.min(tip.y + 12, tip.height - box.offsetHeight))}px`;
  }, [tip]);
  return html`<div class="heat-tip" ref=${place} aria-hidden="true">
    <p class="strong">${tip.words.title}</p>
    <p>${tip.words.who}</p>
    ${tip.words.lines.map((line) => html`<p class="soft">${line}</p>`)}
    ${tip.link && html`<p><a href=${tip.link}>Open</a></p>`}
  </div>`;
}

/** What gestures do; the functions stay the same for as long as the map does. */
function useHands({ engine, plotRef, look, devices, unit, asking, setTip, setVoice, onOpen, onPick }) {
  const now = useRef({});
  now.current = { engine, look, devices, unit, onOpen, onPick };

  const probe = (given) => {
    const plot = plotRef.current;
    return now.current.engine
      .ask("probe", { view: plot.view, ...plot.pixels, cells: now.current.look.current.kind, ...given })
      .then(({ cell }) => cell);
  };
  const pointed = (x, y) => {
    const plot = plotRef.current;
    const { width, height } = plot.pixels;
    const { w, h } = plot.field;
    const clamp = (value, most) => Math.max(0, Math.min(most - 1, Math.floor(value)));
    return probe({ x: clamp((x / w) * width, width), y: clamp((y / h) * height, height) });
  };
  const tipOf = (cell, x, y) => {
    const { field, size } = plotRef.current;
    return { words: cellWords(cell, now.current.devices, now.current.unit), x: x + field.x, y, width: size.width, height: size.height };
  };
  const hover = async (place) => {
    const state = asking.current;
    state.due = place;
    if (!place) setTip(null);
    if (state.busy || !place) return;
    state.busy = true;
    while (state.due) {
      const { x, y } = state.due;
      const wanted = state.due;
      const cell = await pointed(x, y);
      if (!plotRef.current) return;
      if (state.due === wanted) {
        state.due = null;
        setTip(cell ? tipOf(cell, x, y) : null);
      }
    }
    state.busy = false;
  };
  const cursor = async (columns, rows) => {
    const plot = plotRef.current;
    if (!plot?.order) return;
    const { view, field, extent, count } = plot;
    const step = plot.cursor?.step || extent.step;
    const each = (view.r1 - view.r0) / field.h;
    let { row, time } = plot.cursor || { row: Math.floor((view.r0 + view.r1) / 2), time: (view.t0 + view.t1) / 2 };
    if (plot.cursor) {
      row = Math.max(0, Math.min(count - 1, row + rows * Math.max(1, Math.round(each * FOLLOW_PX))));
      if (Number.isFinite(columns)) time += columns * Math.max(step, Math.round(((view.t1 - view.t0) / field.w) * FOLLOW_PX / step) * step) + step / 2;
      else time = columns < 0 ? view.t0 + step / 2 : view.t1 - step / 2;
    }
    time = Math.max(extent.t0 + step / 2, Math.min(extent.t1 - step / 2, time));
    const cell = await probe({ row, time });
    if (!cell || !plotRef.current) return;
    plot.cursor = { row, device: cell.device, time: cell.time, step: cell.step };
    follow(plot);
    setTip(tipOf(cell, plot.x(cell.time) - plot.field.x, plot.y(row)));
    clearTimeout(asking.current.voice);
    asking.current.voice = setTimeout(() => setVoice(spoken(cell, now.current.devices, now.current.unit)), VOICE_MS);
    plot.later();
  };
  const hands = useRef({
    hover,
    cursor,
    open: async (x, y) => {
      const cell = await pointed(x, y);
      if (cell) now.current.onOpen(cell.device, cell.time);
    },
    touch: async (x, y) => {
      const cell = await pointed(x, y);
      if (cell) setTip({ ...tipOf(cell, x, y), link: now.current.onOpen(cell.device, cell.time, true) });
    },
    pick: async (x, y) => {
      const cell = await pointed(plotRef.current.field.w / 2, y);
      if (cell) now.current.onPick(cell.device);
    },
    enter: () => {
      const at = plotRef.current.cursor;
      if (at) now.current.onOpen(at.device, at.time);
    },
    space: () => {
      const at = plotRef.current.cursor;
      if (at) now.current.onPick(at.device);
    },
    clear: () => {
      plotRef.current.cursor = null;
      setTip(null);
      plotRef.current.later();
    },
  });
  return hands.current;
}

/** Bring the cursor's cell into view. */
function follow(plot) {
  const { cursor, view } = plot;
  const rows = view.r1 - view.r0;
  const time = view.t1 - view.t0;
  const by = { time: 0, rows: 0 };
  if (cursor.row < view.r0) by.rows = (cursor.row - view.r0 - 1) / rows;
  if (cursor.row + 1 > view.r1) by.rows = (cursor.row + 2 - view.r1) / rows;
  if (cursor.time < view.t0) by.time = (cursor.time - view.t0) / time;
  if (cursor.time + cursor.step > view.t1) by.time = (cursor.time + cursor.step - view.t1) / time;
  if (by.time || by.rows) plot.move(by.time, by.rows);
}
