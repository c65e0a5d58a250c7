/** What changes in a run: one stream per run and tab, shared by all who listen; closed while the tab is hidden. */

import { ofRun } from "./api.js";

const KINDS = ["state", "samples", "logged", "finding", "ping"];
const HIDDEN_MS = 5_000;
const SILENT_MS = 40_000;
const MOST_WAIT_MS = 30_000;
const streams = new Map();

/** Seconds by which the server's clock is ahead of this browser's. */
export const clock = { ahead: 0 };

/** Now, on the server's clock: epoch seconds. */
export const serverNow = () => Date.now() / 1000 + clock.ahead;

class Stream {
  constructor(run) {
    this.run = run;
    this.listeners = new Set();
    this.status = "connecting";
    this.heard = 0;
    this.wait = 1_000;
    this.onVisibility = () => this.look();
    document.addEventListener("visibilitychange", this.onVisibility);
    this.watch = setInterval(() => this.check(), 5_000);
    this.open();
  }

  open() {
    clearTimeout(this.again);
    this.source?.close();
    this.opened = Date.now();
    const source = new EventSource(ofRun(this.run, "live"));
    this.source = source;
    source.onopen = () => {
      this.wait = 1_000;
      this.mark("live");
      this.tell("open", null);
    };
    source.onerror = () => {
      this.mark("disconnected");
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      this.tell("refused", null); // a stream does not say why; the documents that are asked for again do
      this.again = setTimeout(() => this.open(), this.wait);
      this.wait = Math.min(2 * this.wait, MOST_WAIT_MS);
    };
    for (const kind of KINDS) source.addEventListener(kind, (event) => this.receive(kind, event.data));
  }

  receive(kind, text) {
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      return; // torn by a proxy: the next event says where things stand
    }
    if (typeof data?.now === "number") clock.ahead = data.now - Date.now() / 1000;
    this.mark("live");
    this.tell(kind, data);
  }

  mark(status) {
    if (status === "live") this.heard = Date.now();
    if (status === this.status) return;
    this.status = status;
    this.tell("status", status);
  }

  tell(kind, data) {
    for (const listener of [...this.listeners]) listener(kind, data);
  }

  /** A connection that has gone quiet is opened anew: not every proxy says when it lets go. */
  check() {
    const since = Math.max(this.heard, this.opened);
    if (this.status === "paused" || Date.now() - since < SILENT_MS) return;
    this.mark("stale");
    this.open();
  }

  look() {
    clearTimeout(this.sleep);
    if (document.hidden) {
      this.sleep = setTimeout(() => {
        clearTimeout(this.again);
        this.source.close();
        this.mark("paused");
      }, HIDDEN_MS);
    } else if (this.status === "paused") {
      this.mark("connecting");
      this.open();
    }
  }

  close() {
    clearInterval(this.watch);
    clearTimeout(this.again);
    clearTimeout(this.sleep);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.source.close();
  }
}

/**
 * Call `listener(kind, data)` for what changes in `run`, until the returned function is called.
 *
 * Kinds: `state`, `samples`, `logged`, `finding`, `ping` as the server sends them; `open` after every connection (what
 * happened in between is to be asked for again); `refused`: the server does not give the stream; `status`: connecting, live, stale, disconnected or paused.
 */
export function live(run, listener) {
  let stream = streams.get(run);
  if (!stream) {
    stream = new Stream(run);
    streams.set(run, stream);
  }
  stream.listeners.add(listener);
  listener("status", stream.status);
  return () => {
    stream.listeners.delete(listener);
    if (stream.listeners.size > 0 || streams.get(run) !== stream) return;
    streams.delete(run);
    stream.close();
  };
}
