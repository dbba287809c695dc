// Who has which budget: rows of budgets and shares, a histogram of them to drag, or a CSV file.

import { histogram } from "./charts.js";
import { LADDERS } from "./fields.js";

const MOST_ROWS = 8, MOST_BYTES = 32 * 2 ** 20;
const byId = (id) => document.getElementById(id);

export class Mixture {
  // changed() is called when somebody changed it; refused(text) when a file was not taken.
  constructor(changed, refused) {
    this.changed = changed;
    this.refused = refused;
    this.rows = [];
    this.file = null;
    this.upload = null;
    byId("add-row").addEventListener("click", () => {
      if (this.rows.length >= MOST_ROWS) return;
      const next = LADDERS.budget.find((value) => this.rows.every((row) => Number(row.budget) < value)) ?? 10;
      this.rows.push({ budget: String(next), share: "0" });
      this.draw();
      this.pull(this.rows.length - 1, 0.1);
      byId("rows").lastElementChild.querySelector("input").focus();
    });
    byId("choose-file").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", () => this.bring(byId("file").files[0]));
    byId("column").addEventListener("change", () => this.bring(this.file, byId("column").value));
    byId("drop-file").addEventListener("click", () => this.forget());
    this.takeDrops(document.querySelector("[data-field=shares]"));
  }

  get setting() {
    return this.upload ? { upload: this.upload.upload } : { shares: this.rows.map((row) => [row.budget, row.share]) };
  }

  set(rows) {
    this.rows = rows.map(([budget, share]) => ({ budget: String(budget), share: String(share) }));
    this.upload = this.file = null;
    this.draw();
  }

  // Shares as numbers in [0, 1]; what was typed is taken in proportion.
  get shares() {
    const weights = this.rows.map((row) => Math.max(Number(row.share), 0) || 0);
    const sum = weights.reduce((a, b) => a + b, 0);
    return { sum, shares: weights.map((weight) => (sum ? weight / sum : 0)) };
  }

  // Pull one share; the others keep their proportions, and all add up to 100 %.
  pull(number, share) {
    const { shares } = this.shares, rest = 1 - shares[number], others = this.rows.length - 1;
    const wanted = others ? Math.round(100 * share) : 100;
    let left = 100 - wanted;
    this.rows.forEach((row, place) => {
      if (place === number) row.share = String(wanted);
      else {
        const exact = (100 - wanted) * (rest > 1e-9 ? shares[place] / rest : 1 / others);
        const rounded = Math.min(Math.round(10 * exact) / 10, left);
        left = Math.round(10 * (left - rounded)) / 10;
        row.share = String(rounded);
      }
    });
    // What rounding left over goes to the largest of the others.
    const largest = this.rows.reduce((best, row, place) => (place !== number && (best < 0 || Number(row.share) > Number(this.rows[best].share)) ? place : best), -1);
    if (left > 0 && largest >= 0) this.rows[largest].share = String(Math.round(10 * (Number(this.rows[largest].share) + left)) / 10);
    this.show();
    this.changed();
  }

  draw() {
    byId("uploaded").hidden = !this.upload;
    byId("rows").hidden = Boolean(this.upload);
    byId("add-row").hidden = Boolean(this.upload) || this.rows.length >= MOST_ROWS;
    byId("users").disabled = byId("users-slider").disabled = Boolean(this.upload);
    byId("rows").replaceChildren(...this.rows.map((_, number) => this.rowOf(number)));
    this.show();
  }

