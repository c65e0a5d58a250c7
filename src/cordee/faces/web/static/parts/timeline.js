/** Phases, attempts, checkpoints and findings of a run on one axis of time, above charts with the same axis. */

import { html, useMemo } from "../vendor/htm-preact-3.1.1.js";
import { LEFT, RIGHT, scaled } from "../charts.js";
import { duration, epoch, local } from "../format.js";
import { useWidth } from "../hooks.js";
import { serverNow } from "../live.js";

const ROW = 24;
const FILLS = { queue: "fill-c4", connect: "fill-c5", vet: "fill-c3", setup: "fill-c3", start: "fill-c5", train: "fill-c0", restart: "fill-c1", end: "fill-c6" };
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

function ticks(from, to, width) {
  const most = Math.max(2, Math.floor(width / 110));
  const step = STEPS.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most / 604800) * 604800;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return { found, seconds: step < 60 };
}

/** Stretches that are less than a pixel wide are drawn as one with their neighbours: ten thousand restarts stay quick. */
function joined(stretches, scale) {
  const shown = [];
  for (const one of stretches) {
    const left = scale(one.start);
    const right = Math.max(left + 1, scale(one.end));
    const last = shown.at(-1);
    if (last && right - last.left < 2) {
      last.right = right;
      last.count += 1;
    } else {
      shown.push({ ...one, left, right, count: 1 });
    }
  }
  return shown;
}

function Stretch({ of, y, title }) {
  const width = Math.max(1, of.right - of.left);
  return html`<g><rect class=${FILLS[of.name] || "fill-c6"} x=${of.left} y=${y} width=${width} height=${ROW - 8} rx="2"><title>${title}</title></rect>
    ${width > 7 * of.name.length + 8 && html`<text class="in" x=${of.left + 5} y=${y + 12} pointer-events="none">${of.name}</text>`}</g>`;
}

function Shape({ mark, x, y }) {
  const fill = `fill-${mark.colour}`;
  const title = html`<title>${`${mark.name}: ${mark.text} (${local(mark.x, { seconds: true })}${mark.width ? `, ${duration(mark.width)}` : ""})`}</title>`;
  if (mark.shape === "triangle") return html`<path class=${fill} d=${`M${x} ${y - 5}l5 9h-10Z`}>${title}</path>`;
  if (mark.shape === "diamond") return html`<path class=${fill} d=${`M${x} ${y - 6}l5 6-5 6-5-6Z`}>${title}</path>`;
  if (mark.shape === "cross") return html`<path class=${fill} d=${`M${x - 5} ${y - 3}l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3Z`}>${title}</path>`;
  return html`<rect class=${fill} x=${x - 1} y=${y - 7} width="2" height="14">${title}</rect>`;
}

export function Timeline({ doc, range, marks }) {
  const [place, shown] = useWidth();
  const by = scaled();
  const width = Math.round(shown / by);
  const [from, to] = range;
  const scale = (at) => LEFT + ((at - from) / (to - from)) * Math.max(1, width - LEFT - RIGHT);
  const clamp = (at) => Math.min(to, Math.max(from, at));
  const inside = (one) => one.end > from && one.start < to;
  const now = epoch(doc.ended_at) ?? serverNow();
  const phases = (doc.phases || [])
    .map((phase) => ({ ...phase, start: epoch(phase.start), end: epoch(phase.end) ?? now }))
    .filter(inside);
  const attempts = (doc.attempts || [])
    .map((attempt) => ({ name: `attempt ${attempt.attempt}`, start: epoch(attempt.started_at), end: epoch(attempt.ended_at) ?? now, ...attempt }))
    .filter((one) => one.start !== null && inside(one));
  const lines = [["phases", phases], ...(attempts.length > 1 ? [["attempts", attempts]] : [])];
  const events = marks.filter((mark) => mark.x >= from && mark.x <= to);
  const kinds = [...new Map(events.map((mark) => [mark.kind, mark])).values()];
  const axisAt = ROW * (lines.length + (kinds.length ? 1 : 0)) + 4;
  const { found, seconds } = useMemo(() => ticks(from, to, width), [from, to, width]);
  const cut = (list) => joined(list.map((one) => ({ ...one, start: clamp(one.start), end: clamp(one.end) })), scale);
  const words = [
    ...phases.map((phase) => `${phase.name} ${duration(phase.end - phase.start)}`),
    ...kinds.map((kind) => `${events.filter((mark) => mark.kind === kind.kind).length} ${kind.name}s`),
  ];
  return html`<div ref=${place}>
    ${width > 0 && html`<svg class="timeline" viewBox=${`0 0 ${width} ${axisAt + 20}`} width=${shown} height=${(axisAt + 20) * by} role="img" aria-label=${`Timeline: ${words.slice(0, 40).join(", ")}`}>
      ${found.map((at) => html`<g key=${at}><line class="axis" x1=${scale(at)} x2=${scale(at)} y1="0" y2=${axisAt} /><text x=${scale(at)} y=${axisAt + 14} text-anchor="middle">${local(at, { seconds }).slice(-8)}</text></g>`)}
      ${lines.map(([name, list], row) => html`<g key=${name}><text class="row-name" x="0" y=${row * ROW + 16}>${name}</text>
        ${cut(list).map((one) => html`<${Stretch} of=${one.name?.startsWith("attempt") ? { ...one, name: one.name } : one} y=${row * ROW + 4}
          title=${one.count > 1 ? `${one.count} of them, too short to draw` : `${one.name}: ${duration(one.end - one.start)}${one.reason ? `, ${one.reason}` : ""}`} />`)}</g>`)}
      ${kinds.length > 0 && html`<g><text class="row-name" x="0" y=${lines.length * ROW + 16}>events</text>
        ${thinned(events, scale).map(([mark, x]) => html`<${Shape} mark=${mark} x=${x} y=${lines.length * ROW + 12} />`)}</g>`}
    </svg>`}
    ${kinds.length > 0 && html`<ul class="legend">${kinds.map((mark) => html`<li><svg class="icon shape" viewBox="-8 -8 16 16" aria-hidden="true"><g class="timeline"><${Shape} mark=${mark} x=${0} y=${0} /></g></svg> ${mark.name}</li>`)}</ul>`}
  </div>`;
}

/** At most one mark of a kind per three pixels, and marks of other kinds beside it: `[[mark, x], ...]`. */
function thinned(events, scale) {
  const last = {};
  const shown = [];
  let right = -9;
  for (const mark of events) {
    const x = scale(mark.x);
    if (x - (last[mark.kind] ?? -9) < 3) continue;
    last[mark.kind] = x;
    const free = x - right < 11 && shown.at(-1)?.[0].kind !== mark.kind ? right + 11 : x;
    right = free;
    shown.push([mark, free]);
  }
  return shown;
}
