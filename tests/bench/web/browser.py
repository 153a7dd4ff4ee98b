"""What cases ask of a page: memory of its process, frames while it scrolls, and how long a thread was blocked."""

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

# Before anything else of the page: how long tasks held its thread.
WATCH_TASKS = """
window.benchTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.benchTasks.push(entry.duration);
}).observe({ type: "longtask", buffered: true });
"""
# [pixels a second, seconds]: frames a second, the slowest frame, and the share of what was in sight that
# was drawn, looked at every sixth frame. `pace` is turned around at the end of the page.
SCROLL = """([pace, seconds]) => new Promise((done) => {
  const scroller = document.scrollingElement;
  const look = window.benchDrawn;
  const began = performance.now();
  let [frames, slowest, last, way, seen, drawn] = [0, 0, began, 1, 0, 0];
  const frame = (now) => {
    const past = now - last;
    if (frames > 0) slowest = Math.max(slowest, past);
    last = now;
    if (now - began > seconds * 1000) {
      done({ fps: (frames * 1000) / (now - began), slowest, share: seen ? drawn / seen : 1 });
      return;
    }
    frames += 1;
    if (frames % 6 === 0) {
      const [of, n] = look();
      seen += of;
      drawn += n;
    }
    const end = scroller.scrollHeight - innerHeight;
    if (scroller.scrollTop >= end - 1) way = -1;
    else if (scroller.scrollTop <= 0) way = 1;
    scroller.scrollTop += way * pace * Math.min(past, 100) / 1000;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


def process_bytes(browser: Browser, page: Page) -> int:
    """Return the memory that the page's process has to itself, and its share of what it shares (Linux)."""
    marked = page.context.new_cdp_session(page)
    marked.send("HeapProfiler.collectGarbage")
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    sizes = [_pss(one["id"]) for one in found["processInfo"] if one["type"] == "renderer"]
    return max(sizes)  # nothing else is open


def renderer_seconds(browser: Browser) -> float:
    """Return the CPU time that pages have taken so far; on a busy machine it says more than the clock."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    return float(sum(one["cpuTime"] for one in found["processInfo"] if one["type"] == "renderer"))


def server_seconds(pid: int) -> float:
    """Return the CPU time that a process has taken so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def counted(page: Page) -> dict[str, float]:
    """Return Chromium's own counters of the page: Nodes, JSHeapUsedSize and others."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: one["value"] for one in metrics}


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:  # ended meanwhile
        return 0
    (line,) = (line for line in lines if line.startswith("Pss:"))
    return int(line.split()[1]) * 1024
