"use strict";
// The step × layer matrix: a canvas as large as its window that draws the rows and columns in sight.
(() => {
  const GUTTER = 64, HEAD = 26, ROW = 15, GAP = 3, MIB = 1048576;
  const WHERE = ["read", "in the cache", "read ahead"], NOTHING = 3;
  const $ = (id) => document.getElementById(id);
  const [view, space, canvas, tip, cell] = ["matrix", "space", "canvas", "tip", "cell"].map($);
  const pen = canvas.getContext("2d");
  let run, steps = [], columns = [], slot = 3, colours = {}, cursor = null, queued = false, preferred = "residency";

  const ARRAYS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };
  function unpack(packed) {
    if (!packed) return null;
    const text = atob(packed.base64), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new ARRAYS[packed.width](bytes.buffer);
  }

  const loaded = new Map();
  function load(number) {
    if (!loaded.has(number)) {
      const raw = JSON.parse($("run-" + number).textContent);
      for (const key of ["decode", "position", "expert", "weight", "residency", "bytes"]) {
        raw[key] = unpack(raw[key]);
      }
      loaded.set(number, raw);
    }
    run = loaded.get(number);
  }

  const base = (step, layer) => (step * run.layers.length + layer) * run.top_k;
  const there = (at) => run.expert[at] !== run.n_expert;
  function usedBefore(step, layer, expert) {
    if (step === 0) return false;
    const from = base(step - 1, layer);
    for (let at = from; at < from + run.top_k; at++) if (run.expert[at] === expert) return true;
    return false;
  }
  const weight = (at) =>
    run.weight && run.weight[at] ? ((run.weight[at] - 1) / 65534) * run.weight_scale : null;
  const bytes = (at) => (run.bytes ? run.byte_values[run.bytes[at]] : null);
  const size = (n) => n === null ? "–" : n === 0 ? "0" : n < MIB ? (n / 1024).toFixed(1) + " KiB"
    : n < 1024 * MIB ? (n / MIB).toFixed(2) + " MiB" : (n / MIB / 1024).toFixed(2) + " GiB";

  // Viridis, in a few steps.
  const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const ramp = Array.from({ length: 64 }, (_, i) => {
    const at = (i / 63) * 4, from = Math.min(3, Math.floor(at)), part = at - from;
    return "rgb(" + RAMP[from].map((c, j) => Math.round(c + (RAMP[from + 1][j] - c) * part)) + ")";
  });
  const along = (share) => ramp[Math.max(0, Math.min(63, Math.round(share * 63)))];

  function colourOf(step, layer, at, kind) {
    switch (kind) {
      case "residency": return colours.residency[run.residency ? run.residency[at] : NOTHING];
      case "repeated": return usedBefore(step, layer, run.expert[at]) ? colours.repeated : colours.new;
      case "weight": return weight(at) === null ? colours.unknown : along(weight(at) / run.weight_scale);
      default: return along(run.expert[at] / Math.max(1, run.n_expert - 1));
    }
  }
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    for (const name of ["background", "ink", "quiet", "line", "shade", "unknown", "new", "repeated", "cursor"]) {
      colours[name] = of(name);
    }
    colours.residency = ["miss", "hit", "prefetch", "unknown"].map(of);
  }
  function legend() {
    const kind = $("colour").value;
    const entries = {
      residency: run.residency
        ? WHERE.map((what, i) => [colours.residency[i], what])
        : [[colours.unknown, "the trace does not say where the experts were"]],
      repeated: [[colours.repeated, "used by the token before, too"], [colours.new, "not used by the token before"]],
      weight: run.weight
        ? [[along(0), "0"], [along(0.5), (run.weight_scale / 2).toFixed(3)], [along(1), run.weight_scale.toFixed(3)]]
        : [[colours.unknown, "the trace has no weights"]],
      expert: [[along(0), "expert 0"], [along(1), "expert " + (run.n_expert - 1)]],
    }[kind];
    $("legend").replaceChildren(...entries.map(([colour, text]) => {
      const item = document.createElement("span"), box = document.createElement("i");
      box.style.background = colour;
      item.append(box, text);
      return item;
    }));
  }

  const cellWidth = () => slot * run.top_k + GAP;
  function layout() {
    const room = (view.clientWidth - GUTTER) / Math.max(1, columns.length) - GAP;
    slot = Math.max(3, Math.min(34, Math.floor(room / run.top_k)));
    space.style.width = GUTTER + columns.length * cellWidth() + "px";
    space.style.height = HEAD + steps.length * ROW + "px";
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(view.clientWidth * scale);
    canvas.height = Math.round(view.clientHeight * scale);
    canvas.style.width = view.clientWidth + "px";
    canvas.style.height = view.clientHeight + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    draw();
  }

  function draw() {
    const width = view.clientWidth, height = view.clientHeight, across = cellWidth();
    const kind = $("colour").value, left = view.scrollLeft, top = view.scrollTop;
    pen.fillStyle = colours.background;
    pen.fillRect(0, 0, width, height);
    pen.font = '11px "DejaVu Sans", system-ui, sans-serif';
    pen.textBaseline = "middle";
    const rows = [Math.floor(top / ROW), Math.min(steps.length, Math.ceil((top + height - HEAD) / ROW))];
    const cols = [Math.floor(left / across), Math.min(columns.length, Math.ceil((left + width - GUTTER) / across))];
    const x = (column) => GUTTER + column * across - left, y = (row) => HEAD + row * ROW - top;
    for (let row = rows[0]; row < rows[1]; row++) {
      for (let column = cols[0]; column < cols[1]; column++) {
        const from = base(steps[row], columns[column]);
        for (let k = 0; k < run.top_k; k++) {
          if (!there(from + k)) continue;
          pen.fillStyle = colourOf(steps[row], columns[column], from + k, kind);
          pen.fillRect(x(column) + k * slot, y(row), slot > 4 ? slot - 1 : slot, ROW - 1);
          if (slot >= 22) {
            pen.fillStyle = "#000";
            pen.textAlign = "center";
            // A rim keeps the number readable on any colour.
            pen.strokeStyle = "#ffffffcc";
            pen.lineWidth = 2.5;
            pen.strokeText(run.expert[from + k], x(column) + (k + 0.5) * slot, y(row) + ROW / 2);
            pen.fillText(run.expert[from + k], x(column) + (k + 0.5) * slot, y(row) + ROW / 2);
          }
        }
      }
    }
    if (cursor) {
      pen.strokeStyle = colours.cursor;
      pen.lineWidth = 2;
      pen.strokeRect(x(cursor[1]) - 1, y(cursor[0]) - 1, across - GAP + 2, ROW + 1);
    }
    pen.fillStyle = colours.shade;
    pen.fillRect(0, 0, GUTTER - 4, height);
    pen.fillStyle = colours.ink;
    pen.textAlign = "right";
    for (let row = rows[0]; row < rows[1]; row++) {
      const mark = run.decode[steps[row]] ? "" : "p ";
      pen.fillText(mark + run.position[steps[row]], GUTTER - 10, y(row) + ROW / 2);
    }
    pen.fillStyle = colours.shade;
    pen.fillRect(0, 0, width, HEAD - 4);
    pen.fillStyle = colours.ink;
    pen.fillText("position", GUTTER - 10, HEAD / 2 - 2);
    pen.textAlign = "center";
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, width, HEAD);
    pen.clip();
    const name = across >= 60 ? "layer " : "";
    for (let column = cols[0]; column < cols[1]; column++) {
      pen.fillText(name + run.layers[columns[column]], x(column) + (across - GAP) / 2, HEAD / 2 - 2);
    }
    pen.restore();
  }
  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; draw(); });
  }

  // What one cell holds, as elements: names come in as text, never as markup.
  function describe(row, column, chosen) {
    const step = steps[row], layer = columns[column], from = base(step, layer);
    const heading = document.createElement("strong");
    const phase = run.decode[step] ? "generated" : "prompt";
    heading.textContent = `position ${run.position[step]} (${phase}), layer ${run.layers[layer]}`;
    const table = document.createElement("table"), head = table.createTHead().insertRow();
    for (const name of ["expert", "weight", "residency", "bytes read"]) {
      const th = document.createElement("th");
      th.scope = "col";
      th.textContent = name;
      head.append(th);
    }
    const body = table.createTBody();
    for (let at = from; at < from + run.top_k; at++) {
      if (!there(at)) continue;
      const line = body.insertRow(), w = weight(at);
      if (at === from + chosen) line.className = "here";
      const again = usedBefore(step, layer, run.expert[at]) ? " ↻" : "";
      const where = run.residency ? WHERE[run.residency[at]] ?? "–" : "–";
      for (const text of [run.expert[at] + again, w === null ? "–" : w.toFixed(4), where, size(bytes(at))]) {
        line.insertCell().textContent = text;
      }
    }
    return body.rows.length ? [heading, table] : [heading, " not computed"];
  }

  function place(event) {
    const box = view.getBoundingClientRect();
    const x = event.clientX - box.left - view.clientLeft, y = event.clientY - box.top - view.clientTop;
    if (x < GUTTER || y < HEAD || x >= view.clientWidth || y >= view.clientHeight) return null;
    const row = Math.floor((y - HEAD + view.scrollTop) / ROW), across = cellWidth();
    const column = Math.floor((x - GUTTER + view.scrollLeft) / across);
    const k = Math.floor((x - GUTTER + view.scrollLeft - column * across) / slot);
    return row < steps.length && column < columns.length ? [row, column, k] : null;
  }
  view.addEventListener("mousemove", (event) => {
    const at = place(event);
    tip.hidden = !at;
    if (!at) return;
    tip.replaceChildren(...describe(...at));
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 10 : event.clientX + 14;
    const y = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4));
    tip.style.left = x + "px";
    tip.style.top = y + "px";
  });
  view.addEventListener("mouseleave", () => { tip.hidden = true; });
  view.addEventListener("scroll", () => { tip.hidden = true; redraw(); });
  function choose(row, column) {
    if (!steps.length || !columns.length) return;
    const within = (n, most) => Math.max(0, Math.min(most - 1, n));
    cursor = [within(row, steps.length), within(column, columns.length)];
    const x = cursor[1] * cellWidth(), y = cursor[0] * ROW;
    const room = [view.clientWidth - GUTTER - cellWidth(), view.clientHeight - HEAD - ROW];
    view.scrollLeft = Math.min(x, Math.max(view.scrollLeft, x - room[0]));
    view.scrollTop = Math.min(y, Math.max(view.scrollTop, y - room[1]));
    cell.replaceChildren(...describe(...cursor));
    redraw();
  }
  view.addEventListener("click", (event) => {
    const at = place(event);
    if (at) choose(at[0], at[1]);
  });
  view.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor((view.clientHeight - HEAD) / ROW) - 1);
    const [row, column] = cursor ?? [-1, 0], last = steps.length - 1;
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [Math.max(0, row), column - 1], ArrowRight: [Math.max(0, row), cursor ? column + 1 : 0],
      PageUp: [row - page, column], PageDown: [row + page, column],
      Home: [event.ctrlKey ? 0 : Math.max(0, row), 0], End: [event.ctrlKey ? last : Math.max(0, row), columns.length - 1],
      Escape: null,
    }[event.key];
    if (to === null) tip.hidden = true;
    if (!to) return;
    event.preventDefault();
    choose(...to);
  });

  // "0-3, 7, 40-" as places among the run's layers; null when it is no such list.
  function wanted(text) {
    const all = run.layers.map((_, place) => place);
    if (!text.trim()) return all;
    const shown = new Set();
    for (const part of text.split(",")) {
      const range = /^\s*(\d+)\s*(?:(-)\s*(\d*))?\s*$/.exec(part);
      if (!range) return null;
      const from = Number(range[1]), to = range[3] ? Number(range[3]) : range[2] ? Infinity : from;
      all.filter((i) => run.layers[i] >= from && run.layers[i] <= to).forEach((i) => shown.add(i));
    }
    return all.filter((i) => shown.has(i));
  }
  function summarise() {
    let hits = 0, known = 0, read = 0, repeats = 0, experts = 0;
    for (const step of steps) for (const layer of columns) {
      const from = base(step, layer);
      for (let at = from; at < from + run.top_k; at++) {
        if (!there(at)) continue;
        experts++;
        if (usedBefore(step, layer, run.expert[at])) repeats++;
        if (run.residency && run.residency[at] < NOTHING) { known++; if (run.residency[at] > 0) hits++; }
        read += bytes(at) ?? 0;
      }
    }
    const share = (n, of) => (of ? ((100 * n) / of).toFixed(1) : "–") + " %";
    let text = `${steps.length} tokens × ${columns.length} layers, top-${run.top_k} of ${run.n_expert} experts; `
      + `${share(repeats, experts)} repeated from the token before`;
    if (known) text += `; ${share(hits, known)} in memory, ${size(read)} read`;
    $("summary").textContent = text;
  }
  function select() {
    const found = wanted($("layers").value), bad = !found || !found.length;
    $("layers").setAttribute("aria-invalid", String(bad));
    $("layers-error").textContent = !found ? "expected layers such as 0-3, 7"
      : bad ? `no such layer; there are ${run.layers[0]} to ${run.layers.at(-1)}` : "";
    if (bad) return;
    const part = $("part").value;
    columns = found;
    steps = [];
    for (let step = 0; step < run.decode.length; step++) {
      if (part === "all" || (part === "decode") === Boolean(run.decode[step])) steps.push(step);
    }
    cursor = null;
    cell.textContent = "No cell is chosen.";
    view.scrollTop = view.scrollLeft = 0;
    summarise();
    legend();
    layout();
  }
  function open() {
    load(Number($("run").value));
    // What the run does not know can't be coloured by; the wish stays for the next run.
    for (const option of $("colour").options) {
      option.disabled = option.value in { residency: 0, weight: 0 } && !run[option.value];
    }
    $("colour").value = run[preferred] === null ? "repeated" : preferred;
    for (const option of $("part").options) {
      const decode = option.value === "decode";
      option.disabled = option.value !== "all" && !run.decode.includes(decode ? 1 : 0);
      if (option.selected && option.disabled) $("part").value = "all";
    }
    select();
  }

  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("run").addEventListener("change", open);
  $("part").addEventListener("change", select);
  $("layers").addEventListener("input", select);
  $("colour").addEventListener("change", () => { preferred = $("colour").value; legend(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); legend(); draw(); });
  new ResizeObserver(layout).observe(view);
  readColours();
  open();
})();
