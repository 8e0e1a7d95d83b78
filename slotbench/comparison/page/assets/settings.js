// The settings of two rows, or of all, key by key; those that differ first and in colour.

const diff = { left: "0", right: page.rows.length > 1 ? "1" : "0", all: false, search: "" };

/** A row's value of a setting: one text, or one per seed where its runs differ. */
function valueOf(row, key) {
  const values = page.rows[row].runs.map((run) => {
    const own = page.runs[run].own;
    return text(key in own ? own[key] : page.common[key]);
  });
  return [...new Set(values)].join(" · ");
}

function settingLine(key, rows) {
  const values = rows.map((row) => valueOf(row, key));
  const differs = new Set(values).size > 1;
  if (!differs && !diff.all) return null;
  if (!`${key} ${values.join(" ")}`.toLowerCase().includes(diff.search.toLowerCase())) return null;
  const cell = (value) =>
    value === "–"
      ? element("td", { class: "absent", title: "not a setting of this row" }, value)
      : element("td", {}, value);
  return element("tr", { class: differs ? "differs" : null }, element("th", { scope: "row" }, key), ...values.map(cell));
}

function drawSettings() {
  const rows = diff.right === "all" ? shown() : [...new Set([Number(diff.left), Number(diff.right)])];
  const say = (why) => byId("settings").replaceChildren(element("p", { class: "quiet" }, why));
  if (!page.rows.length) return say("No runs.");
  if (!rows.length) return say("No row is shown.");
  byId("settings-left").disabled = diff.right === "all";
  const lines = page.order.map((key) => settingLine(key, rows)).filter(Boolean);
  if (!lines.length && diff.search) return say("No such setting among them.");
  if (!lines.length) return say(page.order.length ? "No setting differs." : "These runs have no settings.");
  const headings = rows.map((row) =>
    element("th", { scope: "col" }, element("span", { class: "first" }, swatch(row), page.rows[row].label)),
  );
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "setting"), ...headings));
  return byId("settings").replaceChildren(element("table", {}, head, element("tbody", {}, ...lines)));
}

function startSettings() {
  onChange(drawSettings);
  if (!page.rows.length) return;
  const rows = page.rows.map((row, index) => [String(index), row.label]);
  controls("settings", diff, drawSettings, [
    ["left", "of", rows],
    ["right", "and", [...rows, ["all", "all rows that are shown"]]],
    ["all", "show all settings", ""],
  ]);
  const words = { placeholder: "find a setting", "aria-label": "Find a setting" };
  const search = element("input", { type: "search", id: "settings-search", ...words });
  search.addEventListener("input", () => {
    diff.search = search.value;
    drawSettings();
  });
  byId("settings-controls").append(search);
}
