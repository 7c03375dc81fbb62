// A thread's tasks, oldest first. All of them are kept, only those in view are in the document.

const pageSize = 100, mostAtOnce = 5000;

const thread = {
  id: "", tasks: [], byId: new Map(), cursor: "", more: false,
  rows: [], active: -1, turn: 0,
};

const historyPath = (id, cursor) =>
  `agent/threads/${part(id)}/history?limit=${pageSize}${cursor ? `&cursor=${part(cursor)}` : ""}`;

// openThread loads a thread from its beginning.
async function openThread(id) {
  Object.assign(thread, { id, tasks: [], byId: new Map(), cursor: "", more: false, rows: [], active: -1 });
  byId("thread-id").value = id;
  tell(byId("thread-fault"), null);
  byId("timeline").hidden = true;
  return loadPages(++thread.turn);
}

// refreshThread looks for what is new at the thread's end.
const refreshThread = () => loadPages(++thread.turn);

// loadPages loads from the page at the cursor to the last one, or to the most that is shown at once.
async function loadPages(mine) {
  const stop = thread.tasks.length + mostAtOnce;
  do {
    const answer = await call(historyPath(thread.id, thread.cursor));
    if (mine !== thread.turn) return false;
    if (!answer.ok) {
      tell(byId("thread-fault"), answer.fault);
      return false;
    }
    tell(byId("thread-fault"), null);
    answer.body.tasks.forEach(keep);
    thread.more = answer.body.next_cursor !== null;
    if (thread.more) thread.cursor = answer.body.next_cursor;
    showThread();
  } while (thread.more && thread.tasks.length < stop);
  return true;
}

function keep(t) {
  const known = thread.byId.get(t.task_id);
  if (known) {
    Object.assign(known, t);
    return;
  }
  thread.byId.set(t.task_id, t);
  thread.tasks.push(t);
}

const kinds = {
  "": () => true,
  open: (t) => !ended(t),
  failed: (t) => t.status === "failed",
  retried: (t) => t.attempts.length > 1,
};

function showThread() {
  byId("timeline").hidden = false;
  byId("thread-more").hidden = !thread.more;
  const of = (status) => thread.tasks.filter((t) => t.status === status).length;
  const parts = ["succeeded", "failed", "retrying", "running", "queued"].map((s) => [s, of(s)]).filter(([, n]) => n > 0);
  byId("thread-sum").textContent =
    `${count(thread.tasks.length, "task", "tasks")}${thread.more ? " so far" : ""}: ${parts.map(([s, n]) => `${n.toLocaleString()} ${s}`).join(", ")}`;
  const picked = thread.rows[thread.active];
  thread.rows = thread.tasks.filter(kinds[byId("filter").value]);
  thread.active = thread.rows.indexOf(picked);
  showOverview();
  showRows();
  showFigure();
}

// showOverview draws every task as a line where it was submitted; there may be thousands.
function showOverview() {
  const place = byId("overview"), width = Math.max(200, place.clientWidth), times = thread.tasks.map(began);
  const first = Math.min(...times), last = Math.max(first + 1000, ...thread.tasks.map(lastMoment));
  const lines = { succeeded: "", failed: "", open: "" };
  thread.tasks.forEach((t, i) => {
    const x = (((times[i] - first) / (last - first)) * (width - 2) + 1).toFixed(1);
    lines[ended(t) ? t.status : "open"] += `M${x} ${t.status === "failed" ? 0 : 8}V26`;
  });
  const apart = sameDay(first, last) ? clock : (time) => new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  place.replaceChildren(draw("svg", { width, height: 42, role: "img", "aria-label": `When the tasks were submitted, ${apart(first)} to ${apart(last)}` },
    draw("path", { class: "grid", d: `M0 26.5H${width}` }),
    ["succeeded", "open", "failed"].map((s) => draw("path", { class: `tick-${s}`, d: lines[s] })),
    draw("text", { x: 0, y: 39 }, apart(first)),
    draw("text", { x: width, y: 39, "text-anchor": "end" }, apart(last))));
}

const rowHeight = () => (matchMedia("(max-width: 40rem)").matches ? 60 : 40);

function scaleOf() {
  const chosen = Number(byId("scale").value) * 1000;
  return chosen || thread.rows.reduce((most, t) => Math.max(most, took(t)), 1) * 1.02;
}

function showRows() {
  const rows = byId("rows"), all = byId("rows-all"), height = rowHeight(), total = thread.rows.length;
  byId("rows-none").hidden = total > 0;
  rows.hidden = total === 0;
  all.style.height = `${total * height}px`;
  for (const part of [rows, byId("axis").parentNode]) part.classList.toggle("short", total * height < 400);
  const from = Math.max(0, Math.floor(rows.scrollTop / height) - 6);
  const to = Math.min(total, Math.ceil((rows.scrollTop + rows.clientHeight) / height) + 6);
  const width = Math.max(60, byId("axis").clientWidth || rows.clientWidth - 24), scale = scaleOf();
  byId("axis").replaceChildren(draw("svg", { width, height: 18 }, axis(scale, width, 18)));
  const list = [];
  for (let i = from; i < to; i++) list.push(row(thread.rows[i], i, { width, scale, height }));
  all.replaceChildren(...list);
  if (thread.active >= from && thread.active < to) rows.setAttribute("aria-activedescendant", `row-${thread.active}`);
  else rows.removeAttribute("aria-activedescendant");
}