  rowOf(number) {
    const made = document.createElement("div");
    made.className = "row";
    made.setAttribute("role", "group");
    made.setAttribute("aria-label", `Budget ${number + 1}`);
    const input = (kind, label, value) => {
      const text = document.createElement("input");
      Object.assign(text, { type: "text", inputMode: "decimal", value });
      text.setAttribute("aria-label", label);
      text.setAttribute("aria-describedby", "shares-error");
      text.dataset.kind = kind;
      text.addEventListener("input", () => {
        this.rows[number][kind] = text.value;
        this.show(text);
        this.changed();
      });
      return text;
    };
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: 100, step: 1 });
    slider.setAttribute("aria-label", `Share of budget ${number + 1}, per cent`);
    slider.addEventListener("input", () => this.pull(number, slider.value / 100));
    const remove = document.createElement("button");
    Object.assign(remove, { type: "button", textContent: "×", disabled: this.rows.length === 1 });
    remove.setAttribute("aria-label", `Remove budget ${number + 1}`);
    remove.addEventListener("click", () => {
      this.rows.splice(number, 1);
      this.draw();
      byId("add-row").focus();
      this.changed();
    });
    const people = document.createElement("p");
    people.className = "note";
    made.append(input("budget", `Budget ${number + 1}, local epsilon`, this.rows[number].budget), slider,
      input("share", `Share of budget ${number + 1}, per cent`, this.rows[number].share), remove, people);
    return made;
  }

  // Bring what is drawn in line with the rows; the field that is being typed into is left alone.
  show(typing = null) {
    const { sum, shares } = this.shares;
    const users = Number(byId("users").value.replaceAll(",", ""));
    [...byId("rows").children].forEach((made, number) => {
      const row = this.rows[number];
      for (const text of made.querySelectorAll("input[type=text]")) if (text !== typing) text.value = row[text.dataset.kind];
      const slider = made.querySelector("input[type=range]");
      slider.value = 100 * shares[number];
      const said = `${Number((100 * shares[number]).toPrecision(3))} %`;
      const people = users > 0 ? `, ${Math.round(users * shares[number]).toLocaleString("en")} people` : "";
      slider.setAttribute("aria-valuetext", said + people);
      made.querySelector(".note").textContent = said + people;
    });
    const isOff = !this.upload && Math.abs(sum - 100) > 0.05 && sum > 0;
    byId("shares-sum").hidden = !isOff;
    byId("shares-sum").textContent = `The shares add up to ${Number(sum.toPrecision(4))} %; they are taken in proportion.`;
    const bars = this.upload
      ? this.upload.bars.map(([low, high, users]) => ({ label: Number(((low + high) / 2).toPrecision(2)), share: users / this.upload.users }))
      : this.rows.map((row, number) => ({ label: row.budget, share: shares[number] }));
    byId("histogram").replaceChildren(histogram(bars, this.upload ? null : (number, share) => this.pull(number, share)));
  }

  takeDrops(area) {
    const over = (isOver) => area.classList.toggle("dropping", isOver);
    area.addEventListener("dragover", (event) => {
      event.preventDefault();
      over(true);
    });
    area.addEventListener("dragleave", () => over(false));
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      over(false);
      this.bring(event.dataTransfer.files[0]);
    });
    // A file that misses the field would replace the page.
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => event.preventDefault());
  }

  // Have the server read a file. What was there before stays if it cannot.
  async bring(file, column = null) {
    byId("file").value = "";
    if (!file) return;
    if (file.size > MOST_BYTES) {
      this.refused(`${file.name} has ${Math.ceil(file.size / 2 ** 20)} MB; at most ${MOST_BYTES / 2 ** 20} MB can be read here`);
      return;
    }
    const asked = new URLSearchParams({ name: file.name, ...(column ? { column } : {}) });
    try {
      const response = await fetch(`budgets?${asked}`, { method: "POST", headers: { "Content-Type": "text/csv" }, body: file });
      const said = await response.json();
      if (!response.ok) {
        this.refused(said.refused ?? `the server answered ${response.status}`);
        return;
      }
      this.refused("");
      this.take(file, said, column);
    } catch {
      this.refused(`${file.name} could not be read: the server does not answer, or the file changed`);
    }
  }

  take(file, said, column) {
    this.file = file;
    this.upload = said;
    byId("uploaded-name").textContent = said.place;
    byId("uploaded-size").textContent = `${said.users.toLocaleString("en")} people`;
    byId("column-label").hidden = said.columns.length < 2;
    byId("column").replaceChildren(...said.columns.map((name) => new Option(name, name, false, name === (column ?? said.columns[0]))));
    byId("users").value = String(said.users);
    byId("users").dispatchEvent(new Event("follow"));
    this.draw();
    this.changed();
  }

  // The server was started anew and knows nothing of the file.
  async again() {
    const column = this.upload.place === this.file.name ? null : byId("column").value;
    await this.bring(this.file, column);
  }

  forget() {
    this.upload = this.file = null;
    this.draw();
    byId("choose-file").focus();
    this.changed();
  }
}
