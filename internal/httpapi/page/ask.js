// Asking.

async function ask() {
  const question = byId("question"), place = byId("ask-fault");
  if (question.value.trim() === "") {
    question.setAttribute("aria-invalid", "true");
    tell(place, "What is the question?");
    question.focus();
    return;
  }
  question.removeAttribute("aria-invalid");
  const body = { question: question.value }, into = byId("ask-thread").value.trim();
  if (into !== "") body.thread_id = into;

  byId("ask-send").disabled = true;
  const answer = await submit("agent/query", body);
  byId("ask-send").disabled = false;
  if (!answer.ok) {
    tell(place, answer.fault);
    return;
  }
  tell(place, null);
  byId("ask-thread").value = answer.body.thread_id;
  question.select();
  await submitted(answer.body);
}

// submitted shows a task that was just taken in, and follows it.
async function submitted({ task_id: id, thread_id: into }) {
  shown = id;
  if (thread.id === into && thread.tasks.length) await refreshThread();
  else await openThread(into);
  moveTo(thread.rows.findIndex((t) => t.task_id === id));
  await follow(id);
}

function wireAsk() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!byId("ask-send").disabled) ask();
  });
  byId("question").addEventListener("keydown", (event) => {
    // Enter that ends the composing of a character is not meant for the form.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
}
