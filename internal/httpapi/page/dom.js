// Elements are made and filled here only, and text only ever as text.

const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

// tell shows a sentence, or hides the place for it.
function tell(node, sentence) {
  node.textContent = sentence ?? "";
  node.hidden = !sentence;
}

const facts = (pairs) => pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
  .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);

const at = (text) => (text ? Date.parse(text) : null);

const sameDay = (a, b) => new Date(a).toDateString() === new Date(b).toDateString();

function clock(time) {
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  if (!sameDay(time, Date.now())) Object.assign(options, { year: "numeric", month: "short", day: "numeric" });
  return new Date(time).toLocaleString(undefined, options);
}

// span says how long something took, in the unit that fits.
function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60e3) return `${(ms / 1000).toFixed(ms < 10e3 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60e3);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60e3) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const count = (n, one, many) => `${n.toLocaleString()} ${n === 1 ? one : many}`;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
