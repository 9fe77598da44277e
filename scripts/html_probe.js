"use strict";
// Put behind a report's own scripts by test_html.py: does what a reader does, and leaves what came of it in the page
// as JSON. Nothing in it waits, so that it is done when the page has loaded.
const read = () => {
  const $ = (id) => document.getElementById(id);
  const found = { ready_ms: Number(document.documentElement.dataset.readyMs) };
  const view = $("matrix"), canvas = $("canvas"), box = () => view.getBoundingClientRect();
  const pixels = () => {
    const { width, height } = canvas;
    const data = canvas.getContext("2d").getImageData(0, 0, width, height).data, colours = new Map();
    for (let i = 0; i < data.length; i += 4) {
      const colour = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
      colours.set(colour, (colours.get(colour) ?? 0) + 1);
    }
    return { colours: colours.size, largest: Math.max(...colours.values()) / (width * height) };
  };
  found.drawn = pixels();
  found.runs = $("run").options.length;
  found.summary = $("summary").textContent;
  found.legend = $("legend").textContent;
  const hover = (x, y) => view.dispatchEvent(
    new MouseEvent("mousemove", { clientX: box().left + x, clientY: box().top + y, bubbles: true }));
  // The last generated token in sight.
  $("part").value = "decode";
  $("part").dispatchEvent(new Event("change"));
  found.decode = $("summary").textContent;
  hover(90, 60);
  found.hover = [...$("tip").querySelectorAll("strong, th, td")].map((e) => e.textContent);
  found.hover_shown = !$("tip").hidden;
  view.dispatchEvent(new MouseEvent("mouseleave"));
  found.hover_hidden = $("tip").hidden;
  $("layers").value = "1-2";
  $("layers").dispatchEvent(new Event("input"));
  found.two_layers = $("summary").textContent;
  found.two_layers_drawn = pixels();
  $("layers").value = "x";
  $("layers").dispatchEvent(new Event("input"));
  found.bad_layers = [$("layers").getAttribute("aria-invalid"), $("layers-error").textContent];
  $("layers").value = "";
  $("layers").dispatchEvent(new Event("input"));
  view.dispatchEvent(new KeyboardEvent("keydown", { key: "End", ctrlKey: true }));
  found.keyboard = $("cell").querySelector("strong")?.textContent;
  found.scrolled = view.scrollTop;
  for (const kind of ["repeated", "weight", "expert", "residency"]) {
    $("colour").value = kind;
    $("colour").dispatchEvent(new Event("change"));
  }
  // A run that knows less shows what it can; the next one is coloured as before.
  if ($("run").options.length > 1) {
    $("run").value = String($("run").options.length - 1);
    $("run").dispatchEvent(new Event("change"));
      found.last_run = $("summary").textContent;
    found.last_run_colour = $("colour").value;
    hover(90, 60);
    found.last_run_hover = [...$("tip").querySelectorAll("strong, th, td")].map((e) => e.textContent);
  }
  const table = document.querySelector("main table");
  const column = (n) => [...table.tBodies[0].rows].map((row) => row.cells[n].textContent);
  const button = table.tHead.rows[0].cells[1].querySelector("button");
  if (button) {
    found.unsorted = column(1);
    button.click();
    found.ascending = [button.parentElement.ariaSort, column(1)];
    button.click();
    found.descending = [button.parentElement.ariaSort, column(1)];
    button.click();
    found.again = [button.parentElement.ariaSort, column(1)];
  }
  found.pictures = document.querySelectorAll("main svg").length;
  found.loaded = performance.getEntriesByType("resource").map((e) => e.name);
  found.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return found;
};
let found;
try {
  found = read();
} catch (error) {
  found = { error: String(error.stack ?? error) };
}
const out = document.createElement("script");
out.type = "application/json";
out.id = "probe";
out.textContent = JSON.stringify(found).replace(/</g, "\\u003c");
document.body.append(out);
