/** Which devices stood far from the others, and when: from a coarse matrix, for the bands page. */

import { Source } from "./source.js";
import { columnStats, range } from "./stats.js";

const FAR_Z = 6;

/** Return {far: [{row, z, value, time, column}], silent}: each device once, the farthest first; devices missing where others were measured. */
export function outliers(frame, most = 6) {
  const source = new Source(frame);
  const { rows, cols, stride, data } = source;
  const found = range(source);
  const floor = Math.max(1e-30, 0.01 * (found.high - found.low || Math.abs(found.high) || 0));
  const stats = columnStats(source, { of: new Uint16Array(rows), count: 1 }, floor, null);
  const far = [];
  let silent = 0;
  for (let row = 0; row < rows; row += 1) {
    let best = null;
    let missing = false;
    for (let column = 0; column < cols; column += 1) {
      const value = data[row * stride + column];
      const spread = stats.spread[column];
      if (spread !== spread) continue; // nobody was measured
      if (value !== value) missing = true;
      // Beside a gap a device was measured in a part of the column only: its mean is of another time than its peers'.
      if (data[row * stride + column - 1] !== data[row * stride + column - 1] && column > 0) continue;
      if (data[row * stride + column + 1] !== data[row * stride + column + 1] && column + 1 < cols) continue;
      const z = (value - stats.median[column]) / spread;
      if (Math.abs(z) > FAR_Z && (!best || Math.abs(z) > Math.abs(best.z))) best = { row, z, value, column, time: source.t0 + (column + 0.5) * source.step };
    }
    if (missing) silent += 1;
    if (best) far.push(best);
  }
  far.sort((one, other) => Math.abs(other.z) - Math.abs(one.z));
  return { far: far.slice(0, most), count: far.length, silent };
}
