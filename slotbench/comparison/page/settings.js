// The settings of two rows, or of all, key by key; those that differ first and in colour.

const diff = { left: "0", right: page.rows.length > 1 ? "1" : "0", withAll: false, search: "" };

/** A row's value of a setting: one text, or one per seed where its runs differ. */
function valueOf(row, key) {
  const values = page.rows[row].runs.map((run) => {
    const own = page.runs[run].own;
    return text(key in own ? own[key] : page.common[key]);
  });
  return [...new Set(values)].join(" · ");
}

function drawSettings() {
  const box = byId("settings");
  const rows = diff.right === "all" ? shown() : [...new Set([Number(diff.left), Number(diff.right)])];
  if (!rows.length || !page.rows.length) {
    box.replaceChildren(element("p", { class: "quiet" }, page.rows.length ? "No row is shown." : "No runs."));
    return;
  }
  const lines = [];
  for (const key of page.order) {
    const values = rows.map((row) => valueOf(row, key));
    const differs = new Set(values).size > 1;
    if (!differs && !diff.withAll) continue;
    if (!`${key} ${values.join(" ")}`.toLowerCase().includes(diff.search.toLowerCase())) continue;
    lines.push(
      element(
        "tr",
        { class: differs ? "differs" : null },
        element("th", { scope: "row" }, key),
        ...values.map((value) =>
          element(
            "td",
            { class: value === "–" ? "absent" : null, title: value === "–" ? "not a setting of this row" : null },
            value,
          ),
        ),
      ),
    );
  }
  const why = page.order.length ? "No setting differs." : "These runs have no settings.";
  box.replaceChildren(
    lines.length
      ? element(
          "table",
          {},
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              element("th", { scope: "col" }, "setting"),
              ...rows.map((row) =>
                element("th", { scope: "col" }, element("span", { class: "first" }, swatch(row), page.rows[row].label)),
              ),
            ),
          ),
          element("tbody", {}, ...lines),
        )
      : element("p", { class: "quiet" }, diff.search ? "No such setting among them." : why),
  );
}

function startSettings() {
  const set = (name) => (value) => {
    diff[name] = value;
    drawSettings();
  };
  if (!page.rows.length) {
    onChange(drawSettings);
    return;
  }
  const rows = page.rows.map((row, index) => [String(index), row.label]);
  const search = element("input", {
    type: "search",
    id: "settings-search",
    placeholder: "find a setting",
    "aria-label": "Find a setting",
  });
  search.addEventListener("input", () => set("search")(search.value));
  byId("settings-controls").append(
    select("of", "settings-left", rows, diff.left, set("left")),
    select("and", "settings-right", [...rows, ["all", "all rows that are shown"]], diff.right, (value) => {
      byId("settings-left").disabled = value === "all";
      set("right")(value);
    }),
    check("show all settings", "settings-all", diff.withAll, set("withAll")),
    search,
  );
  onChange(drawSettings);
}
