// The table: rows that can be sorted, filtered, opened into their runs, and switched on and off.

const table = {
  sort: null,
  isDescending: false,
  open: new Set(),
  withIntervals: false,
  withFloors: true,
  columns: new Set([
    ...columns
      .filter((column) => column.id.startsWith("key "))
      .slice(0, 6)
      .map((column) => column.id),
    ...columns
      .filter((column) => column.metric)
      .slice(0, 6)
      .map((column) => column.id),
    ...(page.rows.some((row) => row.parameters !== null) ? ["parameters"] : []),
    ...(page.rows.some((row) => row.seconds_per_step !== null) ? ["seconds"] : []),
    "runs",
  ]),
};

const byLabel = { id: "label", title: "row", isNumber: false, value: (row) => row.label };

/** Rows in the order that is asked for; those without a value last, either way. */
function sorted(rows) {
  const column = [byLabel, ...columns].find(({ id }) => id === table.sort);
  if (!column) return rows;
  const sign = table.isDescending ? -1 : 1;
  const lacks = (value) => value === undefined || value === null || (column.isNumber && Number.isNaN(Number(value)));
  return [...rows].sort((left, right) => {
    const [a, b] = [column.value(page.rows[left]), column.value(page.rows[right])];
    if (lacks(a) || lacks(b)) return lacks(a) - lacks(b) || left - right;
    const order = column.isNumber ? Number(a) - Number(b) : text(a).localeCompare(text(b), "en", { numeric: true });
    return sign * order || left - right;
  });
}

function sortBy(column) {
  if (table.sort === column.id) table.isDescending = !table.isDescending;
  else [table.sort, table.isDescending] = [column.id, Boolean(column.isFirstDescending)];
  changed();
}

function heading(column) {
  const order = table.sort !== column.id ? "none" : table.isDescending ? "descending" : "ascending";
  const arrow = { none: "", descending: "\u00a0▼", ascending: "\u00a0▲" }[order];
  const better = column.metric ? ARROWS[column.metric.higher] : "";
  const hint = better ? `${column.hint}; ${column.metric.higher ? "higher" : "lower"} is better` : column.hint;
  return element(
    "th",
    { scope: "col", "aria-sort": order, "data-column": column.id, class: column.isNumber ? "number" : null },
    element(
      "button",
      { type: "button", id: `sort ${column.id}`, title: hint, onclick: () => sortBy(column) },
      column.title,
      better ? element("span", { "aria-hidden": "true" }, `\u00a0${better}`) : null,
      element("span", { class: "order", "aria-hidden": "true" }, arrow),
    ),
  );
}

function badges(row) {
  const counts = new Map();
  for (const index of row.runs) counts.set(page.runs[index].state, (counts.get(page.runs[index].state) ?? 0) + 1);
  counts.delete("finished");
  return [...counts].map(([name, count]) => badge(name, row.runs.length === 1 ? name : `${count} ${name}`));
}

function badge(name, label = name) {
  const kind = ["failed", "killed"].includes(name) ? "bad" : name === "running" ? "busy" : "odd";
  return element("span", { class: `badge ${kind}` }, label);
}

function tableRow(index, shownColumns) {
  const row = page.rows[index];
  const isOn = !state.hidden.has(index);
  const isOpen = table.open.has(index);
  const flipOpen = () => {
    if (!table.open.delete(index)) table.open.add(index);
    keepFocus(drawTable);
  };
  return element(
    "tr",
    {
      "data-row": index,
      class: isOn ? null : "off",
      onclick: (event) => {
        if (!event.target.closest("button") && getSelection().isCollapsed) toggle(index, event.shiftKey);
      },
      onpointerenter: () => emphasise(index),
      onpointerleave: () => emphasise(-1),
    },
    element(
      "th",
      { scope: "row" },
      element(
        "span",
        { class: "first" },
        element(
          "button",
          {
            type: "button",
            id: `open-${index}`,
            class: "open",
            "aria-expanded": String(isOpen),
            "aria-label": `Runs of ${row.label}`,
            onclick: flipOpen,
          },
          isOpen ? "▾" : "▸",
        ),
        element(
          "button",
          {
            type: "button",
            id: `eye-${index}`,
            class: "eye",
            "aria-pressed": String(isOn),
            "aria-label": `Draw ${row.label}`,
            title: "Show or hide in the plots; with Shift: this one only",
            onclick: (event) => toggle(index, event.shiftKey),
          },
          swatch(index),
        ),
        element("span", { class: "name", title: row.label }, row.label),
        ...badges(row),
      ),
    ),
    ...shownColumns.map((column) => column.cell(row)),
  );
}

