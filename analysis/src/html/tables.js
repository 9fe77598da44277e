"use strict";
// Tables are sorted by their headers: numbers by value, what was not measured always last.
(() => {
  const value = (text) => {
    const plain = text.replace(/\u2212/g, "-").trim();
    if (plain === "" || plain === "–") return null;
    const number = /^[-+]?\d+(?:\.\d+)?/.exec(plain);
    return number ? Number(number[0]) : plain.toLowerCase();
  };
  const order = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  };
  for (const table of document.querySelectorAll("main table")) {
    const body = table.tBodies[0];
    const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
    if (!body || body.rows.length < 2) continue;
    const first = [...body.rows];
    heads.forEach((head, column) => {
      head.scope = "col";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.title = "Sort by this column";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        // Ascending, descending, as it was.
        const now = head.getAttribute("aria-sort");
        const wanted = now === "ascending" ? "descending" : now === "descending" ? null : "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        let rows = first;
        if (wanted) {
          head.setAttribute("aria-sort", wanted);
          const sign = wanted === "ascending" ? 1 : -1;
          const keyed = first.map((row) => [value(row.cells[column].textContent), row]);
          rows = keyed.sort((a, b) => order(a[0], b[0], sign)).map(([, row]) => row);
        }
        body.append(...rows);
      });
    });
  }
})();
