/** The page's side of the worker: messages out, news in; what belongs to an older question is passed over. */

/** Talks to one worker; `news(kind, message)` is called for what it tells. */
export class Engine {
  constructor(news) {
    this.news = news;
    this.ticket = 0;
    this.waiting = new Map();
    this.next = 0;
    this.worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => {
      news("fault", { error: { status: -1, message: "the part of the page that draws heat maps failed", given: event.message } });
    };
  }

  receive(data) {
    const waiting = this.waiting.get(data.id);
    if (waiting) {
      this.waiting.delete(data.id);
      waiting(data);
      return;
    }
    if (data.ticket !== this.ticket) {
      data.bitmap?.close();
      return;
    }
    this.news(data.kind, data);
  }

  /** Begin with another metric: what comes for the one before is passed over. */
  open(given) {
    this.ticket += 1;
    this.worker.postMessage({ kind: "open", ticket: this.ticket, ...given });
  }

  send(kind, given = {}) {
    this.worker.postMessage({ kind, ...given });
  }

  /** Ask, and return a promise of the answer. */
  ask(kind, given) {
    this.next += 1;
    const id = this.next;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.worker.postMessage({ kind, id, ...given });
    });
  }

  close() {
    this.worker.terminate();
    this.waiting.clear();
  }
}
