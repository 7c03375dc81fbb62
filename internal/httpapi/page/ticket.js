// Tickets: how one stands, and a change of it.

async function lookUp(id) {
  const place = byId("ticket-fault"), answer = await call(`agent/tickets/${part(id)}`);
  // A 404 that names a field says that no ticket can have such an id.
  const unborn = answer.status === 404 && answer.body?.code === "NOT_FOUND" && answer.body.errors.length === 0;
  byId("ticket-move").hidden = !answer.ok && !unborn;
  byId("ticket-facts").hidden = !answer.ok;
  if (answer.ok) {
    const t = answer.body;
    byId("ticket-facts").replaceChildren(...facts([
      ["Ticket", t.ticket_id], ["Status", t.status], ["Version", String(t.version)], ["Changed", t.updated_at && clock(at(t.updated_at))],
    ]));
  }
  tell(place, answer.ok ? null : unborn ? `${answer.fault} Moving it makes it.` : answer.fault);
  return answer;
}

function ticketId() {
  const id = byId("ticket-id").value.trim();
  if (id === "") {
    tell(byId("ticket-fault"), "Which ticket?");
    byId("ticket-id").focus();
  }
  return id;
}

async function move(id, status) {
  byId("ticket-send").disabled = true;
  const answer = await submit(`agent/tickets/${part(id)}`, { status });
  byId("ticket-send").disabled = false;
  if (!answer.ok) {
    tell(byId("ticket-fault"), answer.fault);
    return;
  }
  tell(byId("ticket-fault"), null);
  await submitted(answer.body);
  if (shown === answer.body.task_id && shownTask?.status === "succeeded" && byId("ticket-id").value.trim() === id) await lookUp(id);
}

function wireTicket() {
  byId("ticket").addEventListener("submit", async (event) => {
    event.preventDefault();
    const id = ticketId();
    if (id === "") return;
    const answer = await lookUp(id);
    if (answer.ok) {
      remember(`ticket-${id}`);
      openThread(`ticket-${id}`);
    }
  });
  byId("ticket-move").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = ticketId();
    if (id !== "" && !byId("ticket-send").disabled) move(id, byId("ticket-status").value);
  });
}
