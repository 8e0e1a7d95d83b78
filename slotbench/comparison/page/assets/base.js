// The data, what is shown of it, and small helpers that every part of the page uses.

const page = JSON.parse(document.getElementById("data").textContent);

// what the address of the page asks for, as in #sort=-metric+val%2Floss&filter=PSB
const link = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const grouping = page.groupings.find(({ key }) => key === link.get("by"));
if (grouping) {
  page.rows = grouping.rows;
  page.keys = page.keys.filter(({ key }) => key === grouping.key);
}

const COLOURS = 8;
const DASHES = ["", "7 3", "2 2.5", "9 3 2 3", "14 4"];
const hasSeeds = page.rows.some((row) => row.runs.length > 1);
const metricByName = new Map(page.metrics.map((metric) => [metric.name, metric]));

// ---- what is shown ----------------------------------------------------------------------------------------------

const state = { hidden: new Set(), filter: "" };
const parts = [];
let waiting = false;

/** Draws a part of the page again whenever the rows that are shown have changed. */
function onChange(draw) {
  parts.push(draw);
}

/** Everything is drawn again, once, before the next frame. */
function changed() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    keepFocus(() => parts.forEach((draw) => draw()));
    writeLink();
  });
}

/** Draws, and gives the focus back to the new element of the same id. */
function keepFocus(draw) {
  const id = document.activeElement?.id;
  draw();
  if (id && document.activeElement?.id !== id) byId(id)?.focus({ preventScroll: true });
}

// with "=" a word of the filter is looked for in all settings of a row's runs
const haystacks = page.rows.map((row) => {
  const own = row.runs.map((index) => page.runs[index].own);
  const settings = Object.entries(Object.assign({}, page.common, ...own, row.settings));
  return settings.map(([key, value]) => `${key}=${text(value)}`.toLowerCase());
});

/** What one sees of a row without opening it. */
function inSight({ label, runs, settings }) {
  const values = page.keys.filter(({ key }) => table.columns.has(`key ${key}`)).map(({ key }) => text(settings[key]));
  return [label, ...values, ...runs.map((index) => page.runs[index].state)].map((word) => word.toLowerCase());
}

/** Rows that the filter lets through, as positions. */
function filtered() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const lines = (row, word) => (word.includes("=") ? haystacks[row] : inSight(page.rows[row]));
  const has = (row, word) => lines(row, word).some((line) => line.includes(word));
  const passes = (row, word) => (/^-./.test(word) ? !has(row, word.slice(1)) : has(row, word));
  return [...page.rows.keys()].filter((row) => words.every((word) => passes(row, word)));
}

/** Rows that are drawn: not filtered out, and not switched off. */
function shown() {
  return filtered().filter((row) => !state.hidden.has(row));
}

/** Shows or hides a row everywhere; alone: only this one, or all again if it was alone already. */
function toggle(row, alone) {
  if (alone) {
    const only = shown().length === 1 && !state.hidden.has(row);
    state.hidden = new Set(only ? [] : [...page.rows.keys()].filter((other) => other !== row));
  } else if (!state.hidden.delete(row)) state.hidden.add(row);
  changed();
}

// ---- the address, a link to the page as one sees it -------------------------------------------------------------

const kept = new Map();

/** Has the address keep what `read` gives, a list of texts, once it is not what it is now; gives what it asks for. */
function keep(name, read) {
  const first = JSON.stringify(read());
  kept.set(name, () => {
    const values = read();
    return JSON.stringify(values) === first ? [] : values.length ? values : [""];
  });
  return link.getAll(name);
}

function writeLink() {
  const words = new URLSearchParams();
  for (const [name, read] of kept) for (const value of read()) words.append(name, value);
  // the plots, which start last, have not asked for theirs at first
  for (const [name, value] of link) if (!kept.has(name)) words.append(name, value);
  const hash = String(words);
  if (!hash && !location.hash.includes("=")) return;
  try {
    history.replaceState(null, "", `#${hash}`);
  } catch {
    // a page that is shown inside another has no address of its own
  }
}

addEventListener("hashchange", () => {
  if (location.hash.includes("=")) location.reload();
  else writeLink();
});

// ---- elements ---------------------------------------------------------------------------------------------------