function runRow(row, index, place, shownColumns) {
  const run = page.runs[index];
  const total = run.total_steps > run.step ? ` of ${run.total_steps.toLocaleString("en")}` : "";
  const step = run.step === undefined ? "" : `step ${run.step.toLocaleString("en")}${total}`;
  const facts = [step, duration(run.seconds), run.device].filter(Boolean).join(" · ");
  return element(
    "tr",
    { class: "run" },
    element(
      "th",
      { scope: "row" },
      element(
        "span",
        { class: "first" },
        run.seed === null ? run.name : `seed ${text(run.seed)}`,
        run.state === "finished" ? "" : badge(run.state),
      ),
      element("span", { class: "facts", title: run.command }, facts),
      element("span", { class: "facts", title: run.source }, run.source),
      run.error ? element("span", { class: "facts warn" }, run.error) : null,
    ),
    ...shownColumns.map((column) => {
      if (column.metric) {
        const value = row.cells[column.metric.name]?.by_run[place];
        return element(
          "td",
          { class: "number" },
          value === null || value === undefined ? "" : fixed(value, placesOf.get(column.metric.name)),
        );
      }
      return element("td", { class: "number" }, column.id === "seconds" ? duration(run.seconds_per_step) : "");
    }),
  );
}

function floorRows(shownColumns, kind) {
  const names = [...new Set(page.metrics.flatMap((metric) => Object.keys(metric[kind])))];
  return names.map((name) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("span", { class: "first" }, element("span", { class: "name" }, name))),
      ...shownColumns.map((column) => {
        const floor = column.metric?.[kind][name];
        return element(
          "td",
          { class: "number" },
          floor === undefined || floor === null ? "" : fixed(floor, placesOf.get(column.metric.name)),
        );
      }),
    ),
  );
}

function drawTable() {
  hideTip();
  const shownColumns = columns.filter((column) => table.columns.has(column.id));
  const rows = sorted(filtered());
  const body = element("tbody", { class: "rows" });
  for (const index of rows) {
    body.append(tableRow(index, shownColumns));
    const row = page.rows[index];
    if (table.open.has(index)) body.append(...row.runs.map((run, place) => runRow(row, run, place, shownColumns)));
  }
  if (!rows.length)
    body.append(
      element(
        "tr",
        {},
        element(
          "td",
          { colspan: shownColumns.length + 1, class: "quiet" },
          page.rows.length ? "No row has all these words." : "No runs.",
        ),
      ),
    );
  const floors = table.withFloors ? floorRows(shownColumns, "floors") : [];
  const oracles = table.withFloors ? floorRows(shownColumns, "oracles") : [];
  const beside = (heading, rows) =>
    rows.length
      ? element(
          "tbody",
          { class: "floors" },
          element(
            "tr",
            {},
            element(
              "th",
              { scope: "rowgroup", colspan: shownColumns.length + 1 },
              element("span", { class: "first" }, heading),
            ),
          ),
          ...rows,
        )
      : null;
  const scrolled = byId("table").scrollLeft;
  byId("table").replaceChildren(
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, heading(byLabel), ...shownColumns.map(heading))),
      body,
      beside("Floors: what trivial answers score", floors),
      beside("Oracles: they know the simulator, and are no trivial answers", oracles),
    ),
  );
  byId("table").scrollLeft = scrolled;
  const total = page.rows.length;
  const drawn = shown().length;
  byId("shown").textContent =
    rows.length < total
      ? `${drawn} of ${plural(total, "row")} drawn, ${rows.length} match`
      : `${drawn} of ${plural(total, "row")} drawn`;
}

function startTable() {
  const hasFloors = page.metrics.some((metric) => Object.keys(references(metric)).length);
  const redraw = (name) => (isOn) => {
    table[name] = isOn;
    drawTable();
  };
  byId("table-controls").append(
    menu(
      "Columns",
      "columns",
      columns.map((column) => [
        column.id,
        column.metric
          ? `${column.title} (${column.hint})`
          : column.hint && column.id.startsWith("key ")
            ? column.hint
            : column.title,
      ]),
      table.columns,
      drawTable,
    ),
    check(
      "intervals",
      "intervals",
      table.withIntervals,
      redraw("withIntervals"),
      "95 % interval (t) of the mean",
    ),
    hasFloors ? check("floors", "floors", table.withFloors, redraw("withFloors")) : "",
  );
  const hasSpread = page.rows.some((row) => Object.values(row.cells).some((cell) => cell.std !== null));
  byId("table-legend").textContent =
    (hasSpread
      ? "Mean ± standard deviation (number of seeds). " +
        "Bold on colour: better than every other row of its column (Welch’s t-tests, two-sided, p < 0.05 divided by the " +
        "number of other rows: Bonferroni). "
      : "") +
    "Click a heading to sort, a row to show or hide it in the plots, with Shift to draw only it, ▸ to see its runs.";
  byId("filter").addEventListener("input", () => {
    state.filter = byId("filter").value;
    changed();
  });
  byId("show-all").addEventListener("click", () => {
    for (const row of filtered()) state.hidden.delete(row);
    changed();
  });
  byId("show-none").addEventListener("click", () => {
    for (const row of filtered()) state.hidden.add(row);
    changed();
  });
  onChange(drawTable);
}
