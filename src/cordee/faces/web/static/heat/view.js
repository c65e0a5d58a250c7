/** What is looked at: a stretch of time and of rows. Pure arithmetic: {t0, t1} epoch seconds, {r0, r1} places in the order. */

const LEAST_ROWS = 4;
const LEAST_COLUMNS = 6;

/** Return the view of everything: `extent` {t0, t1, step}, `count` rows. */
export const all = (extent, count) => ({ t0: extent.t0, t1: Math.max(extent.t1, extent.t0 + extent.step), r0: 0, r1: count });

function fitted(low, high, least, most, smallest) {
  let length = Math.min(Math.max(high - low, smallest), most - least);
  let begin = low + (high - low - length) / 2;
  if (length >= most - least) return [least, most];
  begin = Math.min(Math.max(begin, least), most - length);
  length = Math.min(length, most - begin);
  return [begin, begin + length];
}

/** Return the view inside of everything there is. */
export function within(view, extent, count, cadence) {
  const whole = all(extent, count);
  const [t0, t1] = fitted(view.t0, view.t1, whole.t0, whole.t1, Math.min(LEAST_COLUMNS * cadence, whole.t1 - whole.t0));
  const [r0, r1] = fitted(view.r0, view.r1, 0, count, Math.min(LEAST_ROWS, count));
  return { t0, t1, r0, r1 };
}

/** Return the view a factor larger or smaller around a point: `x`, `y` 0–1 of what is shown; a factor of 1 leaves an axis. */
export function zoomed(view, x, y, time, rows) {
  const t = view.t0 + x * (view.t1 - view.t0);
  const r = view.r0 + y * (view.r1 - view.r0);
  return {
    t0: t + (view.t0 - t) * time,
    t1: t + (view.t1 - t) * time,
    r0: r + (view.r0 - r) * rows,
    r1: r + (view.r1 - r) * rows,
  };
}

/** Return the view moved by shares of what is shown, stopping at the edges. */
export function moved(view, time, rows, extent, count) {
  const whole = all(extent, count);
  const dt = Math.min(Math.max(time * (view.t1 - view.t0), whole.t0 - view.t0), whole.t1 - view.t1);
  const dr = Math.min(Math.max(rows * (view.r1 - view.r0), -view.r0), count - view.r1);
  return { t0: view.t0 + dt, t1: view.t1 + dt, r0: view.r0 + dr, r1: view.r1 + dr };
}

/** Whether all time, all rows are shown. */
export const allTime = (view, extent) => view.t0 <= extent.t0 + 1e-6 && view.t1 >= extent.t1 - 1e-6;
export const allRows = (view, count) => view.r0 <= 0 && view.r1 >= count;

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Return epoch seconds for ticks, at most `most`, on round local times. */
export function ticks(from, to, most) {
  const step = STEPS.find((each) => (to - from) / each <= most) || (to - from) / most;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { step, times: found };
}

/** Return a tick's text: seconds where ticks are close, the day where it begins. */
export function tickText(at, step) {
  const moment = new Date(at * 1000);
  const pad = (part) => String(part).padStart(2, "0");
  if (moment.getHours() + moment.getMinutes() + moment.getSeconds() === 0 && step >= 3600) return `${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}`;
  const clock = `${pad(moment.getHours())}:${pad(moment.getMinutes())}`;
  return step < 60 ? `${clock}:${pad(moment.getSeconds())}` : clock;
}
