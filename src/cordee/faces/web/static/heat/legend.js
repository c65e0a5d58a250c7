/** The legend is a histogram too: how many of the values that are looked at have which colour. */

import { html, useEffect, useRef } from "../vendor/htm-preact-3.1.1.js";
import { colour } from "../colours.js";
import { number, quantity } from "../format.js";
import { useTheme, useWidth } from "../hooks.js";
import { css, marks, table } from "./colourmaps.js";

const BAR = 12;
const HEIGHT = 52;

/** Whether the page is dark now. */
export function isDark() {
  const [red, green, blue] = colour("bg").match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue < 128;
}

function draw(canvas, width, map, counted) {
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(HEIGHT * scale);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, HEIGHT);
  const colours = table(map);
  for (let x = 0; x < width; x += 1) {
    ctx.fillStyle = css(colours[Math.min(255, Math.floor((x / width) * 256))]);
    ctx.fillRect(x, HEIGHT - BAR, 1.5, BAR);
  }
  if (!counted?.finite) return;
  const most = Math.sqrt(Math.max(...counted.counts));
  const wide = width / counted.counts.length;
  ctx.fillStyle = colour("soft");
  counted.counts.forEach((count, at) => {
    // Square roots: one device of thousands is still seen.
    const tall = count ? Math.max(1.5, (Math.sqrt(count) / most) * (HEIGHT - BAR - 4)) : 0;
    ctx.fillRect(at * wide, HEIGHT - BAR - 2 - tall, Math.max(1, wide - 0.5), tall);
  });
}

function Pattern({ name, dark }) {
  const ref = useRef(null);
  useEffect(() => {
    const [ground, stripes] = marks(dark)[name];
    const ctx = ref.current.getContext("2d");
    for (let y = 0; y < 14; y += 1) {
      for (let x = 0; x < 28; x += 1) {
        const on = name === "missing" ? (x + y) % 7 < 2 : name === "above" ? x % 5 < 1 : y % 5 < 1;
        ctx.fillStyle = css(on ? stripes : ground);
        ctx.fillRect(x, y, 1, 1);
      }
    }
  }, [name, dark]);
  return html`<canvas ref=${ref} width="28" height="14" class="pattern" aria-hidden="true"></canvas>`;
}

/** counted: {counts, missing, infinite, finite} of the values looked at; low, high: the ends of the scale. */
export function HeatLegend({ map, low, high, unit, counted, range }) {
  const [place, width] = useWidth();
  const ref = useRef(null);
  const theme = useTheme();
  useEffect(() => {
    if (width && ref.current) draw(ref.current, width, map, counted);
  }, [width, map, counted, theme]);
  const dark = isDark();
  const all = counted ? counted.missing + counted.infinite + counted.finite : 0;
  const share = (count) => (all ? quantity(count / all, "ratio", 2) : "");
  const words = `Colours from ${quantity(low, unit)} to ${quantity(high, unit)}`;
  const beyond = range && (range.least < low || range.most > high);
  return html`<div class="heat-legend">
    <div class="scale" role="img" aria-label=${`${words}, with how many values have which`} ref=${place}>
      <canvas ref=${ref} style=${{ height: `${HEIGHT}px` }}></canvas>
      <div class="ends"><span>${beyond && range.least < low ? "≤ " : ""}${quantity(low, unit)}</span><span>${quantity((low + high) / 2, unit)}</span><span>${beyond && range.most > high ? "≥ " : ""}${quantity(high, unit)}</span></div>
    </div>
    <ul class="marks">
      <li><${Pattern} name="missing" dark=${dark} />missing${all ? html` <span class="soft">${share(counted.missing)}</span>` : ""}</li>
      ${counted?.infinite > 0 && html`<li><${Pattern} name="above" dark=${dark} />∞ <${Pattern} name="below" dark=${dark} />−∞ <span class="soft">${number(counted.infinite)} seen</span></li>`}
    </ul>
  </div>`;
}
