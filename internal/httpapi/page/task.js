// The task that is looked at: where it stands, why it failed, what it answered.

const advice = {
  MALFORMED_MESSAGE: "Whoever sends these messages has to send JSON as the README describes it. Sent again as it is, the message fails again.",
  UNKNOWN_TASK: "Deploy a worker that knows this type of task, then move the message back; or mend whoever sends it.",
  SNS_TOPIC_NOT_ALLOWED: "Allow the topic in the worker's settings if it may hand in tasks, then move the message back.",
  INVALID_FIELD: "Submit the task again with the named fields mended. Sent again as it is, the message fails again.",
  PANIC: "The task type's code has a fault: the worker's log has the stack. Mend it, deploy, then move the message back.",
  DEADLINE_EXCEEDED: "The work does not fit the worker's timeout. Give it more time or divide it into steps, then move the message back.",
  INTERRUPTED: "The worker died in the middle of it. See its log for memory and crashes, then move the message back.",
  RUN_TOO_LONG: "The run takes longer than all deliveries of a message together. Its steps are kept: moved back, it goes on after them.",
  TOKEN_LIMIT: "The task has used up its tokens. Raise the limit, or ask for less.",
  STATE_TOO_LARGE: "A step leaves more behind than one checkpoint holds. The task type has to keep less.",
  STEPS_CHANGED: "The task began under other code. Submit it again, or deploy the code under which it began and move the message back.",
  SUBMIT_FAILED: "It never reached the queue, and is in no dead-letter queue. Submit it again.",
  MESSAGE_LOST: "No message is left of it: it expired, was purged, or was never sent. Submit it again; its finished steps are kept in the thread.",
  DEAD_LETTERED: "It never reached a worker. See that the worker runs and may read the queue, then move the message back.",
  TICKET_CONFLICT: "The ticket kept changing under the update. Move the message back when it is quieter.",
  ILLEGAL_TRANSITION: "The ticket cannot go there from where it is. Move it through the statuses between, then submit the change again.",
  VERSION_MISMATCH: "The ticket has changed since it was read. Look it up and submit the change again.",
};

// Codes of tasks that have no message in a dead-letter queue.
const withoutMessage = ["SUBMIT_FAILED", "MESSAGE_LOST"];

const marks = { queued: "…", running: "▸", retrying: "↻", succeeded: "✓", failed: "✕", dead: "☠" };

let shown = null; // the task's id
let shownTask = null; // as the API last showed it
let turn = 0; // a newer watch ends an older one
const checkpoints = new Map(); // task id → its steps' checkpoints

// watch follows a task to its end, and tells changed about every answer.
async function watch(id, changed) {
  const mine = ++turn;
  let wait = 0, silent = false;
  for (let first = true; ; first = false) {
    const asked = performance.now();
    const answer = await call(`agent/tasks/${part(id)}?wait=${wait}`);
    if (mine !== turn) return;
    if (answer.ok) {
      if (silent) tell(byId("thread-fault"), null);
      silent = false;
      await showTask(answer.body, answer.text, first);
      await changed?.(answer.body);
      if (mine !== turn || ended(answer.body)) return;
      wait = Math.min(20, wait === 0 ? 1 : wait * 2);
      if (performance.now() - asked < 300) await pause(300); // never a busy loop, whatever answers
    } else if (passing(answer.status)) {
      silent = true;
      tell(byId("thread-fault"), `${answer.fault} Trying again.`);
      await pause(2000);
    } else {
      if (shownTask?.task_id !== id) byId("task").hidden = true; // it is another one
      tell(byId("thread-fault"), answer.fault);
      return;
    }
    if (mine !== turn) return;
  }
}

async function showTask(task, text, first) {
  const news = shown !== task.task_id || shownTask?.status !== task.status;
  shown = task.task_id;
  shownTask = task;
  byId("task").hidden = false;
  byId("task-title").textContent = `Task ${task.task_id}`;
  showTrack(task);
  if (news) byId("task-live").textContent = `The task is ${task.status}${task.error ? `: ${task.error.message}` : ""}.`;
  showFailure(task);
  showAnswer(task);
  byId("task-facts").replaceChildren(...facts([
    ["Type", task.task], ["Submitted", task.submitted_at && clock(at(task.submitted_at))],
    ["Attempts", String(task.attempts)], ["Step", task.step],
    ["Tokens", task.tokens && task.tokens.input + task.tokens.output > 0 ? `${task.tokens.input} read, ${task.tokens.output} written` : null],
    ["Trace", task.trace_id || null],
    ["Next try", task.next_retry_at && !ended(task) ? clock(at(task.next_retry_at)) : null],
  ]));
  byId("task-text").textContent = text;
  if (first) byId("task-figure").replaceChildren();
  showFigure();
}

function showTrack(task) {
  const states = ["queued", "running"];
  if (task.status === "retrying") states.push("retrying");
  states.push(task.status === "failed" ? "failed" : "succeeded");
  if (task.status === "failed" && !withoutMessage.includes(task.error?.code)) states.push("dead");
  const here = task.status === "failed" ? states.length - 1 : states.indexOf(task.status);
  const words = { dead: "dead-letter queue" };
  byId("track").replaceChildren(...states.map((state, i) => make("li", {
    class: i < here ? (state === "failed" ? "past failed" : "past") : i === here ? `here ${state}` : "",
    "aria-current": i === here ? "step" : null,
  }, make("span", { class: "mark", "aria-hidden": "true" }, i < here && state !== "failed" ? "✓" : marks[state]), words[state] ?? state)));
}

