// Where a server has sent the page: tables of new tasks, read there, shown here; and predictions of all of them.

const TYPES = {
  csv: "text/csv", tsv: "text/csv", txt: "text/csv", parquet: "application/vnd.apache.parquet",
  arrow: "application/vnd.apache.arrow.stream",
};

class Tables {
  constructor(page, address) {
    Object.assign(this, { page, address, file: null, tasks: [] });
    find("tables").hidden = false;
    find("table-file").addEventListener("change", () => this.open(find("table-file").files[0]));
    find("table-task").addEventListener("change", () => this.choose(Number(find("table-task").value)));
    for (const kind of ["csv", "parquet"]) find(`all-${kind}`).addEventListener("click", () => this.download(kind));
  }

  say(text, wrong = false) {
    find("table-said").textContent = wrong ? "" : text;
    find("table-wrong").textContent = wrong ? text : "";
  }

  type() {
    const ending = this.file.name.split(".").at(-1).toLowerCase();
    return TYPES[ending] ?? "text/csv";
  }

  /** The server's answer to the table; what it refuses is told in its own words. */
  async ask(address, accept) {
    let answer;
    try {
      answer = await fetch(address, {
        method: "POST", body: this.file, headers: { "Content-Type": this.type(), Accept: accept },
      });
    } catch {
      throw new Refused("The server does not answer. Is it still running?");
    }
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => null);
    throw new Refused(said?.error?.message ?? `The server refused (${answer.status}).`);
  }

  async open(file) {
    if (!file) return;
    this.file = file;
    this.say(`Reading ${file.name} …`);
    await this.told(async () => {
      const { tasks, notes } = await (await this.ask(`${this.address}/tasks`, "application/json")).json();
      this.tasks = tasks;
      const options = tasks.map((task, k) => made("option", `${task.id} (${task.n})`, { value: String(k) }));
      find("table-task").replaceChildren(...options);
      find("table-chosen").hidden = false;
      this.say([`${tasks.length.toLocaleString("en")} tasks.`, ...notes].join(" "));
      this.choose(0);
    });
  }

  /** One of the tasks, as if its points had been put down by hand. */
  choose(k) {
    const { x, y, about } = this.tasks[k];
    const { page } = this;
    page.change((state) => {
      state.points = x.map((row, i) => ({ x: row, y: y[i] })).slice(0, MOST);
      if (about) {
        let place = 0;
        state.task = page.about.task_x.map(({ levels }, t) => {
          const numbers = about.slice(place, (place += levels.length || 1));
          return levels.length ? levels[numbers.indexOf(1)] : numbers[0] ?? state.task[t];
        });
      }
    });
    if (x.length > MOST) this.say(`The first ${MOST} of ${x.length} points are shown.`);
    page.inControls();
    page.render();
  }

  async download(kind) {
    const { page } = this;
    await this.told(async () => {
      const places = page.asked();
      const inputs = page.about.x.map(({ name, kind: type }, k) => {
        const values = k ? [page.state.slice[k]] : places.map(([x]) => x);
        const texts = values.map((value) => (type === "date" ? shownInput(value, type) : String(value)));
        return page.d === 1 ? texts.join(",") : `"${name.replaceAll('"', '""')}=${texts[0]}"${texts.slice(1).map((text) => `,${text}`).join("")}`;
      });
      const options = new URLSearchParams({ at: inputs.join(","), latent: String(page.state.latent), missing: "drop" });
      this.say("Predicting …");
      const answer = await this.ask(`${this.address}/predict?${options}`, TYPES[kind]);
      const notes = JSON.parse(answer.headers.get("Metaprior-Notes") ?? "[]");
      const link = made("a", "", { download: `${this.file.name.replace(/\.[^.]*$/, "")}-predicted.${kind}` });
      link.href = URL.createObjectURL(await answer.blob());
      link.click();
      URL.revokeObjectURL(link.href);
      this.say(["Predicted.", ...notes].join(" "));
    });
  }

  async told(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.say(error.message, true);
    }
  }
}
