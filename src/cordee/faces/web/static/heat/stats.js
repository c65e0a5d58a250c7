/** What is said of devices beside their peers: medians, robust deviations, orders. Pure functions over a Source. */

const BLOCK = 16;
const FAR_Z = 6;
const MOST_Z = 20;
const SAMPLED = 200_000;

/** Return the k-th smallest of the first `count` numbers of `list`, which is rearranged. */
export function select(list, count, k) {
  let low = 0;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    const a = list[low];
    const b = list[middle];
    const c = list[high];
    const pivot = a < b ? (b < c ? b : a < c ? c : a) : a < c ? a : b < c ? c : b;
    let i = low;
    let j = high;
    while (i <= j) {
      while (list[i] < pivot) i += 1;
      while (list[j] > pivot) j -= 1;
      if (i <= j) {
        const kept = list[i];
        list[i] = list[j];
        list[j] = kept;
        i += 1;
        j -= 1;
      }
    }
    if (k <= j) high = j;
    else if (k >= i) low = i;
    else break;
  }
  return list[k];
}

/** Return {low, centre, high, least, most} of the finite values: percentiles 1, 50, 99 of a sample, and the whole range. */
export function range(source) {
  const { rows, cols, stride, data } = source;
  const every = Math.max(1, Math.floor((rows * cols) / SAMPLED));
  const sample = new Float32Array(Math.ceil((rows * cols) / every) + rows);
  let count = 0;
  let least = Infinity;
  let most = -Infinity;
  let due = 0;
  for (let row = 0; row < rows; row += 1) {
    for (let at = row * stride, end = at + cols; at < end; at += 1) {
      const value = data[at];
      if (value - value !== 0) continue; // NaN and infinities
      if (value < least) least = value;
      if (value > most) most = value;
      due -= 1;
      if (due < 0) {
        sample[count] = value;
        count += 1;
        due = every - 1;
      }
    }
  }
  if (!count) return { low: NaN, centre: NaN, high: NaN, least: NaN, most: NaN };
  const low = select(sample, count, Math.floor((count - 1) * 0.01));
  const high = select(sample, count, Math.ceil((count - 1) * 0.99));
  const centre = select(sample, count, count >> 1);
  return { low, centre, high, least, most };
}

/** Return counts of the finite values in `bins` equal parts of [low, high], of columns [from, to); what is beyond counts at the ends. */
export function histogram(source, low, high, from, to, bins = 64) {
  const { rows, stride, data } = source;
  const counts = new Float64Array(bins);
  const lost = { missing: 0, infinite: 0, finite: 0 };
  const width = high - low || 1;
  const every = Math.max(1, Math.floor((rows * Math.max(1, to - from)) / SAMPLED));
  for (let row = 0, at = 0; row < rows; row += 1) {
    for (let col = from; col < to; col += 1, at += 1) {
      if (at % every) continue;
      const value = data[row * stride + col];
      if (value !== value) lost.missing += 1;
      else if (value - value !== 0) lost.infinite += 1;
      else {
        lost.finite += 1;
        counts[Math.max(0, Math.min(bins - 1, Math.floor(((value - low) / width) * bins)))] += 1;
      }
    }
  }
  return { counts, ...lost };
}

/**
 * Bring medians and spreads of the peers up to date from column `from` on.
 *
 * peers: {of: Uint16Array by device, count}; stats: {median, spread: Float32Array [peer group x capacity], capacity}. The spread
 * is 1.4826 x the median absolute deviation, and never below `floor`.
 */
