// The page: fields on one side, the answer on the other, and what happens between them.

import { Adviser } from "./advising.js";
import { Asker } from "./asking.js";
import { showErrors, tie } from "./fields.js";
import { Mixture } from "./mixture.js";
import { Answer } from "./showing.js";

const byId = (id) => document.getElementById(id);
const TEXTS = ["users", "rounds", "dimensions", "delta", "keep", "norm", "clip", "cap", "target"];
// What the page opens on: the defaults of all commands.
const START = await (await fetch("/opening")).json();
const SPEAK = 700;
const form = byId("setting"), headline = byId("headline"), details = byId("details");

const answer = new Answer();
let speaking = 0;

const asker = new Asker({
  part(part, about) {
    if (part.part === "about") {
      headline.setAttribute("aria-busy", "true");
      answer.clear({ rounds: Number(part.rounds), users: part.users });
      answer.setting = about;
      showErrors(form, {});
      markOld("");
      mixture.refused("");
    }
    if (part.part === "end") {
      headline.dataset.ended = part.number;
      headline.setAttribute("aria-busy", "false");
      return;
    }
    answer.show(part);
    clearTimeout(speaking);
    speaking = setTimeout(() => (byId("announcement").textContent = answer.spoken), SPEAK);
  },
  fields(fields) {
    if (fields.upload && mixture.file) {
      mixture.again();
      return;
    }
    showErrors(form, fields);
    byId("upload-error").textContent = fields.upload ?? "";
    byId("announcement").textContent = Object.values(fields).join("; ");
    headline.setAttribute("aria-busy", "false");
    markOld("This is the answer to the last setting that could be understood. See what is said beside the fields.");
  },
  refused(text) {
    markOld(`No answer: ${text}`);
  },
  lost() {
    byId("connection").textContent =
      "The server does not answer. Start it again with apes page; this page goes on by itself as soon as it is back.";
    byId("connection").hidden = false;
    markOld("This answer is from before the server was lost.");
  },
  back() {
    byId("connection").hidden = true;
    byId("announcement").textContent = "The server is back.";
  },
});

function markOld(why) {
  byId("old").hidden = !why;
  byId("old").textContent = why;
  headline.classList.toggle("old", Boolean(why));
  details.classList.toggle("old", Boolean(why));
}

const mixture = new Mixture(change, (text) => (byId("upload-error").textContent = text));

function setting() {
  const fields = Object.fromEntries(TEXTS.map((name) => [name, byId(name).value.trim()]));
  return { ...fields, way: form.elements.way.value, ...mixture.setting };
}

// Ask about what the fields say now, and keep it in the address: reloading the page keeps it.
function change() {
  const now = setting();
  for (const field of form.querySelectorAll("[data-way]")) field.hidden = field.dataset.way !== now.way;
  const target = Number(now.target);
  answer.target = target > 0 ? target : null;
  adviser.outdate();
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify({ ...now, upload: undefined }))}`);
  asker.ask(now);
}

function put(values) {
  for (const name of TEXTS) byId(name).value = values[name] ?? START[name];
  form.elements.way.value = values.way;
  if (!form.elements.way.value) form.elements.way.value = START.way;
  for (const follow of follows) follow();
  mixture.set(values.shares);
}

function start() {
  try {
    const kept = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const isWhole = Array.isArray(kept.shares) && kept.shares.length > 0 && kept.shares.every((row) => Array.isArray(row) && row.length === 2);
    return isWhole ? { ...START, ...kept } : START;
  } catch {
    return START;
  }
}

const adviser = new Adviser({
  setting,
  errors: (fields) => showErrors(form, fields),
  // A way of the adviser's, in the fields: one may go on from there.
  use(way) {
    const { users, rounds, cap, choices } = way, old = setting();
    const bounds = { clip: choices.clip, norm: choices.norm ?? old.norm, keep: START.keep };
    const texts = { users, rounds, cap: cap ?? "", ...bounds };
    for (const [name, value] of Object.entries(texts)) if (!byId(name).disabled) byId(name).value = String(value);
    form.elements.way.value = way.way;
    for (const follow of follows) follow();
    change();
    headline.focus();
  },
});

async function copy(kind) {
  if (!answer.total || !answer.setting) return;
  const text = kind === "json" ? answer.json(answer.setting) : answer.total.copies[kind];
  byId("copy-text").textContent = text;
  byId("copy-text").hidden = false;
  try {
    await navigator.clipboard.writeText(text);
    byId("copied").textContent = "Copied.";
  } catch {
    // Some browsers ask, and some people say no.
    getSelection().selectAllChildren(byId("copy-text"));
    byId("copied").textContent = "Selected: copy it with Ctrl+C.";
  }
}

const follows = TEXTS.map((name) => tie(name, byId(name), byId(`${name}-slider`), () => {
  if (name === "users") mixture.show();
  change();
}));
byId("users").addEventListener("follow", follows[0]);
form.addEventListener("submit", (event) => event.preventDefault());
for (const radio of form.elements.way) radio.addEventListener("change", change);
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button.dataset.copy));
// For whoever drives the page: the number of the newest question.
window.apes = { asked: () => asker.number };
put(start());
change();
