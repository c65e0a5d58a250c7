/** Colours of values: a sequential map and one around a middle, both safe for colour-blind eyes. */

// Cividis (Nuñez, Anderson and Renslow 2018, doi 10.1371/journal.pone.0199239): ten of its colours, evenly spaced.
const CIVIDIS = ["00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838"];
// From blue over nearly white to orange-brown: the pair that all common kinds of colour blindness tell apart.
const AROUND = ["08306b", "1f69ad", "5ba3d6", "b3d3ea", "efefec", "f8cfa4", "eb9447", "b75a12", "6b2c04"];

export const MAPS = { sequential: CIVIDIS, diverging: AROUND };

const channels = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
const packed = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;

/** Return the 256 colours of a map, packed as ImageData's bytes read as little-endian Uint32. */
export function table(name) {
  const anchors = MAPS[name].map(channels);
  const colours = new Uint32Array(256);
  for (let at = 0; at < 256; at += 1) {
    const place = (at / 255) * (anchors.length - 1);
    const below = Math.min(Math.floor(place), anchors.length - 2);
    const part = place - below;
    colours[at] = packed(anchors[below].map((from, of) => Math.round(from + (anchors[below + 1][of] - from) * part)));
  }
  return colours;
}

/** Return what has no place on the scale, as pairs [ground, stripes]: missing, above (+∞), below (−∞). */
export function marks(dark) {
  return {
    missing: dark ? [packed([36, 42, 49]), packed([82, 92, 103])] : [packed([236, 239, 242]), packed([176, 184, 193])],
    above: [packed([194, 24, 91]), packed([255, 255, 255])],
    below: [packed([106, 27, 154]), packed([255, 255, 255])],
  };
}

/** Return a packed colour as CSS. */
export const css = (colour) => `rgb(${colour & 255}, ${(colour >> 8) & 255}, ${(colour >> 16) & 255})`;
