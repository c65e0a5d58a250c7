/** Who the rows are: names to show, orders and groups to sort by, and who is whose peer. */

const collator = new Intl.Collator("en", { numeric: true });
const AXES = ["pp", "tp", "dp", "ep", "cp"];

/** Return what the page and the worker need of `/devices`' list: {list, names, labels, rank of a device, keys, groups, peers}. */
export function described(group, found) {
  const natural = [...found.keys()].sort((a, b) => {
    const [one, other] = [found[a], found[b]];
    return (
      collator.compare(one.node ?? "", other.node ?? "") ||
      (one.index ?? one.ranks?.[0] ?? 0) - (other.index ?? other.ranks?.[0] ?? 0) ||
      collator.compare(String(one.name), String(other.name))
    );
  });
  const names = found.map((device) => String(device.name));
  const keys = { name: places(natural) };
  const groups = {};
  const add = (by, title, keyOf, say) => {
    const values = found.map(keyOf);
    const distinct = [...new Set(values)].sort((a, b) => collator.compare(String(a), String(b)));
    if (distinct.length < 2 || distinct.length === found.length) return;
    const at = new Map(distinct.map((value, place) => [value, place]));
    keys[by] = Int32Array.from(values, (value) => at.get(value));
    groups[by] = { title, labels: distinct.map(say) };
  };
  add("node", "node", (device) => device.node ?? "", (node) => node || "no node known");
  for (const axis of axesOf(found)) {
    add(axis, axis, (device) => device.place?.[axis] ?? "", (place) => (place === "" ? `no ${axis} known` : `${axis} ${place}`));
  }
  add("model", "model", (device) => device.model ?? "", (model) => model || "no model known");
  return { group, list: found, names, natural, keys, groups, peers: peersOf(found, keys), labels: found.map((device) => label(group, device)) };
}

function places(order) {
  const found = new Int32Array(order.length);
  order.forEach((device, place) => {
    found[device] = place;
  });
  return found;
}

function axesOf(found) {
  const seen = new Set();
  for (const device of found) for (const axis of Object.keys(device.place || {})) seen.add(axis);
  return [...AXES.filter((axis) => seen.has(axis)), ...[...seen].filter((axis) => !AXES.includes(axis))];
}

// A stage of the pipeline does other work than its neighbour: peers are those of one stage, where stages are known.
function peersOf(found, keys) {
  const stages = keys.pp;
  if (!stages) return { of: new Uint16Array(found.length), count: 1, words: "all devices" };
  return { of: Uint16Array.from(stages), count: Math.max(...stages) + 1, words: "the same pipeline stage" };
}

function label(group, device) {
  if (group.startsWith("rank")) return `rank ${device.name}`;
  if (group.startsWith("node")) return String(device.name);
  if (device.node && device.index !== undefined && device.index !== null) return `${device.node} GPU ${device.index}`;
  return device.node ? `${device.node} ${device.name}` : String(device.name);
}

/** Return a device's place in words: "pp 2, tp 0". */
export function placeWords(device) {
  return Object.entries(device.place || {}).map(([axis, at]) => `${axis} ${at}`).join(", ");
}

/** Return the rank that a device belongs to, null where there is none or more than one. */
export function rankOf(device) {
  return device.ranks?.length === 1 ? device.ranks[0] : null;
}
