// The adviser: every certified way to stay within the target, the recommended one first.

import { lines } from "./asking.js";
import { figure, short, upwards } from "./charts.js";

const byId = (id) => document.getElementById(id);
const NAMES = { "s-apes-first": "Largest coordinates", apes: "All coordinates", "one-bit": "One bit" };

function paragraph(text, name = "p") {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function change(way) {
  if (way.change === "cap") return `, budgets capped at ${short(way.cap)}`;
  if (way.change === "rounds") return `, in ${way.rounds.toLocaleString("en")} rounds`;
  if (way.change === "users") return `, with ${way.users.toLocaleString("en")} people`;
  return "";
}

export class Adviser {
  // setting() gives what the fields say; use(way) puts a way into them; errors(fields) says what is wrong with them.
  constructor({ setting, use, errors }) {
    this.setting = setting;
    this.use = use;
    this.errors = errors;
    this.number = 0;
    byId("advise").addEventListener("click", () => this.ask());
  }

  // The fields changed: what was advised was advised for others.
  outdate() {
    if (!byId("advice").firstChild) return;
    byId("advice").classList.add("old");
    byId("advice-state").textContent = "This advice is for an earlier setting. Ask again.";
  }

  async ask() {
    const number = ++this.number, asked = this.setting();
    this.controller?.abort();
    this.controller = new AbortController();
    byId("advice-state").textContent = "Every way is being certified …";
    try {
      const response = await fetch("advise", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ setting: asked }),
        signal: this.controller.signal,
      });
      if (!response.ok) {
        const said = await response.json();
        if (number !== this.number) return;
        if (said.fields) this.errors(said.fields);
        byId("advice-state").textContent = said.fields ? Object.values(said.fields).join("; ") : said.refused;
        return;
      }
      for await (const line of lines(response)) if (number === this.number) this.hear(line);
    } catch (error) {
      if (number === this.number && error.name !== "AbortError") {
        byId("advice-state").textContent = "No advice: the server does not answer.";
      }
    }
  }

  hear(line) {
    if (line.error) byId("advice-state").textContent = line.error;
    else if (line.ways) this.show(line);
    else byId("advice-state").textContent = `Every way is being certified: ${line.done} of ${line.total} …`;
  }

  show(advice) {
    byId("advice-state").textContent = advice.feasible ? "" : "Nothing keeps within the target.";
    byId("advice").classList.remove("old");
    byId("advice").replaceChildren(...advice.ways.map((way, number) => this.card(way, number === 0 && advice.feasible)));
    byId("advice").append(paragraph(advice.accuracy_is));
    byId("advice").lastChild.className = "note";
  }

  card(way, isBest) {
    const made = document.createElement("article");
    made.className = isBest ? "way best" : "way";
    made.dataset.way = way.way;
    const accuracy = way.accuracy === null ? "accuracy not measured" : `expected accuracy ${(100 * way.accuracy).toFixed(1)} %`;
    const groups = way.groups.map((group) => `${short(group.budget)}: ${upwards(group.epsilon)}`).join(", ");
    const command = paragraph(way.command, "pre");
    command.tabIndex = 0;
    command.setAttribute("aria-label", "The command that trains so");
    const use = paragraph("Use it", "button");
    use.type = "button";
    use.addEventListener("click", () => this.use(way));
    const buttons = document.createElement("div");
    buttons.className = "buttons";
    buttons.append(use);
    made.append(paragraph(`${isBest ? "Recommended: " : ""}${NAMES[way.way]}${change(way)}`, "h3"),
      paragraph(`${accuracy[0].toUpperCase()}${accuracy.slice(1)}, epsilon ${upwards(way.epsilon)}, noise ${figure(way.noise)}`),
      paragraph(`By budget: ${groups}`), paragraph(way.reason), command, buttons);
    made.querySelector("p").dataset.epsilon = way.epsilon;
    return made;
  }
}
