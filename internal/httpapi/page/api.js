// Every call of the API goes through here. Addresses are relative, so that the page works below any path.

const part = encodeURIComponent;

// call gives {ok, status, body, text, fault}; fault is a sentence for a person. It never throws.
async function call(path, { method = "GET", body, headers = {} } = {}) {
  let response, text;
  try {
    response = await fetch(path, {
      method, body: body && JSON.stringify(body), cache: "no-store",
      headers: body ? { "Content-Type": "application/json", ...headers } : headers,
    });
    text = await response.text();
  } catch {
    return { ok: false, status: 0, fault: "The API does not answer. Does it still run?" };
  }
  let parsed = null;
  try {
    parsed = JSON.parse(text);
  } catch { /* said below */ }
  const answer = { ok: response.ok, status: response.status, body: parsed, text };
  if (response.ok && parsed !== null) {
    tell(byId("notice"), null);
    return answer;
  }
  return { ...answer, ok: false, fault: fault(response.status, parsed) };
}

function fault(status, body) {
  if (status === 401 || status === 403) {
    const sentence = "This API wants to know who is calling, with AWS credentials or a token, and this page has none to give: " +
      "it is for a chain on your own machine (make run). Call a deployed API with curl --aws-sigv4 or an SDK.";
    tell(byId("notice"), sentence);
    return sentence;
  }
  if (status === 429) return "Too many requests at once. Try again in a moment.";
  if (!body || typeof body !== "object") return `The API answered with ${status} and no explanation.`;
  const fields = (body.errors ?? []).map((e) => `${e.field} ${e.problem}.`);
  return fields.length ? fields.join("\n") : body.detail ?? body.message ?? `The API answered with ${status}.`;
}

// passing are the statuses after which the same request may well succeed.
const passing = (status) => status === 0 || status === 429 || status >= 500;

// newKey makes an Idempotency-Key. crypto.randomUUID is there on secure origins only.
const newKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");

// unanswered are the submissions that may not have arrived, by path.
const unanswered = new Map();

// submit sends a task. Whatever is sent again before there was an answer has the same key, and stays one task.
async function submit(path, body) {
  const text = JSON.stringify(body);
  if (unanswered.get(path)?.text !== text) unanswered.set(path, { text, key: newKey() });
  const answer = await call(path, { method: "POST", body, headers: { "Idempotency-Key": unanswered.get(path).key } });
  if (answer.ok) unanswered.delete(path);
  else if (passing(answer.status)) answer.fault += "\nSending it again gives the same task, not a second one.";
  return answer;
}
