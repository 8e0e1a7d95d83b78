// The head of the page, and the first drawing.

function startHeader() {
  byId("title").textContent = page.title;
  const made = new Date(page.made);
  const seeds = Math.max(0, ...page.rows.map((row) => row.runs.length));
  byId("facts").textContent = [
    `${plural(page.runs.length, "run")} in ${plural(page.rows.length, "row")}`,
    seeds > 1 ? `up to ${seeds} seeds a row` : "",
    `made ${made.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })}`,
    `slotbench ${page.version}`,
  ]
    .filter(Boolean)
    .join(" · ");
  if (page.command) byId("command").append(element("code", { class: "command" }, page.command));
  if (!page.notes.length) return;
  const list = element("ul", {}, ...page.notes.map((note) => element("li", {}, note)));
  byId("notes").append(
    page.notes.length < 4
      ? list
      : element("details", {}, element("summary", {}, plural(page.notes.length, "note")), list),
  );
}

startHeader();
startTable();
startCurves();
startAxis();
startSettings();
startMedia();
byId("footer").textContent = "Everything on this page is in this one file; it asks no server for anything.";
changed();

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  changed();
});
