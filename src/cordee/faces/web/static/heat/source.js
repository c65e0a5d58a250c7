/** A matrix of samples, device by column of time, that grows at its end: what the worker keeps of one metric. */

const ROOM = 1.25;

export class Source {
  /**
   * Args: frame: a decoded answer of `/heat`; `arrays.values` is f32 [row, column], NaN is missing, `cadence` are the seconds of
   * a column. `share`: devices per row, 1 but for an overview.
   */
  constructor(frame) {
    const [rows, cols] = frame.shapes.values;
    this.rows = rows;
    this.cols = cols;
    this.step = frame.cadence;
    this.t0 = cols ? frame.arrays.times[0] : 0;
    this.share = frame.counts?.[0] || 1;
    this.stride = cols;
    this.data = frame.arrays.values;
    this.middle = new Float32Array(0);
  }

  /** The time at which the last column ends, epoch seconds. */
  get t1() {
    return this.t0 + this.cols * this.step;
  }

  /** The column that holds a time; below 0 or from `cols` on where there is none. */
  column(time) {
    return Math.floor((time - this.t0) / this.step + 1e-6);
  }

  /** Take in columns of the same step; those that are there already are replaced. Returns the first that changed, or -1. */
  append(frame) {
    const [rows, count] = frame.shapes.values;
    if (rows !== this.rows || Math.abs(frame.cadence - this.step) > 1e-6) return -1;
    if (!count) return this.cols;
    const at = Math.round((frame.arrays.times[0] - this.t0) / this.step);
    if (at < 0) return -1;
    this.widen(at + count);
    const from = frame.arrays.values;
    for (let row = 0; row < rows; row += 1) this.data.set(from.subarray(row * count, (row + 1) * count), row * this.stride + at);
    return at;
  }

  /** Forget columns that end before `time`, once they are as many as those that stay. */
  trim(time) {
    const gone = Math.min(this.column(time), this.cols);
    if (gone < 64 || gone < this.cols / 2) return false;
    const left = this.cols - gone;
    for (let row = 0; row < this.rows; row += 1) {
      const base = row * this.stride;
      this.data.copyWithin(base, base + gone, base + this.cols);
      this.data.fill(NaN, base + left, base + this.cols);
    }
    this.t0 += gone * this.step;
    this.cols = left;
    return true;
  }

  widen(cols) {
    if (cols > this.stride) {
      const stride = Math.ceil(Math.max(cols, this.cols) * ROOM) + 16;
      const data = new Float32Array(this.rows * stride).fill(NaN);
      for (let row = 0; row < this.rows; row += 1) {
        data.set(this.data.subarray(row * this.stride, row * this.stride + this.cols), row * stride);
      }
      this.data = data;
      this.stride = stride;
    }
    this.cols = Math.max(this.cols, cols);
  }
}
