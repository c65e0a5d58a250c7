/** The colours of the theme, for canvases. */

let probe = null;

/** Return a colour of style.css as the browser computes it now: `colour("line")`, `colour("c0", 0.2)`. */
export function colour(name, alpha = 1) {
  if (!probe) {
    probe = document.createElement("i");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(--${name})`;
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g) || [0, 0, 0];
  return `rgba(${parts[0]}, ${parts[1]}, ${parts[2]}, ${alpha})`;
}

/** Return the colour of the n-th series, and its dashes: eight colours, then the same ones dashed. */
export function series(at) {
  const dashes = [[], [8, 4], [2, 3]][Math.floor(at / 7) % 3];
  return { stroke: colour(`c${at % 7}`), dash: dashes };
}
