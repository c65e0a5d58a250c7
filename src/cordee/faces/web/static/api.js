/** Asking the server: JSON documents, binary frames, and the stream of what changes. */

/** What the server answered instead: `status`, and the `text`, `given`, `allowed`, `next` of its error. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.text || `the server answered ${status}`);
    this.status = status;
    this.kind = error.kind || "error";
    this.given = error.given;
    this.allowed = error.allowed;
    this.next = error.next;
  }
}

async function ask(path, accept, signal) {
  let answer;
  try {
    answer = await fetch(path, { headers: { accept }, signal, credentials: "same-origin", cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {
      kind: "disconnected",
      text: "the server does not answer",
      next: "is `cordee serve` still running? This page tries again by itself",
    });
  }
  if (answer.ok) return answer;
  let said = {};
  try {
    said = (await answer.json()).error || {};
  } catch {
    // A proxy's page, or nothing: the status says enough.
  }
  throw new ApiError(answer.status, said);
}

/** Return the JSON document at `path` (such as `api/runs`); throws ApiError. */
export async function get(path, { signal } = {}) {
  return (await ask(path, "application/json", signal)).json();
}

/** Return the frame at `path`: its scalar keys, `arrays` (typed arrays by name) and `shapes`; throws ApiError. */
export async function frame(path, { signal } = {}) {
  const answer = await ask(path, "application/vnd.cordee.frame", signal);
  return decodeFrame(await answer.arrayBuffer());
}

/** Return what a frame's bytes hold; the arrays are views of `buffer`, nothing is copied. */
export function decodeFrame(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes.length < 8 || String.fromCharCode(...bytes.subarray(0, 4)) !== "CoF1") {
    throw new ApiError(0, { kind: "frame", text: "the answer is not a frame of this version of Cordée" });
  }
  const length = new DataView(buffer).getUint32(4, true);
  const { arrays: described, ...scalars } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const arrays = {};
  const shapes = {};
  for (const { name, dtype, shape, offset } of described) {
    const count = shape.reduce((product, side) => product * side, 1);
    const Typed = dtype === "<f8" ? Float64Array : Float32Array;
    arrays[name] = new Typed(buffer, 8 + length + offset, count);
    shapes[name] = shape;
  }
  return { ...scalars, arrays, shapes };
}

/** Return `path?…` with the values that are given; undefined, null and empty ones are left out. */
export function url(path, values = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** Return the address of something of a run: `ofRun("id", "bands", {group: "gpu"})`. */
export function ofRun(run, what = "", values = {}) {
  const path = what ? `/${what.split("/").map(encodeURIComponent).join("/")}` : "";
  return url(`api/runs/${encodeURIComponent(run)}${path}`, values);
}