export function columnStats(source, peers, floor, stats, from = 0) {
  const { rows, cols, stride, data } = source;
  const kept = grown(stats, peers.count, source.stride, from);
  const sizes = new Uint32Array(peers.count);
  const begins = new Uint32Array(peers.count + 1);
  for (let row = 0; row < rows; row += 1) sizes[peers.of[row]] += 1;
  for (let group = 0; group < peers.count; group += 1) begins[group + 1] = begins[group] + sizes[group];
  const block = new Float32Array(BLOCK * rows);
  const ends = new Uint32Array(BLOCK * peers.count);
  for (let first = from; first < cols; first += BLOCK) {
    const wide = Math.min(BLOCK, cols - first);
    for (let at = 0; at < wide; at += 1) ends.set(begins.subarray(0, peers.count), at * peers.count);
    for (let row = 0; row < rows; row += 1) {
      const base = row * stride + first;
      const group = peers.of[row];
      for (let at = 0; at < wide; at += 1) {
        const value = data[base + at];
        if (value - value === 0) block[at * rows + ends[at * peers.count + group]++] = value;
      }
    }
    for (let at = 0; at < wide; at += 1) {
      for (let group = 0; group < peers.count; group += 1) {
        const low = at * rows + begins[group];
        const count = at * rows + ends[at * peers.count + group] - low;
        const place = group * kept.capacity + first + at;
        const list = block.subarray(low, low + count);
        const middle = count ? select(list, count, count >> 1) : NaN;
        for (let of = 0; of < count; of += 1) list[of] = Math.abs(list[of] - middle);
        kept.median[place] = middle;
        kept.spread[place] = count ? Math.max(1.4826 * select(list, count, count >> 1), floor) : NaN;
      }
    }
  }
  return kept;
}

function grown(stats, groups, capacity, from) {
  if (stats && stats.capacity === capacity && stats.groups === groups) return stats;
  const median = new Float32Array(groups * capacity).fill(NaN);
  const spread = new Float32Array(groups * capacity).fill(NaN);
  if (stats && stats.groups === groups) {
    for (let group = 0; group < groups; group += 1) {
      median.set(stats.median.subarray(group * stats.capacity, group * stats.capacity + from), group * capacity);
      spread.set(stats.spread.subarray(group * stats.capacity, group * stats.capacity + from), group * capacity);
    }
  }
  return { median, spread, capacity, groups };
}

/**
 * Return {mean, latest, deviation, firstBad} by device, Float32Array each; NaN where nothing was measured.
 *
 * deviation: mean of |z| among the peers; firstBad: the first column (Infinity: none) with an infinity, a z beyond 6, or nothing
 * where peers were measured.
 */
export function rowStats(source, peers, stats) {
  const { rows, cols, stride, data } = source;
  const [mean, latest, deviation, firstBad] = [0, 0, 0, 0].map(() => new Float32Array(rows).fill(NaN));
  for (let row = 0; row < rows; row += 1) {
    const base = row * stride;
    const place = peers.of[row] * stats.capacity;
    let total = 0;
    let far = 0;
    let count = 0;
    let bad = Infinity;
    let last = NaN;
    let infinite = 0;
    for (let col = 0; col < cols; col += 1) {
      const value = data[base + col];
      const spread = stats.spread[place + col];
      if (value - value !== 0) {
        if (bad === Infinity && (value === value || spread === spread)) bad = col;
        if (value === value) (far += MOST_Z), (count += 1), (infinite += 1);
        continue;
      }
      const z = Math.min(MOST_Z, Math.abs(value - stats.median[place + col]) / spread);
      if (z > FAR_Z && bad === Infinity) bad = col;
      far += z;
      total += value;
      count += 1;
      last = value;
    }
    if (count) {
      mean[row] = total / (count - infinite);
      deviation[row] = far / count;
      latest[row] = last;
    }
    firstBad[row] = bad;
  }
  return { mean, latest, deviation, firstBad };
}

/**
 * Return {order: Uint32Array of devices, groups: [{key, start, stop}]}: by the group's key, then by the value, then by name.
 *
 * names: Int32Array by device, its place among the names; keys: Int32Array by device, or null; values: Float32Array by device,
 * or null; what has no value comes last either way.
 */
export function ordered(names, keys, values, down) {
  const count = names.length;
  const order = new Uint32Array(count);
  for (let at = 0; at < count; at += 1) order[at] = at;
  const sign = down ? -1 : 1;
  order.sort((a, b) => {
    if (keys && keys[a] !== keys[b]) return keys[a] - keys[b];
    if (values) {
      const [one, other] = [values[a], values[b]];
      if (one !== one || other !== other) {
        if (one === one) return -1;
        if (other === other) return 1;
      } else if (one !== other) return one < other ? -sign : sign;
    }
    return values || !down ? names[a] - names[b] : names[b] - names[a];
  });
  const groups = [];
  if (keys) {
    for (let at = 0; at < count; at += 1) {
      const key = keys[order[at]];
      if (!groups.length || groups[groups.length - 1].key !== key) groups.push({ key, start: at, stop: at });
      groups[groups.length - 1].stop = at + 1;
    }
  }
  return { order, groups };
}
