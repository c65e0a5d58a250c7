/** Beside the page: fetches the matrix, keeps it, sorts, bins and colours it; the page only shows the pictures. */

import { decodeFrame } from "../api.js";
import { Source } from "./source.js";
import { KINDS, columnsAt, paint, rowsAt, shown } from "./paint.js";
import { columnStats, histogram, ordered, range, rowStats } from "./stats.js";

const LATE_S = 12; // what nodes tell late is asked for again
const RANGE_MS = 10_000; // a job that begins to train leaves the range it had before

const state = {
  ticket: 0,
  over: null,
  base: null,
  detail: null,
  devices: null,
  order: null,
  groups: [],
  sort: { by: "", value: "name", down: false },
  look: null,
  stats: null,
  rows: null,
  range: null,
  asked: null,
  rangedAt: 0,
};
let control = new AbortController();
let busy = false;

const tell = (kind, given = {}, transfer = []) => postMessage({ kind, ticket: state.ticket, ...given }, transfer);

async function frameAt(url, signal) {
  let answer;
  try {
    answer = await fetch(url, { headers: { accept: "application/vnd.cordee.frame" }, signal, credentials: "same-origin", cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw { status: 0, message: "the server does not answer", next: "is `cordee serve` still running? This page tries again by itself" };
  }
  if (answer.ok) return decodeFrame(await answer.arrayBuffer());
  let said = {};
  try {
    said = (await answer.json()).error || {};
  } catch {
    // A proxy's page, or nothing: the status says enough.
  }
  throw { status: answer.status, message: said.text || `the server answered ${answer.status}`, given: said.given, allowed: said.allowed, next: said.next };
}

function withQuery(url, values) {
  const whole = new URL(url);
  for (const [name, value] of Object.entries(values)) whole.searchParams.set(name, value);
  return whole.href;
}

/** Fetch an overview for the first paint, then the matrix. */
async function open({ url, columns, rows, devices }) {
  control.abort();
  control = new AbortController();
  const { signal } = control;
  Object.assign(state, { url, columns, devices, over: null, base: null, detail: null, stats: null, rows: null, range: null, asked: null });
  const count = devices.names.length;
  try {
    if (count > 2 * rows) {
      const seen = new Source(await frameAt(withQuery(url, { columns: Math.min(columns, 300), rows }), signal));
      seen.middle = columnStats(seen, alone(seen.rows), 0, null).median;
      state.over = seen;
      state.range = range(seen);
      tell("data", { stage: "overview", ...extent(seen), range: state.range, rows: seen.rows });
    }
    take(await frameAt(withQuery(url, { columns }), signal));
    state.over = null;
  } catch (error) {
    fault(error);
  }
}

function take(frame) {
  const seen = new Source(frame);
  if (seen.rows !== state.devices.names.length) {
    tell("changed");
    return;
  }
  state.base = seen;
  measure(0);
  tell("data", { stage: "full", ...extent(seen), range: state.range, rows: seen.rows, unit: frame.unit, source: frame.source, order: sorted() });
}

const extent = (seen) => ({ t0: seen.t0, t1: seen.t1, step: seen.step, cols: seen.cols });
const alone = (rows) => ({ of: new Uint16Array(rows), count: 1 });

/** Bring what is known of columns and rows up to date, from a column on. */
function measure(from) {
  const { base, devices } = state;
  if (!from || !(state.range?.low < state.range?.high) || Date.now() - state.rangedAt > RANGE_MS) {
    state.range = range(base);
    state.rangedAt = Date.now();
  }
  const floor = Math.max(1e-30, 0.01 * (state.range.high - state.range.low || Math.abs(state.range.high) || 0));
  state.floor = floor;
  state.all = columnStats(base, alone(base.rows), floor, from ? state.all : null, from);
  base.middle = state.all.median;
  state.stats = devices.peers.count > 1 ? columnStats(base, devices.peers, floor, from ? state.stats : null, from) : state.all;
  state.rows = null;
}

function known() {
  if (!state.rows && state.base) {
    const peers = state.devices.peers.count > 1 ? state.devices.peers : alone(state.base.rows);
    state.rows = rowStats(state.base, peers, state.stats);
  }
  return state.rows;
}

/** Sort by what is asked for; returns what the page needs to label rows. */
function sorted() {
  const { devices, sort } = state;
  const keys = sort.by ? devices.keys[sort.by] || null : null;
  const column = { mean: "mean", latest: "latest", deviation: "deviation", first: "firstBad" }[sort.value];
  const rows = column ? known() : null;
  const values = rows ? (column === "firstBad" ? rows[column].map((at) => (at === Infinity ? NaN : at)) : rows[column]) : null;
  const began = performance.now();
  const found = ordered(devices.keys.name, keys, values, sort.down);
  state.order = found.order;
  state.groups = found.groups;
  return { order: found.order.slice(), groups: found.groups, milliseconds: performance.now() - began };
}

function sourceFor(view) {
  const { detail, base } = state;
  if (!base) return state.over;
  if (!detail || detail.step >= base.step) return base;
  const [from, to] = [Math.max(view.t0, base.t0), Math.min(view.t1, base.t1)];
  return detail.t0 <= from + detail.step && detail.t1 >= to - detail.step ? detail : base;
}

/** Paint the newest view that was asked for; those in between are passed over. */
async function render() {
  if (busy) return;
  busy = true;
  while (state.asked) {
    const { view, width, height, look, devices } = state.asked;
    state.asked = null;
    const source = sourceFor(view);
    if (!source || !state.devices) continue;
    const began = performance.now();
    const pixels = new Uint32Array(width * height);
    const count = devices ?? state.devices.names.length;
    paint(source, source.share > 1 ? null : state.order, count, view, width, height, look, pixels);
    const bitmap = await createImageBitmap(new ImageData(new Uint8ClampedArray(pixels.buffer), width, height));
    tell("picture", { view, bitmap, step: source.step, milliseconds: performance.now() - began, whole: source.share === 1 }, [bitmap]);
    await new Promise((done) => setTimeout(done, 0)); // let newer wishes in
  }
  busy = false;
}

/** Fetch the stretch that is looked at in finer steps. */
let detailControl = new AbortController();
async function detail({ start, stop, columns }) {
  detailControl.abort();
  detailControl = new AbortController();
  try {
    const seen = new Source(await frameAt(withQuery(state.url, { start, stop, columns }), detailControl.signal));
    if (!state.base || seen.rows !== state.base.rows) return;
    const floor = state.floor;
    seen.middle = columnStats(seen, alone(seen.rows), floor, null).median;
    state.detail = seen;
    tell("detail", extent(seen));
  } catch (error) {
    fault(error);
  }
}

/** Fetch what is new since the last column, at the same step. */
let growing = false;
async function more({ newest, keep }) {
  if (growing || !state.base) return;
  growing = true;
  const { ticket } = state;
  try {
    for (const which of ["base", "detail"]) {
      const seen = state[which];
      if (!seen || (which === "detail" && newest - seen.t1 > 2 * LATE_S + 60 * seen.step)) continue;
      const away = newest - seen.t1 > state.columns * seen.step; // as after a night in which the tab was hidden
      if (which === "base" && (away || seen.cols >= 2 * state.columns)) {
        const frame = await frameAt(withQuery(state.url, { columns: state.columns }), control.signal);
        if (ticket === state.ticket) take(frame);
        continue;
      }
      const back = Math.ceil(LATE_S / seen.step);
      const first = Math.round(seen.t1 / seen.step) - back;
      const last = Math.floor(newest / seen.step + 1e-6) + 1;
      const count = last - first;
      if (count < 1) continue;
      const frame = await frameAt(withQuery(state.url, { start: first * seen.step, stop: last * seen.step, columns: count }), control.signal);
      if (ticket !== state.ticket || state[which] !== seen) return;
      const at = seen.append(frame);
      if (at < 0) {
        tell("changed");
        return;
      }
      if (which === "base") measure(at);
      else {
        if (keep !== null) seen.trim(keep);
        seen.middle = columnStats(seen, alone(seen.rows), state.floor, null).median;
      }
    }
    const following = state.sort.value !== "name" && state.sort.value !== "first";
    tell("data", { stage: "more", ...extent(state.base), range: state.range, rows: state.base.rows, order: following ? sorted() : null });
  } catch (error) {
    fault(error);
  } finally {
    growing = false;
  }
}

function fault(error) {
  if (error.name === "AbortError") return;
  tell("fault", { error: { status: error.status ?? -1, message: error.message || String(error), given: error.given, allowed: error.allowed, next: error.next } });
}

/** Say what a pixel, or a cell, of the newest view shows, and where it stands among its peers. */
function probe({ id, view, width, height, x, y, row, time, cells }) {
  const source = state.base ? sourceFor(view) : null;
  if (!source || !state.order) return tell("probed", { id, cell: null });
  let rows;
  let cols;
  if (row === undefined) {
    const columns = columnsAt(source, view, width);
    rows = rowsAt(view, height, y, state.order.length);
    cols = [columns.from[x], columns.to[x]];
  } else {
    const column = source.column(time);
    rows = [row, row + 1];
    cols = [column, column + 1];
  }
  if (cols[0] < 0 || cols[0] >= source.cols) return tell("probed", { id, cell: null });
  const cell = shown(source, state.order, rows, cols, KINDS.includes(cells) ? cells : "far");
  if (!cell) return tell("probed", { id, cell: null });
  const at = source.t0 + cell.column * source.step;
  const column = state.base.column(at + source.step / 2);
  const place = state.devices.peers.count > 1 ? state.devices.peers.of[cell.device] * state.stats.capacity + column : column;
  const [median, spread] = [state.stats.median[place], state.stats.spread[place]];
  return tell("probed", { id, cell: { ...cell, time: at, step: source.step, median, z: (cell.value - median) / spread } });
}

/** Tell the devices that differ most, for a table. */
function worst({ count }) {
  const rows = known();
  if (!rows) return;
  const devices = [...rows.deviation.keys()];
  const rank = (at) => (rows.deviation[at] === rows.deviation[at] ? rows.deviation[at] : Infinity); // never measured is never well
  devices.sort((a, b) => (rank(b) === rank(a) ? a - b : rank(b) > rank(a) ? 1 : -1));
  const list = devices.slice(0, count).map((device) => ({
    device,
    mean: rows.mean[device],
    latest: rows.latest[device],
    deviation: rows.deviation[device],
    first: Number.isFinite(rows.firstBad[device]) ? state.base.t0 + rows.firstBad[device] * state.base.step : null,
  }));
  tell("worst", { list });
}

/** Count the values of what is looked at, for the legend. */
function count({ view, low, high }) {
  const source = sourceFor(view);
  if (!source) return;
  const from = Math.max(0, Math.min(source.cols, source.column(view.t0)));
  const to = Math.max(from, Math.min(source.cols, source.column(view.t1) + 1));
  const found = histogram(source, low, high, from, to);
  tell("counted", { ...found, low, high });
}

const handlers = {
  open,
  detail,
  more,
  probe,
  worst,
  count,
  sort: ({ sort }) => {
    state.sort = sort;
    if (state.base) tell("ordered", { order: sorted() });
  },
  view: (asked) => {
    state.asked = asked;
    render();
  },
  memory: ({ id }) => {
    const bytes = [state.over, state.base, state.detail].reduce((sum, seen) => sum + (seen ? seen.data.byteLength : 0), 0);
    tell("memory", { id, bytes });
  },
};

onmessage = ({ data }) => {
  if (data.ticket !== undefined) state.ticket = data.ticket;
  handlers[data.kind](data);
};
