"use strict";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const body = document.querySelector("tbody.rows");
const rows = all("tr[data-row]", body);
const detail = (row) => body.querySelector(`tr[data-of="${row.dataset.row}"]`);

/* --- opening a row */

for (const row of rows) {
  row.addEventListener("click", () => {
    const below = detail(row);
    below.hidden = !below.hidden;
    row.querySelector(".open").textContent = below.hidden ? "▸" : "▾";
  });
}

/* --- sorting by a column: numbers by their value, texts by theirs, what is missing last */

function valueOf(row, column) {
  if (column < 0) return row.querySelector(".name").textContent;
  const text = row.querySelector(`td[data-c="${column}"]`).dataset.v;
  return text === "" ? null : text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

for (const button of all("thead button[data-sort]")) {
  button.addEventListener("click", () => {
    const column = Number(button.dataset.sort);
    const down = button.dataset.order === "up";
    for (const other of all("thead button[data-sort]")) delete other.dataset.order;
    button.dataset.order = down ? "down" : "up";
    const sorted = rows.map((row) => [valueOf(row, column), row]);
    sorted.sort(([a], [b]) => (a === null || b === null ? compare(a, b) : (down ? -1 : 1) * compare(a, b)));
    for (const [, row] of sorted) body.append(row, detail(row));
  });
}

/* --- filtering rows by words */

function fits(row, words) {
  return words.every((word) => {
    const not = word.startsWith("-") && word.length > 1;
    const wanted = not ? word.slice(1) : word;
    const text = wanted.includes("=") ? `${row.dataset.settings} ` : row.dataset.words;
    const found = text.includes(wanted.includes("=") ? `${wanted} ` : wanted);
    return found !== not;
  });
}

const filter = document.getElementById("filter");
function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const kept = new Set();
  for (const row of rows) {
    row.hidden = !fits(row, words);
    if (row.hidden) detail(row).hidden = true;
    else kept.add(row.dataset.row);
    row.querySelector(".open").textContent = detail(row).hidden ? "▸" : "▾";
  }
  for (const part of all("[data-r]")) part.classList.toggle("off", !kept.has(part.dataset.r));
  document.getElementById("shown").textContent = kept.size < rows.length ? `${kept.size} of ${rows.length} rows` : "";
}
filter.addEventListener("input", applyFilter);

/* --- columns */

for (const box of all("input[data-column]")) {
  box.addEventListener("change", () => {
    for (const cell of all(`[data-c="${box.dataset.column}"]`)) cell.hidden = !box.checked;
  });
}
document.addEventListener("click", (event) => {
  for (const menu of all("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

/* --- images */

const media = document.getElementById("media");
media?.addEventListener("change", () => {
  for (const figure of all(".gallery figure")) figure.hidden = figure.dataset.name !== media.value;
});
const viewer = document.getElementById("viewer");
for (const image of all(".gallery img")) {
  image.addEventListener("click", () => {
    viewer.replaceChildren(image.cloneNode());
    viewer.showModal();
  });
}
viewer.addEventListener("click", () => viewer.close());
