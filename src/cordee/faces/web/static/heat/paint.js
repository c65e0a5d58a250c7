/** From samples to pixels, without a canvas: pure functions that the worker calls. */

export const [MISSING, ABOVE, BELOW, OUTSIDE] = [256, 257, 258, 259];

/** How cells that share a pixel become one. `far`: the one farthest from the median of all devices at its time. */
export const KINDS = ["far", "mean", "min", "max"];

/** Return the rows [from, to) of the order that pixel row `y` of `height` shows of `view`. */
export function rowsAt(view, height, y, count) {
  const each = (view.r1 - view.r0) / height;
  const from = view.r0 + y * each;
  if (each < 1) {
    const row = Math.max(0, Math.min(count - 1, Math.floor(from + each / 2)));
    return [row, row + 1];
  }
  const first = Math.max(0, Math.min(count - 1, Math.round(from)));
  return [first, Math.max(first + 1, Math.min(count, Math.round(from + each)))];
}

/** Return by pixel column the columns [from, to) of the source that it shows; from is -1 where there are none. */
export function columnsAt(source, view, width) {
  const from = new Int32Array(width).fill(-1);
  const to = new Int32Array(width);
  const each = (view.t1 - view.t0) / width / source.step;
  const begin = (view.t0 - source.t0) / source.step;
  for (let x = 0; x < width; x += 1) {
    const left = begin + x * each;
    const first = each < 1 ? Math.floor(left + each / 2) : Math.round(left);
    const stop = each < 1 ? first + 1 : Math.max(first + 1, Math.round(left + each));
    if (stop <= 0 || first >= source.cols) continue;
    from[x] = Math.max(0, first);
    to[x] = Math.min(source.cols, stop);
  }
  return { from, to };
}

function gather(source, order, from, to, first, stop, kind, into) {
  const { data, stride, share, rows, middle } = source;
  const at = (place) => (share > 1 ? Math.min(rows - 1, Math.floor(place / share)) : order ? order[place] : place);
  const one = at(from) * stride;
  for (let col = first; col < stop; col += 1) into[col] = data[one + col];
  if (to - from < 2 || (share > 1 && at(to - 1) === at(from))) return;
  let held = null;
  if (kind === "mean") held = new Uint32Array(stop).fill(1, first, stop);
  if (held) {
    for (let col = first; col < stop; col += 1) if (into[col] !== into[col]) (held[col] = 0), (into[col] = 0);
  }
  for (let place = from + 1; place < to; place += 1) {
    const base = at(place) * stride;
    if (kind === "far") {
      for (let col = first; col < stop; col += 1) {
        const value = data[base + col];
        const near = middle[col];
        if (value !== value || Math.abs(value - near) > Math.abs(into[col] - near)) into[col] = value;
      }
    } else if (kind === "min") {
      for (let col = first; col < stop; col += 1) {
        const value = data[base + col];
        if (value < into[col] || into[col] !== into[col]) into[col] = value;
      }
    } else if (kind === "max") {
      for (let col = first; col < stop; col += 1) {
        const value = data[base + col];
        if (value > into[col] || into[col] !== into[col]) into[col] = value;
      }
    } else {
      for (let col = first; col < stop; col += 1) {
        const value = data[base + col];
        if (value === value) (into[col] += value), (held[col] += 1);
      }
    }
  }
  if (held) for (let col = first; col < stop; col += 1) into[col] = held[col] ? into[col] / held[col] : NaN;
}

function across(values, from, to, kind, middle) {
  let found = values[from];
  let count = found === found ? 1 : 0;
  if (kind === "mean" && !count) found = 0;
  for (let col = from + 1; col < to; col += 1) {
    const value = values[col];
    if (kind === "mean") {
      if (value === value) (found += value), (count += 1);
    } else if (found !== found) {
      if (kind !== "far") found = value;
    } else if (kind === "far") {
      if (value !== value || Math.abs(value - middle[col]) > Math.abs(found - middle[col])) found = value;
    } else if (kind === "min" ? value < found : value > found) found = value;
  }
  if (kind === "mean") return count ? found / count : NaN;
  return found;
}

