/** The picture on the page: shows what the worker painted, moved and scaled at once, with axes, labels and a cursor. */

import { colour, series } from "../colours.js";
import { all, allRows, allTime, moved, tickText, ticks, within, zoomed } from "./view.js";

const RIGHT = 14;
const MOST_PIXELS = 2_600_000;
const SETTLE_MS = 250;

export class Plot {
  /**
   * Args: canvas: the element; paintAt(view, width, height): asks the worker for a picture; changed(view, how): something was
   * zoomed or moved, `how` is "moving" or "settled".
   */
  constructor(canvas, { paintAt, changed }) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: true });
    this.paintAt = paintAt;
    this.changed = changed;
    this.extent = null;
    this.count = 0;
    this.cadence = 1;
    this.view = null;
    this.picture = null;
    this.order = null;
    this.places = null;
    this.groups = [];
    this.labels = [];
    this.groupLabels = null;
    this.cursor = null;
    this.box = null;
    this.picked = [];
    this.last = null;
    this.size = { width: 0, height: 0, left: 0 };
    this.font = 11;
    this.retheme();
  }

  /** Read the theme's colours again. */
  retheme() {
    this.colours = Object.fromEntries(["fg", "soft", "line", "surface", "accent", "bg"].map((name) => [name, colour(name)]));
    this.pickColours = [...Array(8).keys()].map((at) => series(at).stroke);
    this.repaint();
  }

  /** The part of the canvas that has cells, in CSS pixels. */
  get field() {
    const { width, height, left } = this.size;
    return { x: left, y: 0, w: Math.max(1, width - left - RIGHT), h: Math.max(1, height - 2 * this.font) };
  }

  /** The picture's size in pixels of the device, bounded. */
  get pixels() {
    const { w, h } = this.field;
    const scale = Math.min(devicePixelRatio || 1, Math.sqrt(MOST_PIXELS / (w * h)));
    return { width: Math.max(1, Math.round(w * scale)), height: Math.max(1, Math.round(h * scale)) };
  }

  resize(width, height) {
    if (!width || !height) return;
    this.font = Math.max(11, Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.74));
    this.size = { width, height, left: width < 620 ? 76 : Math.round(this.font * 11) };
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.repaint();
  }

  /** Take in how far the samples reach; what showed all of it, or the newest part, goes on to do so. */
  reach(extent, count, cadence) {
    const before = this.extent;
    const whole = !this.view || !before || count !== this.count;
    const rows = whole || allRows(this.view, this.count) ? [0, count] : [this.view.r0, this.view.r1];
    const follows = whole || allTime(this.view, before);
    this.extent = extent;
    this.count = count;
    this.cadence = cadence;
    const full = all(extent, count);
    let time = follows ? [full.t0, full.t1] : [this.view.t0, this.view.t1];
    if (this.last) time = [Math.max(full.t0, full.t1 - this.last), full.t1];
    this.view = within({ t0: time[0], t1: time[1], r0: rows[0], r1: rows[1] }, extent, count, cadence);
    this.repaint();
  }

  /** Show a stretch of time (null: all) and rows (null: all) that came from the address. */
  show(time, rows, last) {
    this.last = last;
    if (!this.extent) return;
    const full = all(this.extent, this.count);
    const from = last ? [full.t1 - last, full.t1] : time || [full.t0, full.t1];
    const [r0, r1] = rows || [0, this.count];
    this.view = within({ t0: from[0], t1: from[1], r0, r1 }, this.extent, this.count, this.cadence);
    this.repaint();
  }

  /** Go to a view by hand. */
  go(view) {
    if (!this.extent) return;
    this.last = null;
    this.view = within(view, this.extent, this.count, this.cadence);
    this.changed(this.view, "moving");
    clearTimeout(this.settle);
    this.settle = setTimeout(() => this.changed(this.view, "settled"), SETTLE_MS);
    this.repaint();
  }

  zoom(x, y, time, rows) {
    if (this.view) this.go(zoomed(this.view, x, y, time, rows));
  }

  move(time, rows) {
    if (this.view) this.go(moved(this.view, time, rows, this.extent, this.count));
  }

  reset() {
    if (this.extent) this.go(all(this.extent, this.count));
  }

  get isWhole() {
    return !this.view || (allTime(this.view, this.extent) && allRows(this.view, this.count));
  }

  /** Take a picture from the worker. */
  take(bitmap, view) {
    this.picture?.bitmap.close();
    this.picture = { bitmap, view };
    this.later();
  }

  /** Show nothing until the next picture: what was there is of another metric. */
  blank() {
    this.picture?.bitmap.close();
    this.picture = null;
    this.later();
  }

  arrange(order, groups, labels, groupLabels) {
    this.order = order;
    this.groups = groups;
    this.labels = labels;
    this.groupLabels = groupLabels;
    this.places = new Uint32Array(order.length);
    for (let place = 0; place < order.length; place += 1) this.places[order[place]] = place;
    if (this.cursor) this.cursor.row = this.places[this.cursor.device];
    this.repaint();
  }

  /** Have the worker paint what is looked at, and show at once what there is. */
  repaint() {
    if (this.view && this.size.width) {
      const { width, height } = this.pixels;
      this.paintAt(this.view, width, height);
    }
    this.later();
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  close() {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.settle);
    this.picture?.bitmap.close();
    this.picture = null;
  }

  x(time) {
    const { x, w } = this.field;
    return x + ((time - this.view.t0) / (this.view.t1 - this.view.t0)) * w;
  }

  y(place) {
    const { h } = this.field;
    return ((place - this.view.r0) / (this.view.r1 - this.view.r0)) * h;
  }

  draw() {
    const { ctx, size } = this;
    const scale = this.canvas.width / Math.max(1, size.width);
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    ctx.clearRect(0, 0, size.width, size.height);
    if (!this.view || !this.size.width) return;
    this.blit();
    ctx.font = `${this.font}px system-ui, sans-serif`;
    this.drawTimes();
    this.drawRows();
    this.drawCursor();
  }

  blit() {
    if (!this.picture) return;
    const { ctx, view } = this;
    const { bitmap, view: of } = this.picture;
    const { x, y, w, h } = this.field;
    const t0 = Math.max(view.t0, of.t0);
    const t1 = Math.min(view.t1, of.t1);
    const r0 = Math.max(view.r0, of.r0);
    const r1 = Math.min(view.r1, of.r1);
    if (t1 <= t0 || r1 <= r0) return;
    const across = bitmap.width / (of.t1 - of.t0);
    const down = bitmap.height / (of.r1 - of.r0);
    ctx.imageSmoothingEnabled = false;
    const left = this.x(t0);
    const top = y + this.y(r0);
    ctx.drawImage(
      bitmap,
      (t0 - of.t0) * across,
      (r0 - of.r0) * down,
      (t1 - t0) * across,
      (r1 - r0) * down,
      left,
      top,
      t1 === view.t1 ? x + w - left : this.x(t1) - left,
      r1 === view.r1 ? y + h - top : this.y(r1) - top,
    );
  }

  drawTimes() {
    const { ctx, view } = this;
    const { x, w, h } = this.field;
    const { step, times } = ticks(view.t0, view.t1, Math.max(2, Math.floor(w / (this.font * 8))));
    ctx.fillStyle = this.colours.soft;
    ctx.strokeStyle = this.colours.line;
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    ctx.lineWidth = 1;
    for (const at of times) {
      const place = this.x(at);
      if (place < x || place > x + w) continue;
      ctx.beginPath();
      ctx.moveTo(place, h);
      ctx.lineTo(place, h + 4);
      ctx.stroke();
      if (place > x + 14 && place < x + w - 8) ctx.fillText(tickText(at, step), place, h + 7);
    }
  }

  drawRows() {
    if (!this.order) return;
    const { ctx } = this;
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    if (this.groups.length) this.drawGroups();
    else this.drawNames();
    this.drawPicked();
  }

  drawGroups() {
    const { ctx, view, groups } = this;
    const { x, w, h } = this.field;
    const each = h / (view.r1 - view.r0);
    let low = 0;
    let high = groups.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (groups[middle].stop <= view.r0) low = middle + 1;
      else high = middle;
    }
    let free = -this.font;
    for (let at = low; at < groups.length && groups[at].start < view.r1; at += 1) {
      const { key, start, stop } = groups[at];
      const top = Math.max(0, this.y(start));
      const bottom = Math.min(h, this.y(stop));
      if ((stop - start) * each >= 5 && start > view.r0) {
        ctx.fillStyle = this.colours.surface;
        ctx.fillRect(x, Math.round(top) - 1, w, 2);
        ctx.strokeStyle = this.colours.line;
        ctx.beginPath();
        ctx.moveTo(x - 6, top);
        ctx.lineTo(x, top);
        ctx.stroke();
      }
      const middle = (top + bottom) / 2;
      if (middle - free < this.font * 1.35) continue;
      ctx.fillStyle = this.colours.fg;
      this.text(this.groupLabels[key], x - 10, Math.min(Math.max(middle, this.font * 0.7), h - this.font * 0.7), x - 20);
      free = middle;
    }
  }

  drawNames() {
    const { ctx, view } = this;
    const { x, h } = this.field;
    const each = h / (view.r1 - view.r0);
    const every = Math.max(1, Math.ceil((each < this.font * 1.3 ? this.font * 3 : this.font * 1.3) / each));
    ctx.fillStyle = this.colours.soft;
    for (let place = Math.ceil(view.r0 / every) * every; place < view.r1; place += every) {
      const middle = this.y(place + 0.5);
      if (middle < this.font * 0.6 || middle > h - this.font * 0.6) continue;
      this.text(this.labels[this.order[place]], x - 10, middle, x - 20);
    }
  }

  drawPicked() {
    const { ctx } = this;
    const { x, h } = this.field;
    this.picked.forEach((device, at) => {
      const top = this.y(this.places[device]);
      const bottom = this.y(this.places[device] + 1);
      if (bottom < 0 || top > h) return;
      const tall = Math.max(3, bottom - top);
      ctx.fillStyle = this.pickColours[at % this.pickColours.length];
      ctx.fillRect(x - 7, Math.max(0, (top + bottom - tall) / 2), 6, tall);
    });
  }

  drawCursor() {
    const { ctx, cursor, box } = this;
    const { x, y, w, h } = this.field;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, w, h);
    ctx.clip();
    if (cursor) {
      const left = this.x(cursor.time);
      const right = this.x(cursor.time + cursor.step);
      const top = this.y(cursor.row);
      const bottom = this.y(cursor.row + 1);
      const wide = Math.max(8, right - left);
      const tall = Math.max(8, bottom - top);
      const at = [(left + right - wide) / 2, (top + bottom - tall) / 2, wide, tall];
      ctx.strokeStyle = "#000";
      ctx.lineWidth = 4;
      ctx.strokeRect(...at);
      ctx.strokeStyle = "#fff";
      ctx.lineWidth = 2;
      ctx.strokeRect(...at);
    }
    if (box) {
      ctx.fillStyle = "rgba(255, 255, 255, 0.25)";
      ctx.strokeStyle = "#fff";
      ctx.lineWidth = 1.5;
      ctx.fillRect(box.x, box.y, box.w, box.h);
      ctx.strokeRect(box.x, box.y, box.w, box.h);
      ctx.setLineDash([4, 4]);
      ctx.strokeStyle = "#000";
      ctx.strokeRect(box.x, box.y, box.w, box.h);
    }
    ctx.restore();
  }

  text(words, x, y, most) {
    const { ctx } = this;
    let shown = words;
    const fits = (text) => ctx.measureText(text).width <= most;
    if (!fits(shown)) {
      let keep = Math.max(1, Math.floor((words.length * most) / ctx.measureText(words).width) - 1);
      while (keep > 1 && !fits(`…${words.slice(-keep)}`)) keep -= 1;
      shown = `…${words.slice(-keep)}`;
    }
    ctx.fillText(shown, x, y);
  }
}
