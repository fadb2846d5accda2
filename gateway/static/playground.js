// The newcomer's playground: one response at a time over /v1/responses, resumed by sequence number when the line breaks.

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const KEY_DELAY_MS = 300;
const RETRY_MS = [250, 500, 1000, 2000, 4000];
const ENDS = new Set(["response.completed", "response.incomplete", "response.failed", "response.cancelled"]);
const PACE_BARS = 120;

let socket = null;
let answer = null; // the response that is on its way

// --- the key and the models ---------------------------------------------------------------------------------------

function takeKeyFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) history.replaceState(null, "", location.pathname); // so that it is not shared with the address
  page.key.value = given ?? sessionStorage.getItem("headrace-key") ?? "";
}

async function loadModels() {
  const key = page.key.value.trim();
  page.run.disabled = page.model.disabled = true;
  if (!key) return;
  const reply = await fetch("/v1/models", { headers: { authorization: `Bearer ${key}` } });
  if (key !== page.key.value.trim()) return; // it was changed meanwhile
  const body = await reply.json();
  if (!reply.ok) return tell(body.error.message);
  tell("");
  sessionStorage.setItem("headrace-key", key);
  page.model.replaceChildren(...body.data.map((model) => new Option(model.id, model.id)));
  page.run.disabled = page.model.disabled = body.data.length === 0;
  if (body.data.length === 0) tell("No model is registered yet.");
}

// --- the socket ---------------------------------------------------------------------------------------------------

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const offered = ["headrace.v1", `headrace.api-key.${page.key.value.trim()}`];
  const opened = new WebSocket(`${scheme}//${location.host}/v1/responses`, offered);
  socket = opened;
  opened.onopen = () => {
    show("open", "connected");
    if (answer) answer.retries = 0;
    if (answer?.id) say({ type: "response.resume", response_id: answer.id, starting_after: answer.last });
    else if (answer) say({ type: "response.create", ...answer.request });
  };
  opened.onmessage = (message) => hear(JSON.parse(message.data));
  opened.onclose = (closed) => {
    if (opened !== socket) return;
    socket = null;
    if (!answer) return show("idle", "not connected");
    if (!answer.id) return end(`The line broke before the request was accepted (${closed.code}).`);
    if (answer.retries >= RETRY_MS.length) return end("The gateway does not answer any more.");
    show("lost", "reconnecting");
    setTimeout(connect, RETRY_MS[answer.retries++]);
  };
}

function say(message) {
  socket.send(JSON.stringify(message));
}

// --- one answer ---------------------------------------------------------------------------------------------------

function ask(event) {
  event.preventDefault();
  const request = { model: page.model.value, input: page.prompt.value };
  if (page.limit.value) request.max_output_tokens = Number(page.limit.value);
  if (page.temperature.value) request.temperature = Number(page.temperature.value);
  answer = { request, id: null, last: -1, asked: performance.now(), first: null, tokens: 0, resumes: 0, retries: 0, gaps: [] };
  tell("");
  page.text.replaceChildren();
  page.text.dataset.state = "waiting";
  page.events.replaceChildren();
  page.pace.replaceChildren();
  for (const id of ["ttft", "rate", "count", "total", "resumes", "event-count"]) page[id].textContent = id === "event-count" ? "" : "–";
  page.run.disabled = true;
  if (socket?.readyState === WebSocket.OPEN) say({ type: "response.create", ...request });
  else connect();
}

function hear(event) {
  list(event);
  if (event.type === "error") return answer?.id ? tell(event.error.message) : end(event.error.message);
  if (!answer || event.sequence_number === undefined) return;
  if (event.sequence_number !== answer.last + 1) return end(`Event ${answer.last + 1} is missing: this must not happen.`);
  answer.id = event.response_id;
  answer.last = event.sequence_number;
  page.cancel.disabled = page.cut.disabled = false; // from now on there is something to cancel and to resume
  if (event.type === "response.output_text.delta") take(event.delta);
  else if (ENDS.has(event.type)) end(event.response.error?.message ?? "", event.response);
}

function take(text) {
  const now = performance.now();
  if (answer.first === null) {
    answer.first = now;
    page.ttft.textContent = milliseconds(now - answer.asked);
  } else {
    answer.gaps.push(now - answer.before);
    drawPace();
  }
  answer.before = now;
  answer.tokens += 1;
  page.text.dataset.state = "streaming";
  const piece = document.createElement("span");
  piece.textContent = text;
  page.text.append(piece);
  page.count.textContent = answer.tokens;
  const seconds = (now - answer.first) / 1000;
  if (answer.tokens > 1 && seconds > 0) page.rate.textContent = ((answer.tokens - 1) / seconds).toFixed(1);
}

function cutTheLine() {
  answer.resumes += 1;
  page.resumes.textContent = answer.resumes;
  answer.gaps.push(null);
  list({ type: "line cut here", sequence_number: undefined });
  socket?.close(4000);
}

function end(problem, response) {
  tell(problem);
  if (response?.usage) page.count.textContent = response.usage.output_tokens;
  if (answer) page.total.textContent = milliseconds(performance.now() - answer.asked);
  page.text.dataset.state = page.text.childElementCount ? "done" : "empty";
  answer = null;
  page.run.disabled = false;
  page.cancel.disabled = page.cut.disabled = true;
}

// --- showing ------------------------------------------------------------------------------------------------------

function show(state, text) {
  page.connection.dataset.state = state;
  page.connection.textContent = text;
}

function tell(problem) {
  page.problem.textContent = problem;
  page.problem.hidden = !problem;
}

function milliseconds(value) {
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`;
}

function list(event) {
  const row = document.createElement("li");
  const at = answer ? milliseconds(performance.now() - answer.asked) : "";
  const cells = [event.sequence_number ?? "", at, event.type, event.delta ? JSON.stringify(event.delta) : ""];
  row.append(...cells.map((cell) => Object.assign(document.createElement("span"), { textContent: cell })));
  page.events.append(row);
  page["event-count"].textContent = page.events.childElementCount;
}

// One bar for each token: the longer it took to come, the higher. A cut is a red mark.
function drawPace() {
  const gaps = answer.gaps.slice(-PACE_BARS);
  const most = Math.max(20, ...gaps);
  const width = 600 / PACE_BARS;
  page.pace.replaceChildren(
    ...gaps.map((gap, index) => {
      const height = gap === null ? 40 : Math.max(2, (gap / most) * 40);
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const shape = { x: index * width, y: 40 - height, width: width * 0.7, height };
      for (const [name, value] of Object.entries(shape)) bar.setAttribute(name, value);
      if (gap === null) bar.setAttribute("class", "cut");
      return bar;
    }),
  );
}

let keyTimer = 0;
page.key.addEventListener("input", () => {
  clearTimeout(keyTimer);
  keyTimer = setTimeout(loadModels, KEY_DELAY_MS);
  socket?.close(); // it speaks for the key that was
});
page.ask.addEventListener("submit", ask);
page.cancel.addEventListener("click", () => answer?.id && socket?.readyState === WebSocket.OPEN && say({ type: "response.cancel", response_id: answer.id }));
page.cut.addEventListener("click", cutTheLine);
page.prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) page.ask.requestSubmit();
});
takeKeyFromAddress();
loadModels();