/** Return the code of a value: 0–255 on the scale, or one of MISSING, ABOVE, BELOW. */
export function coded(value, low, high) {
  if (value !== value) return MISSING;
  if (value === Infinity) return ABOVE;
  if (value === -Infinity) return BELOW;
  const place = high > low ? (value - low) / (high - low) : 0.5;
  return place <= 0 ? 0 : place >= 1 ? 255 : Math.round(place * 255);
}

/**
 * Paint `view` {t0, t1, r0, r1} of the source into `out`, Uint32Array [height x width].
 *
 * count: devices in all; order: Uint32Array, or null; look: {colours: Uint32Array(256), marks, low, high, kind}.
 */
export function paint(source, order, count, view, width, height, look, out) {
  const { from, to } = columnsAt(source, view, width);
  const { colours, marks, low, high, kind } = look;
  let first = source.cols;
  let stop = 0;
  for (let x = 0; x < width; x += 1) {
    if (from[x] < 0) continue;
    first = Math.min(first, from[x]);
    stop = Math.max(stop, to[x]);
  }
  const values = new Float32Array(source.cols);
  const codes = new Uint16Array(width);
  let before = [-1, -1];
  let striped = false;
  for (let y = 0; y < height; y += 1) {
    const rows = rowsAt(view, height, y, count);
    const base = y * width;
    if (rows[0] === before[0] && rows[1] === before[1]) {
      if (!striped) {
        out.copyWithin(base, base - width, base);
        continue;
      }
    } else {
      before = rows;
      striped = false;
      gather(source, order, rows[0], rows[1], first, stop, kind, values);
      for (let x = 0; x < width; x += 1) {
        if (from[x] < 0) codes[x] = OUTSIDE;
        else {
          const one = to[x] - from[x] < 2;
          codes[x] = coded(one ? values[from[x]] : across(values, from[x], to[x], kind, source.middle), low, high);
          if (codes[x] > 255) striped = true;
        }
      }
    }
    for (let x = 0; x < width; x += 1) {
      const code = codes[x];
      out[base + x] = code < 256 ? colours[code] : stripe(code, x, y, marks);
    }
  }
}

// Missing: diagonal lines; +∞: upright ones; −∞: level ones.
function stripe(code, x, y, marks) {
  if (code === MISSING) return marks.missing[(x + y) % 7 < 2 ? 1 : 0];
  if (code === ABOVE) return marks.above[x % 5 < 1 ? 1 : 0];
  if (code === BELOW) return marks.below[y % 5 < 1 ? 1 : 0];
  return 0;
}

/** Return what the pixel at (`rows`, `cols`) shows: {device, row, column, value, cells}; value is NaN where it is missing. */
export function shown(source, order, rows, cols, kind) {
  const { data, stride, middle } = source;
  let best = null;
  let total = 0;
  let count = 0;
  for (let row = rows[0]; row < rows[1]; row += 1) {
    const device = order ? order[row] : row;
    for (let col = cols[0]; col < cols[1]; col += 1) {
      const value = data[device * stride + col];
      const cell = { device, row, column: col, value };
      if (value === value) (total += value), (count += 1);
      if (!best || wins(value, col, best, kind, middle)) best = cell;
    }
  }
  const cells = (rows[1] - rows[0]) * (cols[1] - cols[0]);
  if (kind === "mean" && cells > 1 && best) return { ...best, value: count ? total / count : NaN, cells };
  return best && { ...best, cells };
}

function wins(value, col, best, kind, middle) {
  if (kind === "mean" || (best.value !== best.value && kind === "far")) return false;
  if (value !== value) return kind === "far";
  if (best.value !== best.value) return true;
  if (kind === "min") return value < best.value;
  if (kind === "max") return value > best.value;
  return Math.abs(value - middle[col]) > Math.abs(best.value - middle[best.column]);
}
