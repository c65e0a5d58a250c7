/** Numbers, sizes and times as people read them. */

import { serverNow } from "./live.js";

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

/** Return a number with at most `digits` significant digits; "–" where it is missing. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-4) return value.toExponential(digits - 1).replace("-", "−");
  if (Number.isInteger(value) || size >= 1000) {
    return Math.round(value).toLocaleString("en").replaceAll(",", " ").replace("-", "−");
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

function prefixed(value, base, digits = 3) {
  let at = 0;
  while (Math.abs(value) >= 999.5 && at < PREFIXES.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${number(value, digits)} ${PREFIXES[at]}${base}`;
}

/** Return a value with its unit: `quantity(0.37, "ratio")` is "37 %". */
export function quantity(value, unit, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  switch (unit) {
    case "ratio":
      return `${number(100 * value, digits)} %`;
    case "bytes":
      return prefixed(value, "B", digits);
    case "bytes/s":
      return prefixed(value, "B/s", digits);
    case "hertz":
      return prefixed(value, "Hz", digits);
    case "watts":
      return prefixed(value, "W", digits);
    case "joules":
      return prefixed(value, "J", digits);
    case "celsius":
      return `${number(value, digits)} °C`;
    case "CPU seconds per second":
      return `${number(value, digits)} cores`;
    case "seconds":
      return duration(value);
    default:
      return unit ? `${number(value, digits)} ${unit}` : number(value, digits);
  }
}

/** Return a value with its unit, as short as it must be beside an axis. */
export function short(value, unit) {
  const known = ["ratio", "bytes", "bytes/s", "hertz", "watts", "joules", "celsius", "seconds", "CPU seconds per second"].includes(unit);
  return known ? quantity(value, unit) : Math.abs(value) >= 10_000 ? prefixed(value, "", 5).trim() : number(value, 4);
}

/** Return seconds as "850 ms", "12 s", "4 min 5 s", "3 h 20 min" or "2 d 4 h". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (big, name, small, other) => (small ? `${big} ${name} ${small} ${other}` : `${big} ${name}`);
  if (whole < 3600) return two(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86_400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return two(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** Return how long ago: "just now", "4 s ago", "3 h 20 min ago". */
export function ago(at) {
  const seconds = serverNow() - at;
  if (seconds < 1.5) return "just now";
  return `${duration(Math.max(1, Math.round(seconds)))} ago`;
}

/** Return epoch seconds of a number or an ISO text, null where there is none. */
export function epoch(value) {
  if (value === null || value === undefined || value === "") return null;
  if (typeof value === "number") return value;
  const parsed = Date.parse(value);
  return Number.isNaN(parsed) ? null : parsed / 1000;
}

/** Return local date and time, without the date when it is today's. */
export function local(at, { seconds = false } = {}) {
  const moment = new Date(at * 1000);
  const clock = moment.toLocaleTimeString("en-GB", {
    hour: "2-digit",
    minute: "2-digit",
    ...(seconds ? { second: "2-digit" } : {}),
  });
  const today = new Date(serverNow() * 1000).toDateString() === moment.toDateString();
  if (today) return clock;
  const pad = (part) => String(part).padStart(2, "0");
  return `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())} ${clock}`;
}

/** Return "2026-11-21 15:10:38 UTC". */
export function utc(at) {
  return `${new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Return numbers as ranges: [0, 1, 2, 5] is "0–2, 5". */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let at = 0; at < sorted.length; ) {
    let end = at;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end += 1;
    parts.push(end === at ? `${sorted[at]}` : `${sorted[at]}–${sorted[end]}`);
    at = end + 1;
  }
  return parts.join(", ");
}

/** Return "1 rank", "3 ranks". */
export function many(count, one, more = `${one}s`) {
  return `${number(count)} ${count === 1 ? one : more}`;
}