function row(t, i, { width, scale, height }) {
  const node = make("div", {
    class: `row${i === thread.active ? " active" : ""}`, id: `row-${i}`, role: "option",
    "aria-selected": t.task_id === shown ? "true" : "false", "aria-setsize": thread.rows.length, "aria-posinset": i + 1,
  },
  make("span", {}, make("span", { class: "when" }, clock(began(t))), " ", make("span", { class: "kind" }, t.task || "unreadable")),
  make("span", { class: "bar" }, draw("svg", { width, height: 16, "aria-hidden": "true" }, bars(t, { width, scale, top: 1, height: 14 }))),
  make("span", {}, make("span", { class: `state ${t.status}` }, `${marks[t.status] ?? ""} ${t.status}`),
    t.attempts.length > 1 ? make("span", { class: "kind" }, ` ×${t.attempts.length}`) : null));
  node.style.top = `${i * height}px`;
  return node;
}

// moveTo makes a row the active one and brings it into view.
function moveTo(i) {
  if (thread.rows.length === 0) return;
  thread.active = Math.min(thread.rows.length - 1, Math.max(0, i));
  const rows = byId("rows"), height = rowHeight(), top = thread.active * height;
  if (top < rows.scrollTop) rows.scrollTop = top;
  else if (top + height > rows.scrollTop + rows.clientHeight) rows.scrollTop = top + height - rows.clientHeight;
  showRows();
}

function pick(i) {
  const t = thread.rows[i];
  if (t) show(t.task_id);
}

// show shows a task of the open thread, also one whose row is filtered out or not loaded.
function show(id) {
  const i = thread.rows.findIndex((t) => t.task_id === id);
  if (i >= 0) moveTo(i);
  follow(id);
  showRows();
}

// follow watches a task of the open thread, and keeps the thread up to date with it.
function follow(id) {
  shown = id;
  remember(id);
  return watch(id, async (task) => {
    if (task.thread_id !== thread.id) return;
    const known = thread.byId.get(id);
    if (!known || known.status !== task.status || known.attempts.length !== task.attempts) await refreshTask(task);
    showRows();
  });
}

// refreshTask gets a task's attempts anew. The last page has those of most tasks that still change; an older one takes
// the way over all pages.
async function refreshTask(task) {
  await refreshThread();
  const known = thread.byId.get(task.task_id);
  if (known && (known.status !== task.status || known.attempts.length !== task.attempts)) {
    thread.cursor = "";
    await refreshThread();
  }
}

function wireTimeline() {
  const rows = byId("rows"), page = () => Math.max(1, Math.floor(rows.clientHeight / rowHeight()) - 1);
  const keys = {
    ArrowDown: () => moveTo(thread.active + 1), ArrowUp: () => moveTo(thread.active - 1),
    PageDown: () => moveTo(thread.active + page()), PageUp: () => moveTo(thread.active - page()),
    Home: () => moveTo(0), End: () => moveTo(thread.rows.length - 1),
    Enter: () => pick(thread.active), " ": () => pick(thread.active),
  };
  rows.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  rows.addEventListener("focus", () => {
    if (thread.active < 0) moveTo(thread.rows.findIndex((t) => t.task_id === shown));
  });
  rows.addEventListener("click", (event) => {
    const node = event.target.closest(".row");
    if (node) pick(Number(node.id.slice("row-".length)));
  });
  let drawn = false; // one drawing a frame, however fast it scrolls
  const soon = (what) => () => {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => { drawn = false; what(); });
  };
  rows.addEventListener("scroll", soon(showRows), { passive: true });
  addEventListener("resize", soon(() => { if (thread.tasks.length) showThread(); }));
  byId("filter").addEventListener("change", () => { rows.scrollTop = 0; showThread(); });
  byId("scale").addEventListener("change", showRows);
  byId("thread-more").addEventListener("click", refreshThread);
  byId("thread-again").addEventListener("click", () => openThread(thread.id));
  byId("thread").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = byId("thread-id").value.trim();
    if (id === "") return tell(byId("thread-fault"), "Which thread? Its id was in the answer to whatever began it.");
    remember(id);
    openThread(id);
  });
  // What is under way grows in the drawing.
  setInterval(() => {
    if (document.visibilityState !== "visible" || !thread.tasks.some((t) => !ended(t))) return;
    showRows();
    showFigure();
  }, 1000);
}