function showFailure(task) {
  const box = byId("failure");
  box.hidden = !task.error;
  if (!task.error) return;
  const { code, message } = task.error, failed = task.status === "failed";
  box.classList.toggle("mild", !failed);
  const lines = [make("h3", {}, code), make("p", { dir: "auto" }, message)];
  if (failed) {
    lines.push(make("p", {}, make("strong", {}, "What to do: "),
      advice[code] ?? "Mend what the message says, then move the message back. If it cannot be mended, submit a better task."));
    if (!withoutMessage.includes(code)) {
      lines.push(make("p", {}, make("strong", {}, "Where it is: "),
        "SQS moves the message to the dead-letter queue, where it is kept for 14 days from when it was sent. How to move it back is in the README under ",
        make("code", {}, "agent-tasks-dlq-depth"), ", or ", make("code", {}, "agent-tasks-ordered-dlq-depth"),
        " for tickets and other ordered tasks; finished steps are not run again."));
    }
  } else if (!ended(task)) {
    lines.push(make("p", {}, "It will be tried again by itself."));
  }
  box.replaceChildren(...lines);
}

function showAnswer(task) {
  const box = byId("answer"), result = task.result;
  box.hidden = result === null || result === undefined;
  if (box.hidden) return;
  const parts = [];
  if (typeof result?.question === "string") parts.push(make("p", { class: "asked", dir: "auto" }, clip(result.question, 1000)));
  const text = typeof result === "string" ? result : typeof result?.answer === "string" ? result.answer : JSON.stringify(result, null, 2);
  parts.push(make("p", { class: "answer-text", dir: "auto", tabindex: text.length > 1500 ? 0 : null }, text));
  if (Array.isArray(result?.citations) && result.citations.length) {
    parts.push(make("ol", { class: "citations", "aria-label": "Sources" }, result.citations.map((c) =>
      make("li", { dir: "auto" }, [c.title, c.document && `${c.document}, passage ${c.passage}`].filter(Boolean).join(" · ")))));
  }
  box.replaceChildren(...parts);
}

const clip = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

const mostSteps = 100;

// loadSteps gets the checkpoints of the task's steps that are not there yet.
async function loadSteps(t) {
  const known = checkpoints.get(t.task_id) ?? [];
  checkpoints.set(t.task_id, known);
  for (const { n } of t.steps.slice(known.length, mostSteps)) {
    const answer = await call(`agent/threads/${part(t.thread_id)}/checkpoints/${n}`);
    if (!answer.ok || shown !== t.task_id) return;
    known.push({ ...answer.body, data: null, state: null });
  }
}

// showFigure draws the shown task as its thread's history has it.
async function showFigure() {
  const t = thread.byId.get(shown), place = byId("task-figure");
  if (!t) return;
  const width = Math.max(200, place.clientWidth), steps = checkpoints.get(t.task_id) ?? [];
  place.replaceChildren(
    ...(t.attempts.length ? [make("h3", {}, "To scale"), figure(t, steps, width), attemptTable(t)] : []),
    ...(steps.length ? [stepTable(steps)] : []),
  );
  if (t.steps.length > steps.length && steps.length < mostSteps && !t.loading) {
    t.loading = true;
    await loadSteps(t);
    t.loading = false;
    if (shown === t.task_id && (checkpoints.get(t.task_id)?.length ?? 0) > steps.length) showFigure();
  }
}

const heads = (...names) => make("thead", {}, make("tr", {}, names.map((name) => make("th", { scope: "col" }, name))));

function attemptTable(t) {
  return make("div", { class: "scroll" }, make("table", { "aria-label": "Attempts" }, heads("Attempt", "Began", "Took", "Ended at", "Outcome"),
    make("tbody", {}, t.attempts.map((a, i) => {
      const kind = outcome(t, a);
      return make("tr", {},
        make("td", { class: "number" }, String(a.attempt)),
        make("td", { class: "number" }, a.started_at ? clock(at(a.started_at)) : ""),
        make("td", { class: "number" }, kind === "cut" ? "?" : span(attemptEnd(t, i) - at(a.started_at))),
        make("td", {}, a.step), make("td", { dir: "auto" }, a.error && kind !== "going" ? `${a.error.code}: ${a.error.message}` : outcomeWords[kind]));
    }))));
}

function stepTable(steps) {
  return make("div", { class: "scroll" }, make("table", { "aria-label": "Steps" }, heads("Step", "Name", "Took", "In attempt", "Checkpoint"),
    make("tbody", {}, steps.map((c, i) => make("tr", {},
      make("td", { class: "number" }, String(i + 1)), make("td", {}, c.step), make("td", { class: "number" }, span(c.duration_ms)),
      make("td", { class: "number" }, String(c.attempt)), make("td", { class: "number" }, String(c.n)))))));
}