/** An HTML element; attributes that start with "on" are listeners, children are elements or plain text. */
function element(tag, attributes = {}, ...children) {
  return make(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function svg(tag, attributes = {}, ...children) {
  return make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

function byId(id) {
  return document.getElementById(id);
}

/** A labelled choice of one of [value, label] pairs. */
function select(label, id, options, chosen, onchoice) {
  const field = element("select", { id, onchange: () => onchoice(field.value) });
  for (const [value, name] of options) field.append(element("option", { value, selected: value === chosen }, name));
  return element("label", { class: "field" }, element("span", {}, label), field);
}

/** A labelled check box. */
function check(label, id, isOn, onchoice, title) {
  const box = element("input", { type: "checkbox", id, checked: isOn, onchange: () => onchoice(box.checked) });
  return element("label", { class: "check", title }, box, label);
}

/**
 * Puts controls above a part: each is [name, label, options] for a choice or [name, label] for a check box, or null.
 * They change `chosen[name]`, which the address keeps, and draw the part again.
 */
function controls(part, chosen, draw, entries) {
  const set = (name) => (value) => {
    chosen[name] = value;
    draw();
    writeLink();
  };
  for (const [name, label, given] of entries.filter(Boolean)) {
    const id = `${part}-${name}`;
    const isChoice = Array.isArray(given);
    const [asked] = keep(id, () => [String(chosen[name])]);
    if (isChoice && given.some(([value]) => value === asked)) chosen[name] = asked;
    if (!isChoice && asked) chosen[name] = asked === "true";
    const field = isChoice
      ? select(label, id, given, chosen[name], set(name))
      : check(label, id, chosen[name], set(name), given);
    byId(`${part}-controls`).append(field);
  }
}

/** A menu of check boxes with a box to search it, for [value, label] pairs; `chosen` is a set that it changes. */
function menu(label, id, options, chosen, onchoice) {
  const asked = keep(id, () => [...chosen].sort());
  if (asked.length) {
    chosen.clear();
    for (const [value] of options) if (asked.includes(value)) chosen.add(value);
  }
  const summary = element("summary", {});
  const say = () => {
    summary.textContent = `${label}: ${options.filter(([value]) => chosen.has(value)).length} of ${options.length}`;
  };
  const list = element("div", { class: "choices" });
  for (const [value, name] of options) {
    const flip = (isOn) => {
      if (isOn) chosen.add(value);
      else chosen.delete(value);
      say();
      onchoice();
      writeLink();
    };
    list.append(check(name, null, chosen.has(value), flip));
  }
  const search = element("input", { type: "search", placeholder: "find", "aria-label": `Find in ${label}` });
  search.addEventListener("input", () => {
    const word = search.value.toLowerCase();
    for (const choice of list.children) choice.hidden = !choice.textContent.toLowerCase().includes(word);
  });
  say();
  const sheet = element("div", { class: "sheet" }, options.length > 8 ? search : null, list);
  return element("details", { class: "menu", id }, summary, sheet);
}

document.addEventListener("pointerdown", (event) => {
  for (const open of document.querySelectorAll("details.menu[open]"))
    if (!open.contains(event.target)) open.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of document.querySelectorAll("details.menu[open]")) {
    open.open = false;
    open.querySelector("summary").focus();
  }
  hideTip();
});

// ---- the box beside the pointer ----------------------------------------------------------------------------------

function showTip(x, y, ...children) {
  const tip = byId("tip");
  tip.replaceChildren(...children.filter(Boolean));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - height - 4))}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

// ---- rows in colour ----------------------------------------------------------------------------------------------

/** A short piece of line as the row's is drawn in the plots. */
function swatch(index) {
  const look = { stroke: `var(--line-${index % COLOURS})`, "stroke-dasharray": dashes(index) || null };
  const line = svg("line", { x1: 1, y1: 5, x2: 25, y2: 5, "stroke-width": 2, ...look });
  return svg("svg", { width: 26, height: 10, class: "swatch", "aria-hidden": "true" }, line);
}

/** The dashes that row or group `index` has everywhere. */
function dashes(index) {
  return DASHES[Math.floor(index / COLOURS) % DASHES.length];
}

/** A button per row that shows or hides it; `place` tells the legends of the page apart. */
function legend(place, rows) {
  return rows.map((row) =>
    element(
      "button",
      {
        type: "button",
        id: `${place}-entry-${row}`,
        class: "entry",
        "aria-pressed": String(!state.hidden.has(row)),
        onclick: (event) => toggle(row, event.shiftKey),
      },
      swatch(row),
      element("span", {}, page.rows[row].label),
      page.rows[row].diverged ? element("span", { class: "warn", title: "a run of it has diverged" }, "✕") : null,
    ),
  );
}

/** What is drawn beside scores: baselines, and oracles under names that say so; name -> value. */
function references(metric) {
  const oracles = Object.entries(metric?.oracles ?? {}).map(([name, value]) => [`oracle: ${name}`, value]);
  return { ...(metric?.baselines ?? {}), ...Object.fromEntries(oracles) };
}

// ---- numbers as text -----------------------------------------------------------------------------------------------

/** A setting as one would type it. */
function text(value) {
  if (value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** About `digits` significant digits, no longer than needed. */
function short(value, digits = 4) {
  if (value === null || value === undefined) return "";
  const number = Number(value);
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "NaN" : number > 0 ? "∞" : "−∞";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return minus(number.toExponential(Math.max(0, digits - 2)));
  if (size >= 10 ** (digits - 1)) return minus(Math.round(number).toLocaleString("en"));
  return minus(String(Number(number.toPrecision(digits))));
}

function minus(text) {
  return text.replace(/(?<!e)-/, "−").replace("e+", "e");
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${short(1000 * seconds, 3)} ms`;
  if (seconds < 120) return `${short(seconds, 3)} s`;
  if (seconds < 7200) return `${short(seconds / 60, 3)} min`;
  return `${short(seconds / 3600, 3)} h`;
}

/** Decimals so that a column of numbers shows four digits of a typical one: the median, since one may be 1e20. */
function decimals(numbers) {
  const sizes = numbers.map((number) => Math.abs(Number(number))).filter((size) => Number.isFinite(size) && size > 0);
  if (!sizes.length) return 3;
  const typical = sizes.sort((a, b) => a - b)[Math.floor(sizes.length / 2)];
  return Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(typical))));
}

/** With so many decimals, so that numbers stand under one another; very large and very small ones with an exponent. */
function fixed(value, places) {
  const number = Number(value);
  const size = Math.abs(number);
  if (!Number.isFinite(number) || size >= 1e7 || (number !== 0 && size < 0.5 * 10 ** -places)) return short(value, 3);
  return minus(number.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }));
}

function plural(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}
