/** A cell, a row, an order in words: for the tip under the pointer and for ears. */

import { local, number, quantity } from "../format.js";
import { placeWords } from "./devices.js";

export const SORTS = {
  name: { title: "name", down: false },
  mean: { title: "mean", down: true },
  latest: { title: "latest", down: true },
  deviation: { title: "deviation from peers", down: true },
  first: { title: "first bad", down: false },
};

export const CELLS = [
  ["far", "farthest from the median"],
  ["mean", "mean"],
  ["max", "highest"],
  ["min", "lowest"],
];

/** Return a value with its unit, also one that is no number. */
export const said = (value, unit, digits = 3) => (Number.isNaN(value) ? "missing" : Number.isFinite(value) ? quantity(value, unit, digits) : number(value));

/** Return how far a value is from its peers: "4.2 σ above its peers". */
export function apart(z) {
  if (!Number.isFinite(z)) return "";
  if (Math.abs(z) < 1) return "as its peers";
  return `${Math.abs(z) >= 100 ? "over 100" : Math.abs(z).toFixed(1)} σ ${z > 0 ? "above" : "below"} its peers`;
}

/** Return {title, lines} of a probed cell. */
export function cellWords(cell, devices, unit) {
  const device = devices.list[cell.device];
  const who = [
    devices.labels[cell.device],
    device.ranks?.length && !devices.group.startsWith("rank") ? `rank ${device.ranks.slice(0, 4).join(", ")}${device.ranks.length > 4 ? " …" : ""}` : "",
  ].filter(Boolean);
  const lines = [
    [device.node && !devices.labels[cell.device].includes(device.node) ? device.node : "", placeWords(device)].filter(Boolean).join(" · "),
    `${local(cell.time, { seconds: true })}${cell.step > 1 ? ` · ${cell.step} s` : ""}`,
    Number.isNaN(cell.value) ? "" : [apart(cell.z), Number.isFinite(cell.median) ? `median ${quantity(cell.median, unit, 4)}` : ""].filter(Boolean).join(" · "),
    cell.cells > 1 ? `one of ${cell.cells} cells that share this point` : "",
  ].filter(Boolean);
  return { title: said(cell.value, unit, 4), who: who.join(" · "), lines };
}

/** Return a cell as one sentence. */
export function spoken(cell, devices, unit) {
  const { title, who, lines } = cellWords(cell, devices, unit);
  return [who, title, ...lines].join(", ");
}
