/** Wheel, mouse, fingers and keys over the plot. */

const CLICK_PX = 4;
const THIN_PX = 12;
const TWICE_MS = 230; // a click is one only when no second one follows

/**
 * Listen on the canvas until the returned function is called.
 *
 * does: `hover(x, y)` (null: left), `open(x, y)`, `touch(x, y)`, `pick(x, y)` (in the gutter), `cursor(columns, rows)`,
 * `enter()`, `space()`, `clear()`; x and y are CSS pixels in the field of cells.
 */
export function listen(plot, does) {
  const { canvas } = plot;
  const fingers = new Map();
  let drag = null;
  let pinch = null;
  let clicked = 0;

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const inside = ({ x, y }) => {
    const field = plot.field;
    return x >= field.x && x <= field.x + field.w && y >= 0 && y <= field.h;
  };
  const share = ({ x, y }) => ({ x: (x - plot.field.x) / plot.field.w, y: y / plot.field.h });

  const wheel = (event) => {
    const place = at(event);
    if (!plot.view || !inside(place)) return;
    const by = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    const factor = Math.exp(Math.max(-1, Math.min(1, by / (event.ctrlKey ? 80 : 400))));
    if (event.shiftKey && !event.ctrlKey) {
      event.preventDefault();
      plot.move((event.deltaX || by) / plot.field.w, 0);
      return;
    }
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      if (plot.isWhole) return;
      event.preventDefault();
      plot.move(event.deltaX / plot.field.w, 0);
      return;
    }
    if (factor > 1 && plot.isWhole) return; // nothing to zoom out of: the page scrolls
    event.preventDefault();
    const { x, y } = share(place);
    plot.zoom(x, y, event.altKey ? 1 : factor, factor);
  };

  const down = (event) => {
    const place = at(event);
    if (event.button > 1 || !plot.view) return;
    fingers.set(event.pointerId, place);
    if (event.pointerType === "touch" && fingers.size === 2) {
      drag = null;
      pinch = spread([...fingers.values()]);
      return;
    }
    const pans = event.button === 1 || event.shiftKey || event.pointerType === "touch";
    drag = { from: place, last: place, pans, moved: false, gutter: place.x < plot.field.x };
    if (event.pointerType !== "touch" || !plot.isWhole) canvas.setPointerCapture?.(event.pointerId);
  };

  const move = (event) => {
    const place = at(event);
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, place);
    if (pinch && fingers.size === 2) {
      const now = spread([...fingers.values()]);
      const centre = share(now);
      plot.zoom(centre.x, centre.y, pinch.size / now.size, pinch.size / now.size);
      plot.move((pinch.x - now.x) / plot.field.w, (pinch.y - now.y) / plot.field.h);
      pinch = now;
      return;
    }
    if (!drag) {
      does.hover(inside(place) ? { x: place.x - plot.field.x, y: place.y } : null);
      return;
    }
    if (!drag.moved && Math.hypot(place.x - drag.from.x, place.y - drag.from.y) < CLICK_PX) return;
    drag.moved = true;
    does.hover(null);
    if (drag.pans) {
      plot.move((drag.last.x - place.x) / plot.field.w, (drag.last.y - place.y) / plot.field.h);
      drag.last = place;
    } else if (!drag.gutter) {
      plot.box = boxOf(drag.from, place, plot.field);
      plot.later();
    }
  };

  const up = (event) => {
    fingers.delete(event.pointerId);
    if (pinch) {
      if (fingers.size < 2) pinch = null;
      return;
    }
    if (!drag) return;
    const { moved, gutter, pans, from } = drag;
    drag = null;
    const box = plot.box;
    plot.box = null;
    if (!moved) {
      const x = from.x - plot.field.x;
      if (gutter) does.pick(0, from.y);
      else if (inside(from) && event.pointerType === "touch") does.touch(x, from.y);
      else if (inside(from)) {
        clearTimeout(clicked);
        clicked = setTimeout(() => does.open(x, from.y), TWICE_MS);
      }
    } else if (box && !pans) plot.go(viewOf(box, plot));
    plot.later();
  };

  const cancel = (event) => {
    fingers.delete(event.pointerId);
    drag = pinch = plot.box = null;
    plot.later();
  };

  const keys = {
    ArrowLeft: (event) => (event.shiftKey ? plot.move(-0.25, 0) : does.cursor(-1, 0)),
    ArrowRight: (event) => (event.shiftKey ? plot.move(0.25, 0) : does.cursor(1, 0)),
    ArrowUp: (event) => (event.shiftKey ? plot.move(0, -0.25) : does.cursor(0, -1)),
    ArrowDown: (event) => (event.shiftKey ? plot.move(0, 0.25) : does.cursor(0, 1)),
    PageUp: () => plot.move(0, -0.9),
    PageDown: () => plot.move(0, 0.9),
    Home: () => does.cursor(-Infinity, 0),
    End: () => does.cursor(Infinity, 0),
    "+": () => zoomAtCursor(0.5),
    "=": () => zoomAtCursor(0.5),
    "-": () => zoomAtCursor(2),
    "−": () => zoomAtCursor(2),
    0: () => plot.reset(),
    Escape: () => does.clear(),
    Enter: () => does.enter(),
    " ": () => does.space(),
  };

  function zoomAtCursor(factor) {
    const { cursor, view } = plot;
    const x = cursor ? (cursor.time + cursor.step / 2 - view.t0) / (view.t1 - view.t0) : 0.5;
    const y = cursor ? (cursor.row + 0.5 - view.r0) / (view.r1 - view.r0) : 0.5;
    plot.zoom(x, y, factor, factor);
  }

  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !plot.view || !keys[event.key]) return;
    event.preventDefault(); // the page's own keys of the same names are for when the plot is not in focus
    event.stopPropagation();
    keys[event.key](event);
  };
  const left = () => does.hover(null);
  const twice = () => {
    clearTimeout(clicked);
    plot.reset();
  };

  const events = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: cancel, pointerleave: left, dblclick: twice, keydown: pressed };
  for (const [name, handler] of Object.entries(events)) canvas.addEventListener(name, handler);
  canvas.addEventListener("wheel", wheel, { passive: false });
  return () => {
    for (const [name, handler] of Object.entries(events)) canvas.removeEventListener(name, handler);
    canvas.removeEventListener("wheel", wheel);
    clearTimeout(clicked);
  };
}

function spread([one, other]) {
  return { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2, size: Math.max(10, Math.hypot(one.x - other.x, one.y - other.y)) };
}

// A drag along one axis leaves the other as it is.
function viewOf(box, { view, field }) {
  const { t0, t1, r0, r1 } = view;
  const time = (place) => t0 + ((place - field.x) / field.w) * (t1 - t0);
  const row = (place) => r0 + (place / field.h) * (r1 - r0);
  const [wide, tall] = [box.w >= THIN_PX, box.h >= THIN_PX];
  return {
    t0: wide ? time(box.x) : t0,
    t1: wide ? time(box.x + box.w) : t1,
    r0: tall ? row(box.y) : r0,
    r1: tall ? row(box.y + box.h) : r1,
  };
}

function boxOf(from, to, field) {
  const x0 = Math.max(field.x, Math.min(from.x, to.x));
  const x1 = Math.min(field.x + field.w, Math.max(from.x, to.x));
  const y0 = Math.max(0, Math.min(from.y, to.y));
  const y1 = Math.min(field.h, Math.max(from.y, to.y));
  return { x: x0, y: y0, w: x1 - x0, h: y1 - y0 };
}
