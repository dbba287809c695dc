// Asking the server: one question at a time, the newest next; its answer comes in lines, the figure dragged for first.
// Once a newer question is being answered, no line of an older one is handed on.

// Milliseconds: between attempts to find a lost server; until a newer question no longer waits for an older one's turn.
const AGAIN = 1000, PATIENCE = 250;

export class Asker {
  // heard: {part(part, setting), fields(fields), refused(text), lost(), back()}
  constructor(heard) {
    this.heard = heard;
    this.page = crypto.randomUUID();
    this.number = 0;
    this.begun = 0;
    this.answered = { number: 0 };
    this.wanted = null;
    this.waitsForFirst = false;
    this.isLost = false;
  }

  ask(setting) {
    this.wanted = { setting, number: ++this.number };
    if (this.isLost) return;
    if (!this.waitsForFirst) this.begin();
    else this.patience ??= setTimeout(() => this.wanted && !this.isLost && this.begin(), PATIENCE);
  }

  // Begin with the newest question. What is being answered goes on until the server has understood this one.
  async begin() {
    const { setting, number } = this.wanted, controller = new AbortController();
    this.wanted = null;
    clearTimeout(this.patience);
    this.patience = null;
    this.last = setting;
    this.begun = number;
    this.waitsForFirst = true;
    try {
      const response = await fetch("answer", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ page: this.page, number, setting }),
        signal: controller.signal,
      });
      if (this.begun !== number) controller.abort();
      else if (response.ok) {
        this.answered.controller?.abort();
        this.answered = { number, controller };
        await this.read(response, number, setting);
      } else await this.notAnswered(response, number);
    } catch (error) {
      if ((this.begun === number || this.answered.number === number) && error.name !== "AbortError") this.lose();
    }
  }

  async read(response, number, setting) {
    let ended = false;
    for await (const part of lines(response)) {
      if (this.answered.number !== number || part.part === "superseded") return;
      this.heard.part(part, setting);
      if (part.part === "about") this.first();
      ended ||= part.part === "end";
    }
    // A stream that ends before its last line was cut off.
    if (!ended && this.answered.number === number) this.lose();
  }

  // An estimate is there: whatever was asked meanwhile is next.
  first() {
    this.waitsForFirst = false;
    if (this.wanted) this.begin();
  }

  async notAnswered(response, number) {
    const said = await response.json();
    if (this.begun !== number) return;
    if (response.status === 503) {
      await new Promise((done) => setTimeout(done, AGAIN / 2));
      if (this.begun === number) this.again();
      return;
    }
    if (said.fields) this.heard.fields(said.fields);
    else this.heard.refused(said.refused ?? `the server answered ${response.status}`);
    this.first();
  }

  // Without a server: ask whether it is back, once a second, and put the newest question then.
  async lose() {
    this.waitsForFirst = false;
    if (this.isLost) return;
    this.isLost = true;
    this.heard.lost();
    while (this.isLost) {
      await new Promise((done) => setTimeout(done, AGAIN));
      try {
        this.isLost = !(await fetch("health", { cache: "no-store" })).ok;
      } catch {
        // Still away.
      }
    }
    this.heard.back();
    this.again();
  }

  again() {
    this.wanted ??= { setting: this.last, number: ++this.number };
    this.begin();
  }
}

// Lines of JSON as they come.
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}
