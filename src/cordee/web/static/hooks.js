/** Preact hooks of the pages: what the server says, what changes, how wide a place is. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { frame, get } from "./api.js";
import { live } from "./live.js";

const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

/**
 * Return `{data, error, loading, at}` of the document at `path` (null: nothing is asked).
 *
 * What was read stays while it is asked for again (`tick` changed) and when that fails. A server that does not answer is
 * asked again with growing pauses. `as` is "json" or "frame".
 */
export function useData(path, { tick = 0, as = "json" } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: path !== null, at: 0, path });
  const tries = useRef(0);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const control = new AbortController();
    let timer = 0;
    setState((old) => (old.path === path ? { ...old, loading: true } : { data: null, error: null, loading: true, at: 0, path }));
    const read = as === "frame" ? frame : get;
    read(path, { signal: control.signal }).then(
      (data) => {
        tries.current = 0;
        setState({ data, error: null, loading: false, at: Date.now() / 1000, path });
      },
      (error) => {
        if (control.signal.aborted) return;
        setState((old) => ({ ...old, error, loading: false, path }));
        if (error.status !== 0 && error.status !== 503 && error.status !== 429) return;
        const wait = RETRY_MS[Math.min(tries.current, RETRY_MS.length - 1)];
        tries.current += 1;
        timer = setTimeout(() => setAgain((number) => number + 1), wait);
      },
    );
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [path, tick, again, as]);
  return state.path === path ? state : { data: null, error: null, loading: path !== null, at: 0, path };
}

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
    const names = new Set([...wanted.split(" "), "open"]);
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

/** Return `[ref, seen]`: whether the element is on the screen, or close to it. */
export function useSeen() {
  const ref = useRef(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => setSeen(entries.some((entry) => entry.isIntersecting)), {
      rootMargin: "200px",
    });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, seen];
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
