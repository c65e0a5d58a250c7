// Runs before the first paint: the theme that was chosen here, and whether this is a screen on a wall.
(() => {
  const root = document.documentElement;
  try {
    const theme = localStorage.getItem("cordee-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage may be forbidden: the system's theme holds.
  }
  if (new URLSearchParams(location.search).get("wall") === "1") root.classList.add("wall");
})();
