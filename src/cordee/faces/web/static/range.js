/** The stretch of time that all charts of a run show; it stands in the address, so that a link leads to it. */

let shown = { whole: null, range: null };

/** Return the numbers `[start, stop]` of an address's query, null for the whole run, which ends (so far) at `end`. */
export function rangeOf(query, end) {
  const last = Number(query.last);
  if (query.last && last > 0 && end !== null) return [Math.ceil(end) - last, Math.ceil(end)];
  const [start, stop] = [Number(query.start), Number(query.stop)];
  return query.start && query.stop && stop > start ? [start, stop] : null;
}

/** Tell the keys which stretch is shown of which whole. */
export function tellKeys(whole, range) {
  shown = { whole, range };
}

function within([from, to], [least, most]) {
  const length = Math.min(to - from, most - least);
  if (from < least) return [least, least + length];
  if (to > most) return [most - length, most];
  return [from, to];
}

/** Return what the keys do: `move` by a share of what is shown, `zoom` to a multiple of it (null: all). */
export function timeKeys(setQuery) {
  const set = (range) => {
    setQuery({ last: null, start: range?.[0].toFixed(3), stop: range?.[1].toFixed(3) });
    return true;
  };
  return {
    move(share) {
      const { whole, range } = shown;
      if (!whole || !range) return false;
      const by = share * (range[1] - range[0]);
      return set(within([range[0] + by, range[1] + by], whole));
    },
    zoom(factor) {
      const { whole, range } = shown;
      if (!whole) return false;
      const [from, to] = range || whole;
      const half = ((to - from) * (factor ?? 1)) / 2;
      const middle = (from + to) / 2;
      const next = [middle - half, middle + half];
      if (factor === null || next[1] - next[0] >= whole[1] - whole[0]) return set(null);
      return set(half > 0.5 ? within(next, whole) : [from, to]);
    },
  };
}
