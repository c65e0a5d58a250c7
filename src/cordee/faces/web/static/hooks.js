/** Preact hooks of the pages: what the server says, what changes, how wide a place is. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { frame, get } from "./api.js";
import { live } from "./live.js";

const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

/** Asks for one path: again when told, never twice at once, and with growing pauses while the server does not answer. */
class Reader {
  constructor(path, read, tell) {
    Object.assign(this, { path, read, tell, busy: false, again: false, tries: 0, control: new AbortController() });
  }

  ask() {
    if (this.busy) {
      this.again = true; // what is under way may have been read before the change
      return;
    }
    clearTimeout(this.timer);
    this.busy = true;
    this.read(this.path, { signal: this.control.signal })
      .then(
        (data) => {
          this.tries = 0;
          this.tell({ data, error: null, loading: false, at: Date.now() / 1000 });
        },
        (error) => {
          if (this.control.signal.aborted) return;
          this.tell({ error, loading: false });
          if (error.status !== 0 && error.status !== 503 && error.status !== 429) return;
          this.timer = setTimeout(() => this.ask(), RETRY_MS[Math.min(this.tries, RETRY_MS.length - 1)]);
          this.tries += 1;
        },
      )
      .finally(() => {
        this.busy = false;
        if (this.again && !this.control.signal.aborted) {
          this.again = false;
          this.ask();
        }
      });
  }

  stop() {
    clearTimeout(this.timer);
    this.control.abort();
  }
}

const NOTHING = { data: null, error: null, loading: false, at: 0 };

/**
 * Return `{data, error, loading, at}` of the document at `path` (null: nothing is asked).
 *
 * It is asked for again when `tick` changes; what was read stays meanwhile, and when that fails. `as` is "json" or "frame".
 * What was read under the same `keep` stays too until another path is read: the next stretch of time of one metric.
 */
export function useData(path, { tick = 0, as = "json", keep } = {}) {
  const [state, setState] = useState({ ...NOTHING, path, keep });
  const reader = useRef(null);
  useEffect(() => {
    if (path === null) return undefined;
    const made = new Reader(path, as === "frame" ? frame : get, (news) =>
      setState((old) => ({ ...(old.path === path || fits(old, keep) ? old : NOTHING), ...news, path, keep })),
    );
    reader.current = made;
    return () => {
      made.stop();
      reader.current = null;
    };
  }, [path, as]);
  useEffect(() => reader.current?.ask(), [path, as, tick]);
  if (state.path === path) return state;
  return fits(state, keep) ? { ...state, loading: true } : { ...NOTHING, loading: path !== null };
}

const fits = (state, keep) => keep !== undefined && state.keep === keep;

/**
 * Return a number that grows when one of `kinds` happens in the run, at most once per `pace_ms`; never while hidden.
 *
 * What happens within a pause is not lost: the number grows at its end.
 */
export function useTick(run, kinds, pace_ms = 1_000) {
  const [tick, setTick] = useState(0);
  const wanted = kinds.join(" ");
  useEffect(() => {
    if (!run) return undefined;
    let timer = 0;
    let last = 0;
    const names = new Set([...wanted.split(" "), "open", "refused"]);
    const stop = live(run, (kind) => {
      if (!names.has(kind) || timer) return;
      const wait = Math.max(0, last + pace_ms - Date.now());
      timer = setTimeout(() => {
        timer = 0;
        last = Date.now();
        setTick((number) => number + 1);
      }, wait);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [run, wanted, pace_ms]);
  return tick;
}

/** Return the state of the run's stream: `{status, heard}`. */
export function useStatus(run) {
  const [status, setStatus] = useState("connecting");
  useEffect(() => (run ? live(run, (kind, data) => kind === "status" && setStatus(data)) : undefined), [run]);
  return status;
}

/** Draw again every `seconds`, while the tab is seen. */
export function useClock(seconds = 1) {
  const [, setNow] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setNow((number) => number + 1), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
}

/** Return a number that grows every `seconds`, while the tab is seen, and when it is seen again. */
export function useEvery(seconds) {
  const [tick, setTick] = useState(0);
  useEffect(() => {
    const grow = () => document.hidden || setTick((number) => number + 1);
    const timer = setInterval(grow, seconds * 1000);
    document.addEventListener("visibilitychange", grow);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", grow);
    };
  }, [seconds]);
  return tick;
}

/** Return `[ref, width]`: the width of the element in CSS pixels, 0 before it is known. */
export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const place = ref.current;
    if (!place) return undefined;
    const measure = () => setWidth(Math.floor(place.getBoundingClientRect().width));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(place);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

/** Return `[ref, seen, ever]`: whether the element is on the screen, or close to it; and whether it ever was. */
export function useSeen() {
  const ref = useRef(null);
  const [seen, setSeen] = useState(false);
  const ever = useRef(false);
  ever.current ||= seen;
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setSeen(entries.some((entry) => entry.isIntersecting)), {
      rootMargin: "200px",
    });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, seen, ever.current];
}

/** Return a number that grows when the theme changes: canvases are drawn again with its colours. */
export function useTheme() {
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const changed = () => setTheme((number) => number + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", changed);
    addEventListener("cordee-theme", changed);
    return () => {
      system.removeEventListener("change", changed);
      removeEventListener("cordee-theme", changed);
    };
  }, []);
  return theme;
}

/** Return a function that stays the same and calls the newest `handler`. */
export function useHandler(handler) {
  const newest = useRef(handler);
  newest.current = handler;
  return useCallback((...given) => newest.current?.(...given), []);
}
