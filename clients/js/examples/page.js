// One answer at a time, streamed into the page. Kill the gateway in the middle: the answer waits for it and goes on.

import { HeadraceClient } from "../dist/index.js";

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((element) => [element.id, element]));
const form = page.ask.elements;
let client = null;
let response = null;

// #url=…&key=…&model=…&limit=…&prompt=… fills the form in; it is taken out of the address, which may be shared.
for (const [name, value] of new URLSearchParams(location.hash.slice(1))) if (form[name]) form[name].value = value;
history.replaceState(null, "", location.pathname);

function connected(state) {
  page.connection.textContent = page.connection.dataset.state = state;
  if (state === "open") page.connections.textContent = Number(page.connections.textContent) + 1;
}

async function ask() {
  client?.close();
  page.connections.textContent = 0;
  client = new HeadraceClient({ url: form.url.value, apiKey: form.key.value, onConnection: connected });
  response = client.create({
    model: form.model.value,
    input: form.prompt.value,
    max_output_tokens: Number(form.limit.value),
    temperature: 0,
  });
  const numbers = [];
  page.answer.textContent = page.numbers.textContent = "";
  page.status.textContent = "asked";
  for await (const event of response) {
    numbers.push(event.sequence_number);
    page.count.textContent = numbers.length;
    page.numbers.textContent = numbers.join(" ");
    if (event.type === "response.output_text.delta") page.answer.append(event.delta);
    if ("response" in event) page.status.textContent = event.response.error?.message ?? event.response.status;
  }
}

page.ask.addEventListener("submit", async (submitted) => {
  submitted.preventDefault();
  page.run.disabled = true;
  page.cancel.disabled = false;
  try {
    await ask();
  } catch (error) {
    page.status.textContent = `${error.name}: ${error.message}`;
  } finally {
    page.run.disabled = false;
    page.cancel.disabled = true;
  }
});
page.cancel.addEventListener("click", () => response?.cancel());
