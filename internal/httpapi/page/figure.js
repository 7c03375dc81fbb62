// What happened to a task, drawn to scale: x is the time since it was submitted.

const ended = (t) => t.status === "succeeded" || t.status === "failed";

// lastMoment is where a task's drawing ends, in ms since the epoch.
function lastMoment(t) {
  const known = [at(t.submitted_at), at(t.updated_at), at(t.next_retry_at), ...t.attempts.map((a) => at(a.ended_at) ?? at(a.started_at))];
  if (!ended(t)) known.push(Date.now());
  return Math.max(...known.filter((time) => time !== null));
}

const began = (t) => at(t.submitted_at) ?? at(t.attempts[0]?.started_at) ?? at(t.updated_at) ?? 0;

const took = (t) => Math.max(1, lastMoment(t) - began(t));

function outcome(t, attempt) {
  if (attempt.error?.code === "CONTINUED") return "going";
  if (attempt.error?.code === "INTERRUPTED" && !attempt.ended_at) return "cut";
  if (attempt.error) return "bad";
  return attempt.ended_at ? "ok" : "now";
}

const outcomeWords = { going: "goes on at the next delivery", cut: "cut off", bad: "failed", ok: "succeeded", now: "running" };

// attemptEnd is when an attempt ended as far as is known: one that was cut off has left nothing but its start.
function attemptEnd(t, i) {
  const attempt = t.attempts[i];
  if (attempt.ended_at) return at(attempt.ended_at);
  if (outcome(t, attempt) === "now") return ended(t) ? lastMoment(t) : Date.now();
  return at(t.attempts[i + 1]?.started_at) ?? lastMoment(t);
}

// bars draws a task's waits, attempts and retries into a strip of the given height.
function bars(t, { width, scale, top, height, numbers }) {
  const start = began(t), x = (time) => Math.min(width, Math.max(0, ((time - start) / scale) * width));
  const middle = top + height / 2, shapes = [];
  let from = start;
  const wait = (until, kind) => {
    if (until === null || x(until) - x(from) < 1) return;
    shapes.push(kind === "pause"
      ? draw("path", { class: "pause", d: `M${x(from)} ${middle}H${x(until)}` })
      : draw("rect", { class: "wait", x: x(from), y: middle - 2, width: x(until) - x(from), height: 4 }));
  };
  t.attempts.forEach((attempt, i) => {
    const begin = at(attempt.started_at), end = attemptEnd(t, i), kind = outcome(t, attempt);
    wait(begin, i === 0 ? "wait" : "pause");
    const size = Math.max(3, x(end) - x(begin));
    shapes.push(draw("rect", { class: kind, x: Math.min(x(begin), width - 3), y: top, width: size, height, rx: 2 },
      draw("title", {}, `Attempt ${attempt.attempt}: ${outcomeWords[kind]}, ${span(end - begin)}`)));
    if (numbers && size > 14) {
      shapes.push(draw("text", { class: "inside", x: x(begin) + size / 2, y: middle + 4, "text-anchor": "middle" }, String(attempt.attempt)));
    }
    from = end;
  });
  if (t.next_retry_at && !ended(t)) {
    wait(at(t.next_retry_at), "pause");
    shapes.push(draw("circle", { class: "next", cx: Math.min(x(at(t.next_retry_at)), width - 5), cy: middle, r: 4 },
      draw("title", {}, `Next try at ${clock(at(t.next_retry_at))}`)));
  } else if (!ended(t) && t.status !== "running") {
    wait(Date.now(), "wait");
  }
  if (lastMoment(t) - start > scale * 1.001) {
    shapes.push(draw("path", { class: "beyond", d: `M${width - 7} ${top}L${width} ${middle}L${width - 7} ${top + height}Z` }, draw("title", {}, "goes on beyond the scale")));
  }
  return shapes;
}

// ticks are round distances that divide scale (ms) into a handful of parts.
function ticks(scale, width) {
  const most = Math.max(2, Math.floor(width / 90));
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 2 * 3600e3, 6 * 3600e3, 12 * 3600e3, 24 * 3600e3];
  const step = steps.find((s) => scale / s <= most) ?? Math.ceil(scale / most / 86400e3) * 86400e3;
  return Array.from({ length: Math.floor(scale / step) + 1 }, (_, i) => i * step);
}

const tickLabel = (ms) => {
  if (ms === 0) return "0";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60e3) return `${ms / 1000} s`;
  if (ms < 3600e3) return `${ms / 60e3} min`;
  return `${ms / 3600e3} h`;
};

function axis(scale, width, height) {
  return ticks(scale, width).flatMap((ms) => {
    const x = (ms / scale) * width;
    return [
      draw("path", { class: "grid", d: `M${x} 14V${height}` }),
      draw("text", { x, y: 11, "text-anchor": ms === 0 ? "start" : x > width - 24 ? "end" : "middle" }, tickLabel(ms)),
    ];
  });
}

// figure draws one task with its steps; checkpoints are those of them that are loaded.
function figure(t, checkpoints, width) {
  const scale = took(t) * 1.02, start = began(t), height = checkpoints.length ? 74 : 48;
  const x = (time) => Math.max(0, ((time - start) / scale) * width);
  const steps = checkpoints.flatMap((c, i) => {
    const end = at(c.updated_at), left = x(end - c.duration_ms), size = Math.max(3, x(end) - left);
    return [
      draw("rect", { class: "step", x: left, y: 52, width: size, height: 16, rx: 2 },
        draw("title", {}, `Step ${c.step}: ${span(c.duration_ms)}`)),
      size > 14 ? draw("text", { class: "inside", x: left + size / 2, y: 64, "text-anchor": "middle" }, String(i + 1)) : null,
    ];
  });
  const label = `Attempts${checkpoints.length ? " and steps" : ""} over ${span(took(t))} since it was submitted. The tables below say the same.`;
  return draw("svg", { width, height, role: "img", "aria-label": label },
    axis(scale, width, height), bars(t, { width, scale, top: 22, height: 18, numbers: true }), steps);
}
